//! How much memory the processes of a jail take, where no cgroup counts it.
//!
//! Proportional memory is exact and slow to ask for: the kernel walks every page. Resident memory is
//! never less and costs nothing, so it is asked first.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::Pid;

use super::own;
use crate::pidfd;

/// A jail, seen from outside through the number of its first process.
#[derive(Debug)]
pub(super) struct Jail {
    first: i32,
    /// Its writable file systems that live in memory.
    tmpfs: Vec<File>,
    /// The most that it has been seen to take, in bytes.
    seen: Arc<AtomicU64>,
}

impl Jail {
    /// Looks at the jail of a pidfd, which must have executed its program; none when it is gone. The most
    /// that a look finds is kept in `seen`.
    pub(super) fn of(pidfd: BorrowedFd<'_>, seen: Arc<AtomicU64>) -> Result<Option<Self>, Errno> {
        let Some(first) = pidfd::number(pidfd)? else { return Ok(None) };
        // Not through the init: what has executed nothing since the warden's own start is closed to us.
        let all = processes(first);
        let open = |name: &str| all.iter().find_map(|pid| open(*pid, name));
        let tmpfs = ["tmp", "dev/shm"].into_iter().filter_map(open).collect();
        Ok(Some(Self { first, tmpfs, seen }))
    }

    /// Whether the jail takes more than `limit` bytes, or cannot be counted in reasonable time.
    pub(super) fn is_over(&self, limit: u64) -> bool {
        let (taken, counted) = self.taken(limit);
        self.seen.fetch_max(taken, Ordering::Relaxed);
        taken > limit || !counted
    }

    /// What the jail takes, in bytes, and whether it could be counted in reasonable time. Where resident
    /// memory is within the limit it is that, in which what processes share counts for each of them. No more
    /// is counted once it is over the limit.
    fn taken(&self, limit: u64) -> (u64, bool) {
        let files: u64 = self.tmpfs.iter().map(used).sum();
        let processes = processes(self.first);
        // What cannot be read has ended.
        let resident: u64 = processes.iter().filter_map(|&pid| resident(pid)).sum();
        let shared = shared(&processes);
        if files + shared + resident <= limit {
            return (files + shared + resident, true);
        }
        let begun = thread_time();
        let mut own = 0;
        for &pid in &processes {
            own += proportional(pid).unwrap_or(0);
            // Many processes that share much are made in no time and take the kernel long to count.
            let counted = thread_time().saturating_sub(begun) <= COUNT_WITHIN;
            if files + shared + own > limit || !counted {
                return (files + shared + own, counted);
            }
        }
        (files + shared + own, true)
    }
}

/// How much of a processor's time one count may take.
const COUNT_WITHIN: Duration = Duration::from_millis(250);

fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Bytes of shared anonymous memory. Its pages stay when a process gives them back (MADV_DONTNEED) and are
/// then resident nowhere, so the whole size of each mapping counts, once however many map it.
fn shared(processes: &[i32]) -> u64 {
    let mut sizes: HashMap<String, u64> = HashMap::new();
    for pid in processes {
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        let mut own: HashMap<&str, u64> = HashMap::new();
        for (inode, size) in maps.lines().filter_map(shared_mapping) {
            *own.entry(inode).or_default() += size;
        }
        for (inode, size) in own {
            let known = sizes.entry(inode.to_owned()).or_default();
            *known = size.max(*known);
        }
    }
    sizes.values().sum()
}

/// Inode and size of a mapping of shared anonymous memory, from a line of maps (proc_pid_maps(5)).
fn shared_mapping(line: &str) -> Option<(&str, u64)> {
    let mut fields = line.split_ascii_whitespace();
    let (range, mode, _, _, inode) =
        (fields.next()?, fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    // The other kinds, memfds and System V's, are refused by the profile.
    if !mode.ends_with('s') || !line.ends_with("/dev/zero (deleted)") {
        return None;
    }
    let (from, to) = range.split_once('-')?;
    let address = |text| u64::from_str_radix(text, 16).ok();
    Some((inode, address(to)?.saturating_sub(address(from)?)))
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
    // Kernels without CONFIG_PROC_CHILDREN have no such list.
    if fs::metadata(format!("/proc/{first}/task/{first}/children")).is_err() {
        return below(first);
    }
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

/// The same from the parents of all processes of the host.
fn below(first: i32) -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let parents: Vec<(i32, i32)> = numbers
        .filter_map(|pid| Some((pid, own::parent(Pid::from_raw(pid)?)?.as_raw_nonzero().get())))
        .collect();
    let mut all = vec![first];
    let mut next = 0;
    while let Some(&pid) = all.get(next) {
        next += 1;
        all.extend(parents.iter().filter(|&&(_, parent)| parent == pid).map(|&(child, _)| child));
    }
    all
}

/// What is resident. By status and not by statm, which counts in pages: rustix asks for their size in a file
/// that a process which is not dumpable cannot read, and panics (before Linux 6.4).
fn resident(pid: i32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = kib.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kib * 1024)
}

/// Pss of smaps_rollup; where that is not to be read, what is resident.
fn proportional(pid: i32) -> Option<u64> {
    let Ok(rollup) = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")) else {
        return resident(pid);
    };
    let field = |name: &str| -> Option<u64> {
        let kib = rollup.lines().find_map(|line| line.strip_prefix(name))?;
        kib.trim().trim_end_matches(" kB").parse().ok()
    };
    // Shared memory is counted by itself, and files in memory by their file systems.
    let kib = field("Pss:")?.saturating_sub(field("Pss_Shmem:").unwrap_or(0));
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
        let found = below(own);
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

    #[test]
    fn shared_anonymous_memory_is_told_from_files_and_private_memory() {
        let line = "7f0000000000-7f0000100000 rw-s 00000000 00:01 2055 /dev/zero (deleted)";
        assert_eq!(shared_mapping(line), Some(("2055", 1 << 20)));
        for other in [
            "7f0000000000-7f0000100000 rw-p 00000000 00:01 2055 /dev/zero (deleted)",
            "7f0000000000-7f0000100000 rw-s 00000000 08:01 2055 /tmp/file",
            "7f0000000000-7f0000100000 rw-p 00000000 00:00 0",
            "",
        ] {
            assert_eq!(shared_mapping(other), None, "{other}");
        }
    }
}
