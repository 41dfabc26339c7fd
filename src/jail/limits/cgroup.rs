//! A delegated part of the cgroup (v2) tree, and one group in it for each jail.
//!
//! Source: the kernel's Documentation/admin-guide/cgroup-v2.rst. Everything goes through descriptors of
//! the directories, so that a tree that is replaced meanwhile is not written to.

use std::collections::HashSet;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat, unlinkat};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use turnjail_driver::Limits;
use turnjail_warden::step::Step;
use turnjail_warden::wire::{Failure, GroupLimits};

use crate::StartError;
use crate::plan::MIB;

/// Where our own processes are, since a group with controllers for its children holds none itself.
pub(super) const LEAF: &str = "turnjail-host";

/// Groups of jails: this, the number of the host process, and a count.
const PREFIX: &str = "jail-";

const MODE: Mode = Mode::RWXU.union(Mode::RGRP).union(Mode::XGRP);

/// The period of a CPU share in microseconds, the kernel's default.
const PERIOD_US: f64 = 100_000.0;

/// The kernel takes no smaller share of a period.
const LEAST_US: f64 = 1_000.0;

/// How long a group that still has processes is tried to be removed.
const REMOVE_WITHIN: Duration = Duration::from_secs(5);
/// The same while somebody waits for it.
const WAIT_WITHIN: Duration = Duration::from_secs(1);

/// How often it is looked for processes that were started while others were killed.
const KILL_ROUNDS: usize = 1_000;

/// The controllers that the groups of jails have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Controllers {
    pub memory: bool,
    pub pids: bool,
    pub cpu: bool,
    /// Of memory, too: whether this kernel counts a group's swap.
    pub swap: bool,
}

/// A group that is ours, with our processes in a leaf of it.
#[derive(Debug)]
pub(super) struct Delegated {
    dir: OwnedFd,
    path: PathBuf,
    controllers: Controllers,
    /// Who delegated it, in words.
    by: &'static str,
    next: AtomicU64,
}

impl Delegated {
    /// Takes over the group at `path`, in which there is nobody but our own processes: they go to a leaf,
    /// the controllers are switched on for the groups of jails, and what dead hosts left is removed.
    pub(super) fn adopt(path: &Path, by: &'static str) -> io::Result<Self> {
        let dir = open_dir(rustix::fs::CWD, path)?;
        domain(dir.as_fd())?;
        let leaf = make_dir(dir.as_fd(), LEAF)?;
        empty_into(dir.as_fd(), leaf.as_fd())?;
        let controllers = enable(dir.as_fd())?;
        domain(dir.as_fd())?;
        sweep(dir.as_fd());
        Ok(Self { dir, path: path.to_owned(), controllers, by, next: AtomicU64::new(1) })
    }

    pub(super) fn controllers(&self) -> Controllers {
        self.controllers
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn describe(&self) -> String {
        let cpu =
            if self.controllers.cpu { ", cpu" } else { "; the cpu controller is not delegated" };
        format!("cgroup v2 by {}: memory, pids{cpu} ({})", self.by, self.path.display())
    }

    /// A group for one jail.
    pub(super) fn group(this: &Arc<Self>, limits: GroupLimits) -> Result<Group, StartError> {
        loop {
            let number = this.next.fetch_add(1, Ordering::Relaxed);
            let name = format!("{PREFIX}{}-{number}", std::process::id());
            match Self::make(this, &name, limits) {
                // A dead host's, which had the same number and left something that could not be swept.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => {
                    return made.map_err(|error| StartError::Step {
                        failure: Failure {
                            step: Step::Cgroup,
                            index: 0,
                            errno: error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()),
                        },
                        object: Some(this.path.join(&name).display().to_string()),
                    });
                }
            }
        }
    }

    fn make(this: &Arc<Self>, name: &str, limits: GroupLimits) -> io::Result<Group> {
        domain(this.dir.as_fd())?;
        mkdirat(&this.dir, name, MODE)?;
        let dir = open_dir(this.dir.as_fd(), Path::new(name));
        let dir = dir.inspect_err(|_| drop(remove(this.dir.as_fd(), name)))?;
        // From here on it is removed when something fails.
        let group = Group { parent: Arc::clone(this), name: name.to_owned(), dir };
        group.set(limits)?;
        Ok(group)
    }
}

/// The limits of a jail's group. `own` processes are turnjail's and come on top of what the program may
/// have.
pub(super) fn group_limits(limits: &Limits, own: u32) -> GroupLimits {
    GroupLimits {
        memory: u64::from(limits.memory_mb) * MIB,
        processes: limits.pids + own,
        cpu_us: (limits.cpus * PERIOD_US).ceil().max(LEAST_US) as u64,
    }
}

