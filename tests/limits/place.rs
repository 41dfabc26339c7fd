//! The cgroup of this process, looked at without the code under test.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process;

/// What the cgroup is to this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// There are no cgroups of version 2 with the controllers in them.
    Nowhere,
    /// Somebody else's.
    Undelegated(PathBuf),
    /// This user's, with processes that this one did not start.
    Shared(PathBuf),
    /// This user's, and threaded.
    Threaded(PathBuf),
    /// This user's, for this process alone.
    Delegated(PathBuf),
}

const TREE: &str = "/sys/fs/cgroup";

/// The leaf to which turnjail moves the process that it runs in.
const LEAF: &str = "turnjail-host";

/// Where this process is.
pub fn here() -> Place {
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    let controllers = read(&Path::new(TREE).join("cgroup.controllers"));
    let own = read(Path::new("/proc/self/cgroup"));
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"));
    let Some(own) = own.filter(|_| controllers.contains("memory")) else { return Place::Nowhere };
    let leaf = Path::new(TREE).join(own);
    let group = if leaf.ends_with(LEAF) { leaf.parent().expect("above") } else { &leaf };
    let group = group.to_owned();
    if !delegated(&group) {
        return Place::Undelegated(group);
    }
    let inside = [read(&group.join("cgroup.procs")), read(&group.join(LEAF).join("cgroup.procs"))];
    let inside: Vec<u32> = inside.concat().lines().filter_map(|pid| pid.parse().ok()).collect();
    match read(&group.join("cgroup.type")).trim() {
        "domain" if inside.iter().all(|&pid| descends(pid)) => Place::Delegated(group),
        "domain" => Place::Shared(group),
        _ => Place::Threaded(group),
    }
}

/// Given to this user by a manager, which says so.
fn delegated(group: &Path) -> bool {
    let owner = fs::metadata(group.join("cgroup.procs")).map(|file| file.uid());
    let mut mark = [0; 1];
    owner.is_ok_and(|owner| owner == nix::unistd::geteuid().as_raw())
        && rustix::fs::getxattr(group, "user.delegate", &mut mark).is_ok_and(|_| mark == *b"1")
}

/// Whether a process is this one or was started below it. One that has ended is nobody's.
fn descends(pid: u32) -> bool {
    let mut pid = pid;
    while pid > 1 {
        if pid == process::id() {
            return true;
        }
        let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { return true };
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
        pid = parent.and_then(|parent| parent.trim().parse().ok()).unwrap_or(0);
    }
    false
}

/// Whether this user has a systemd manager that can be asked for a scope.
pub fn has_manager() -> bool {
    let runtime = format!("/run/user/{}", nix::unistd::geteuid());
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map_or(runtime.into(), PathBuf::from);
    runtime.join("systemd/private").exists()
}
