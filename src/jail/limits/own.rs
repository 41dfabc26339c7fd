//! The cgroup of our own service, when it is delegated to us and holds nobody else.

use std::collections::HashMap;
use std::fs;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Pid, getpid};

use super::Undelegated;
use super::cgroup::{self, Delegated, LEAF};

/// Marks a group that its manager has given away (systemd's documentation of delegation).
const MARK: &str = "user.delegate";

/// The service's group. One in a process: all its wardens are in the same leaf.
pub(super) fn delegated() -> Result<Arc<Delegated>, Undelegated> {
    static FOUND: Mutex<Option<Arc<Delegated>>> = Mutex::new(None);
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(delegated) = &*found {
        return Ok(Arc::clone(delegated));
    }
    let delegated = Arc::new(take()?);
    *found = Some(Arc::clone(&delegated));
    Ok(delegated)
}

fn take() -> Result<Delegated, Undelegated> {
    let current = of_process(getpid())?;
    let root = match current.parent() {
        _ if marked(&current) => current.clone(),
        // Where this process, or the one that it was executed from, has gone before.
        Some(parent) if current.ends_with(LEAF) && marked(parent) => parent.to_owned(),
        _ => {
            return Err(Undelegated::not_ours("the cgroup of this process is not delegated to it"));
        }
    };
    for group in [&root, &current] {
        let there = cgroup::open_dir(rustix::fs::CWD, group)
            .and_then(|dir| cgroup::processes(dir.as_fd()))
            .map_err(|error| {
                Undelegated::not_ours(format!("cgroup {} : {error}", group.display()))
            })?;
        if let Some(other) = somebody_else(&there) {
            return Err(Undelegated::not_ours(format!(
                "the delegated cgroup {} holds other processes, for example {other}",
                group.display()
            )));
        }
    }
    Delegated::adopt(&root, "the service manager").map_err(|error| {
        Undelegated::not_ours(format!(
            "the delegated cgroup {} cannot be used: {error}",
            root.display()
        ))
    })
}

/// The directory of a process's cgroup.
pub(super) fn of_process(pid: Pid) -> Result<PathBuf, Undelegated> {
    let pid = pid.as_raw_nonzero();
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let mounts = read("/proc/self/mountinfo");
    let (root, point) = mounts.lines().find_map(unified).ok_or_else(|| {
        Undelegated::nowhere(
            "this host has no cgroup v2 tree",
            "boot with systemd.unified_cgroup_hierarchy=1, or mount cgroup2 at /sys/fs/cgroup",
        )
    })?;
    let controllers = fs::read_to_string(point.join("cgroup.controllers")).unwrap_or_default();
    if !controllers.split_whitespace().any(|name| name == "memory") {
        return Err(Undelegated::nowhere(
            "this host's controllers are in cgroup v1",
            "boot with systemd.unified_cgroup_hierarchy=1",
        ));
    }
    let groups = read(&format!("/proc/{pid}/cgroup"));
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"));
    // A mount of a part of the tree shows what lies below that part.
    let path = path.and_then(|path| Path::new(path).strip_prefix(&root).ok().map(Path::to_owned));
    path.map(|path| point.join(path))
        .ok_or_else(|| Undelegated::not_ours("the cgroup of this process is not in view"))
}

/// Root and mount point of a cgroup2 mount, from a line of mountinfo (proc_pid_mountinfo(5)).
fn unified(line: &str) -> Option<(PathBuf, PathBuf)> {
    let (mount, kind) = line.split_once(" - ")?;
    let mut fields = mount.split(' ').skip(3);
    let (root, point) = (fields.next()?, fields.next()?);
    kind.starts_with("cgroup2 ").then(|| (PathBuf::from(root), PathBuf::from(point)))
}

fn marked(group: &Path) -> bool {
    let mut value = [0; 8];
    match rustix::fs::getxattr(group, MARK, &mut value) {
        Ok(length) => value[..length] == *b"1",
        Err(_) => false,
    }
}

/// A process that neither is this one nor descends from it.
fn somebody_else(processes: &[Pid]) -> Option<Pid> {
    let own = getpid();
    let parents: HashMap<Pid, Pid> =
        processes.iter().filter_map(|&pid| Some((pid, parent(pid)?))).collect();
    processes.iter().copied().find(|&process| {
        let mut ancestor = process;
        for _ in 0..1000 {
            if ancestor == own {
                return false;
            }
            match parents.get(&ancestor).copied().or_else(|| parent(ancestor)) {
                Some(next) => ancestor = next,
                // Nobody's child; or it has ended meanwhile and is nobody.
                None => break,
            }
        }
        Path::new(&format!("/proc/{}", process.as_raw_nonzero())).exists()
    })
}

/// The parent of a process; none of the first one.
pub(super) fn parent(pid: Pid) -> Option<Pid> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    Pid::from_raw(rest.split(' ').nth(1)?.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unified_tree_is_told_from_others() {
        let line = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate";
        let found = unified(line).expect("a cgroup2 mount");
        assert_eq!(found, (PathBuf::from("/"), PathBuf::from("/sys/fs/cgroup")));
        let line = "31 23 0:27 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids";
        assert_eq!(unified(line), None);
    }

    #[test]
    fn our_own_process_and_its_children_are_nobody_else() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("a child");
        let pid = Pid::from_raw(child.id() as i32).expect("a number");
        assert_eq!(somebody_else(&[getpid(), pid]), None);
        let init = Pid::from_raw(1).expect("a number");
        assert_eq!(somebody_else(&[getpid(), init]), Some(init));
        child.kill().expect("killed");
        child.wait().expect("reaped");
    }
}