/// The cgroup of one jail. Removed when dropped, with everything in it.
#[derive(Debug)]
pub(crate) struct Group {
    parent: Arc<Delegated>,
    name: String,
    dir: OwnedFd,
}

/// What a jail used and met, as its group counted it. What a kernel does not count is absent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Used {
    /// Bytes.
    pub peak: Option<u64>,
    /// Microseconds.
    pub cpu_us: Option<u64>,
    /// Whether the kernel killed something in it because its memory ran out, not the host's.
    pub out_of_memory: bool,
    /// Processes and threads that were refused.
    pub refused_forks: Option<u64>,
}

impl Group {
    /// The directory.
    pub(crate) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    fn set(&self, limits: GroupLimits) -> io::Result<()> {
        let dir = self.dir.as_fd();
        write(dir, "memory.max", &limits.memory.to_string())?;
        write(dir, "memory.oom.group", "1")?;
        if self.parent.controllers.swap {
            write(dir, "memory.swap.max", "0")?;
        }
        write(dir, "pids.max", &limits.processes.to_string())?;
        if self.parent.controllers.cpu {
            write(dir, "cpu.max", &format!("{} {PERIOD_US}", limits.cpu_us))?;
        }
        Ok(())
    }

    /// What was used until now.
    pub(crate) fn used(&self) -> Used {
        let dir = self.dir.as_fd();
        let text = |name| read(dir, name).unwrap_or_default();
        let events = text("memory.events");
        Used {
            peak: text("memory.peak").trim().parse().ok(),
            cpu_us: field(&text("cpu.stat"), "usage_usec"),
            out_of_memory: ["oom", "oom_kill"].iter().all(|name| field(&events, name) > Some(0)),
            refused_forks: field(&text("pids.events"), "max"),
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let parent = self.parent.dir.as_fd();
        if remove(parent, &self.name).is_ok() {
            return;
        }
        end_all(self.dir.as_fd());
        let (parent, name) = (Arc::clone(&self.parent), std::mem::take(&mut self.name));
        let later = move || {
            if let Err(error) = remove_within(REMOVE_WITHIN, parent.dir.as_fd(), &name) {
                let path = parent.path.join(name);
                tracing::warn!(%error, path = %path.display(), "a cgroup cannot be removed");
            }
        };
        if let Err(error) = std::thread::Builder::new().name("turnjail-cgroup".into()).spawn(later)
        {
            tracing::warn!(%error, "a cgroup is left until the next start");
        }
    }
}

/// Removes groups with everything in them, and waits a moment for that: unlike their own drop it leaves
/// nothing to do for a process that is about to end.
pub(super) fn remove_all(groups: impl IntoIterator<Item = Group>) {
    let groups: Vec<Group> = groups.into_iter().collect();
    for group in &groups {
        end_all(group.dir.as_fd());
    }
    let end = Instant::now() + WAIT_WITHIN;
    for group in &groups {
        let left = end.saturating_duration_since(Instant::now());
        // Where that fails, it is tried for longer when the group is dropped.
        let _ = remove_within(left, group.parent.dir.as_fd(), &group.name);
    }
}

/// Its last process may still be on its way out.
fn remove_within(limit: Duration, parent: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    let mut wait = Duration::from_millis(1);
    let mut waited = Duration::ZERO;
    loop {
        match remove(parent, name) {
            Err(error) if waited > limit => return Err(error),
            Err(_) => {
                std::thread::sleep(wait);
                waited += wait;
                wait = (wait * 2).min(Duration::from_millis(100));
            }
            Ok(()) => return Ok(()),
        }
    }
}

/// Kills whatever is in a group.
fn end_all(group: BorrowedFd<'_>) {
    // Linux 5.14.
    if write(group, "cgroup.kill", "1").is_ok() {
        return;
    }
    // One after the other. What they start meanwhile is found by looking again; those that are listed
    // although they were killed are on their way out.
    let mut killed = HashSet::new();
    for _ in 0..KILL_ROUNDS {
        let there = processes(group).unwrap_or_default();
        let new: Vec<Pid> = there.into_iter().filter(|&pid| killed.insert(pid)).collect();
        if new.is_empty() {
            return;
        }
        for pid in new {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Moves every process of a group to another one. Those that are made meanwhile are found by looking
/// again.
fn empty_into(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<()> {
    for _ in 0..100 {
        let there = processes(from)?;
        if there.is_empty() {
            return Ok(());
        }
        for pid in there {
            match write(to, "cgroup.procs", &pid.as_raw_nonzero().to_string()) {
                // It has ended.
                Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {}
                other => other?,
            }
        }
    }
    Err(Errno::BUSY.into())
}

/// Switches the controllers on that there are; memory and pids must be.
fn enable(group: BorrowedFd<'_>) -> io::Result<Controllers> {
    let there = read(group, "cgroup.controllers")?;
    let has = |name: &str| there.split_whitespace().any(|word| word == name);
    let controllers = Controllers {
        memory: has("memory"),
        pids: has("pids"),
        cpu: has("cpu"),
        swap: read(group, "memory.swap.max").is_ok(),
    };
    if !(controllers.memory && controllers.pids) {
        return Err(io::Error::other("the controllers memory and pids are not delegated"));
    }
    let cpu = if controllers.cpu { " +cpu" } else { "" };
    write(group, "cgroup.subtree_control", &format!("+memory +pids{cpu}"))?;
    Ok(controllers)
}

/// A threaded group takes no jails: every move below one fails.
fn domain(group: BorrowedFd<'_>) -> io::Result<()> {
    match read(group, "cgroup.type")?.trim() {
        "domain" => Ok(()),
        other => Err(io::Error::other(format!("the group's type is {other:?}, not \"domain\""))),
    }
}

/// Removes the groups of jails that a host left which is no more: nobody else makes any here.
fn sweep(group: BorrowedFd<'_>) {
    let Ok(entries) = rustix::fs::Dir::read_from(group) else { return };
    for entry in entries.flatten() {
        let Ok(name) = entry.file_name().to_str() else { continue };
        if name.starts_with(PREFIX)
            && let Ok(left) = open_dir(group, Path::new(name))
        {
            end_all(left.as_fd());
            for _ in 0..50 {
                if remove(group, name).is_ok() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

/// The processes of a group, as this process numbers them.
pub(super) fn processes(group: BorrowedFd<'_>) -> io::Result<Vec<Pid>> {
    let text = read(group, "cgroup.procs")?;
    Ok(text.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)).collect())
}

pub(super) fn open_dir(at: impl AsFd, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(at, path, flags, Mode::empty())?)
}

fn make_dir(parent: BorrowedFd<'_>, name: &str) -> io::Result<OwnedFd> {
    match mkdirat(parent, name, MODE) {
        Ok(()) | Err(Errno::EXIST) => open_dir(parent, Path::new(name)),
        Err(errno) => Err(errno.into()),
    }
}

fn remove(parent: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    ignore_absent(unlinkat(parent, name, AtFlags::REMOVEDIR).map_err(io::Error::from))
}

fn read(dir: BorrowedFd<'_>, name: &str) -> io::Result<String> {
    let file = openat(dir, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut text = String::new();
    std::fs::File::from(file).read_to_string(&mut text)?;
    Ok(text)
}

/// In one call, as these files demand.
fn write(dir: BorrowedFd<'_>, name: &str, text: &str) -> io::Result<()> {
    let file = openat(dir, name, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, text.as_bytes())?;
    Ok(())
}

fn ignore_absent(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// The number behind a word at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_whole_words() {
        let text = "oom 3\noom_kill 2\noom_group_kill 1\n";
        assert_eq!(field(text, "oom_kill"), Some(2));
        assert_eq!(field(text, "oom"), Some(3));
        assert_eq!(field(text, "kill"), None);
    }

    /// A directory with a list of processes and no cgroup.kill, as before Linux 5.14. It goes with the
    /// value.
    struct Listed(PathBuf);

    impl Listed {
        fn of(pids: &[u32]) -> (Self, OwnedFd) {
            let path = std::env::temp_dir().join(format!("turnjail-group-{}", pids[0]));
            std::fs::create_dir(&path).expect("a directory");
            let lines: Vec<String> = pids.iter().map(u32::to_string).collect();
            std::fs::write(path.join("cgroup.procs"), lines.join("\n")).expect("a list");
            let dir = open_dir(rustix::fs::CWD, &path).expect("it");
            (Self(path), dir)
        }
    }

    impl Drop for Listed {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn without_a_kill_for_all_each_process_is_killed() {
        use std::os::unix::process::ExitStatusExt as _;
        let start = || std::process::Command::new("sleep").arg("600").spawn().expect("a child");
        let mut children = [start(), start(), start()];
        let mut spared = start();
        let pids: Vec<u32> = children.iter().map(std::process::Child::id).collect();
        let (listed, dir) = Listed::of(&pids);
        end_all(dir.as_fd());
        for child in &mut children {
            assert_eq!(child.wait().expect("ended").signal(), Some(9));
        }
        assert_eq!(spared.try_wait().expect("asked"), None, "one that was not listed is dead");
        assert!(!listed.0.join("cgroup.kill").exists(), "the file was made");
        spared.kill().expect("killed");
        spared.wait().expect("reaped");
    }
}
