//! The two views of the file system that the warden has.
//!
//! The host's, into which later mounts of the host come, is where sources are found. A bare one, with
//! nothing in it but procfs and a place to put a root, is where jails are cloned: a jail then never holds
//! the host's mounts, not even while it is being made, and the kernel has fewer to copy and to take away.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd as _, OwnedFd};

use nix::fcntl::{OFlag, open};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::stat::Mode;
use nix::unistd::{chdir, mkdir, pivot_root};

use crate::sys;

/// Where a jail's root is attached in the bare view.
pub const ROOT: &[u8] = b"/root";

/// Both mount namespaces of a warden; but while it clones it is in the host's.
#[derive(Debug)]
pub struct Views {
    host: OwnedFd,
    bare: OwnedFd,
}

impl Views {
    /// Makes the bare view of the warden's own. The warden stays where it was.
    pub fn new() -> nix::Result<Self> {
        let host = namespace()?;
        // Before there is no way back: a filter around turnjail may let through the one call alone.
        setns(&host, CloneFlags::CLONE_NEWNS)?;
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let copy = |place: &CStr| -> nix::Result<OwnedFd> {
            let tree = sys::copy_tree(open(place, flags, Mode::empty())?.as_fd())?;
            sys::restrict_tree(tree.as_fd(), 0)?;
            Ok(tree)
        };
        let proc = copy(c"/proc")?;
        let others: Vec<OwnedFd> =
            others().iter().filter_map(|place| copy(place).ok()).take(OTHERS.len()).collect();
        unshare(CloneFlags::CLONE_NEWNS)?;
        let bare = strip(&proc, &others).and_then(|()| namespace());
        setns(&host, CloneFlags::CLONE_NEWNS)?;
        Ok(Self { host, bare: bare? })
    }

    /// Enters the bare one, for a clone.
    pub fn enter(&self) -> nix::Result<()> {
        setns(&self.bare, CloneFlags::CLONE_NEWNS)
    }

    /// Goes back to the host's.
    pub fn leave(&self) {
        // Here it would find no source of any jail: better none at all, and the host starts another warden.
        if setns(&self.host, CloneFlags::CLONE_NEWNS).is_err() {
            sys::exit_now(1);
        }
    }
}

/// This process's mount namespace.
fn namespace() -> nix::Result<OwnedFd> {
    open(c"/proc/self/ns/mnt", OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())
}

/// Where other mounts of procfs are kept in the bare view.
const OTHERS: [&CStr; 3] = [c"other", c"another", c"third"];

/// Other mounts of procfs, where something is mounted below /proc: the kernel lets a jail have one of its
/// own only while a whole one can be seen, which need not be the first.
fn others() -> Vec<CString> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let masked = table
        .lines()
        .any(|line| line.split(' ').nth(4).is_some_and(|place| place.starts_with("/proc/")));
    let other = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let mut fields = before.split(' ').skip(3);
        let whole = fields.next()? == "/" && after.starts_with("proc ");
        let place = fields.next()?;
        // A name with a space in it is not worth the trouble.
        let fits = whole && !place.starts_with("/proc") && !place.contains('\\');
        fits.then(|| CString::new(place).ok())?
    };
    if masked { table.lines().filter_map(other).collect() } else { Vec::new() }
}

/// Leaves nothing in this mount namespace but the given /proc, and the others.
fn strip(proc: &OwnedFd, others: &[OwnedFd]) -> nix::Result<()> {
    const NONE: Option<&CStr> = None;
    let tmpfs = Some(c"tmpfs");
    let tight = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(NONE, c"/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE)?;
    // Over /proc, because that is a directory everywhere.
    mount(tmpfs, c"/proc", tmpfs, tight, Some(c"size=4k,nr_inodes=8,mode=755"))?;
    chdir(c"/proc")?;
    mkdir(c"proc", Mode::from_bits_truncate(0o555))?;
    mkdir(c"root", Mode::from_bits_truncate(0o555))?;
    sys::attach_tree(proc.as_fd(), c"proc")?;
    for (other, place) in others.iter().zip(OTHERS) {
        mkdir(place, Mode::from_bits_truncate(0o555))?;
        sys::attach_tree(other.as_fd(), place)?;
    }
    pivot_root(c".", c".")?;
    umount2(c".", MntFlags::MNT_DETACH)?;
    chdir(c"/")?;
    let read_only = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY | tight;
    mount(NONE, c"/", NONE, read_only, NONE)
}
