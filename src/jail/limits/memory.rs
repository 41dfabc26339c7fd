//! How much memory the processes of a jail take, where no cgroup counts it.
//!
//! Proportional memory is exact and slow to ask for: the kernel walks every page. Resident memory is
//! never less and costs nothing, so it is asked first.

use std::fs::{self, File};
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt as _;

use rustix::fs::OFlags;

/// A jail, seen from outside through the number of its first process.
#[derive(Debug)]
pub(super) struct Jail {
    first: i32,
    /// Its writable file systems that live in memory.
    tmpfs: Vec<File>,
}

impl Jail {
    /// Looks at the jail of a pidfd, which must have executed its program; none when it is gone.
    pub(super) fn of(pidfd: BorrowedFd<'_>) -> Option<Self> {
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).ok()?;
        let first = info.lines().find_map(|line| line.strip_prefix("Pid:"))?.trim().parse().ok()?;
        if first <= 0 {
            return None;
        }
        // Not through the init: what has executed nothing since the warden's own start is closed to us.
        let all = processes(first);
        let open = |name: &str| all.iter().find_map(|pid| open(*pid, name));
        Some(Self { first, tmpfs: ["tmp", "dev/shm"].into_iter().filter_map(open).collect() })
    }

    /// Whether the jail takes more than `limit` bytes. A file in memory that is mapped as well counts
    /// twice, which can only be as much as these file systems hold.
    pub(super) fn is_over(&self, limit: u64) -> bool {
        let files: u64 = self.tmpfs.iter().map(used).sum();
        let processes = processes(self.first);
        let sum = |of: fn(i32) -> Option<u64>| -> u64 {
            // What cannot be read has ended.
            processes.iter().filter_map(|&pid| of(pid)).sum()
        };
        files + sum(resident) > limit && files + sum(proportional) > limit
    }
}

/// A directory in the root of a process.
fn open(pid: i32, name: &str) -> Option<File> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let path = format!("/proc/{pid}/root/{name}");
    fs::OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path).ok()
}

/// Bytes that a file system holds.
fn used(root: &File) -> u64 {
    rustix::fs::fstatvfs(root).map_or(0, |space| (space.f_blocks - space.f_bfree) * space.f_frsize)
}

/// A process and all below it. Orphans of a pid namespace become children of its first process, so
/// nothing of it is anywhere else.
fn processes(first: i32) -> Vec<i32> {
    let mut all = vec![first];
    let mut next = 0;
    while let Some(&pid) = all.get(next) {
        next += 1;
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for task in tasks {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            all.extend(children.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
        }
    }
    all
}

/// The second number of statm, in pages.
fn resident(pid: i32) -> Option<u64> {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = statm.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// Pss of smaps_rollup; where that is not to be read, what is resident.
fn proportional(pid: i32) -> Option<u64> {
    let Ok(rollup) = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")) else {
        return resident(pid);
    };
    let kib = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kib: u64 = kib.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_and_its_children_are_found_and_counted() {
        let own = std::process::id() as i32;
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("a child");
        let found = processes(own);
        assert!(found.contains(&own) && found.contains(&(child.id() as i32)), "{found:?}");
        let (resident, proportional) =
            (resident(own).expect("read"), proportional(own).expect("read"));
        assert!(
            proportional > 0 && proportional <= resident + (1 << 20),
            "{proportional} {resident}"
        );
        child.kill().expect("killed");
        child.wait().expect("reaped");
    }
}
