//! Supplementary groups of this process that amount to root: a user namespace cannot drop them.

use rustix::io::Errno;

use crate::causes::evidence::Evidence;

/// Groups that lead to root or to a device.
const PRIVILEGED: [&str; 10] =
    ["docker", "podman", "lxd", "incus", "disk", "kvm", "sudo", "wheel", "libvirt", "shadow"];

/// The names of groups of this process that amount to root or to a device.
pub(crate) fn privileged(evidence: &Evidence) -> Result<Vec<String>, Errno> {
    let ids: Vec<u32> = if evidence.is_here() {
        let groups = nix::unistd::getgroups().map_err(|e| Errno::from_raw_os_error(e as i32))?;
        groups.into_iter().map(nix::unistd::Gid::as_raw).collect()
    } else {
        let list = evidence.status("Groups").unwrap_or_default();
        list.split_whitespace().filter_map(|id| id.parse().ok()).collect()
    };
    let names = ids.into_iter().filter_map(|id| name(id, evidence));
    Ok(names.filter(|name| PRIVILEGED.contains(&name.as_str())).collect())
}

/// The name of a group: by the host's own means, or by the file laid out.
fn name(id: u32, evidence: &Evidence) -> Option<String> {
    if evidence.is_here() {
        let gid = nix::unistd::Gid::from_raw(id);
        return nix::unistd::Group::from_gid(gid).ok().flatten().map(|group| group.name);
    }
    let groups = evidence.text("/etc/group")?;
    groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(id)).then(|| name.to_owned())
    })
}
