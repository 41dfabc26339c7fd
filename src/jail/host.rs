//! Facts of this host that tell causes of one errno apart. Reading only; an unreadable fact is absent.

use std::fs;

use rustix::io::Errno;

/// Whether the sysctl, a path below /proc/sys, has this value.
pub(crate) fn sysctl_is(name: &str, value: &str) -> bool {
    sysctl(name).is_some_and(|found| found == value)
}

/// The value of a sysctl, trimmed.
pub(crate) fn sysctl(name: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/sys/{name}")).ok().map(|text| text.trim().to_owned())
}

/// A field of /proc/self/status.
pub(crate) fn status_field(name: &str) -> Option<String> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.map(|value| value.trim().to_owned())
}

/// Whether a seccomp filter around this process forbids namespaces: container engines let not even an
/// empty unshare pass.
pub(crate) fn filtered() -> bool {
    status_field("Seccomp").is_some_and(|mode| mode == "2")
}

/// Whether this process's user or group has no id in its own user namespace.
pub(crate) fn unmapped() -> bool {
    let overflow = |name: &str| sysctl(name).and_then(|v| v.parse().ok()).unwrap_or(65534_u32);
    nix::unistd::geteuid().as_raw() == overflow("kernel/overflowuid")
        || nix::unistd::getegid().as_raw() == overflow("kernel/overflowgid")
}

/// The first namespace limit that is 0 here.
pub(crate) fn exhausted_namespace_limit() -> Option<&'static str> {
    const LIMITS: [&str; 7] = [
        "max_user_namespaces",
        "max_mnt_namespaces",
        "max_pid_namespaces",
        "max_net_namespaces",
        "max_ipc_namespaces",
        "max_uts_namespaces",
        "max_cgroup_namespaces",
    ];
    LIMITS.into_iter().find(|name| sysctl_is(&format!("user/{name}"), "0"))
}

/// The path of the running program, as an AppArmor profile must name it.
pub(crate) fn program() -> String {
    std::env::current_exe()
        .map_or_else(|_| "turnjail".to_owned(), |path| path.display().to_string())
}

/// The names of groups of this process that amount to root or to a device.
pub(crate) fn privileged_groups() -> Result<Vec<String>, Errno> {
    const PRIVILEGED: [&str; 8] =
        ["docker", "lxd", "incus", "disk", "kvm", "sudo", "wheel", "libvirt"];
    let groups = nix::unistd::getgroups().map_err(|e| Errno::from_raw_os_error(e as i32))?;
    let names = groups
        .into_iter()
        .filter_map(|gid| nix::unistd::Group::from_gid(gid).ok().flatten().map(|group| group.name));
    Ok(names.filter(|name| PRIVILEGED.contains(&name.as_str())).collect())
}
