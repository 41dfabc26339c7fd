//! The /dev of a general image: a read-only tmpfs of ours with five devices of the host, whatever the
//! image has there, and a small /dev/shm.

use std::ffi::CStr;
use std::os::fd::{AsFd as _, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat2};
use nix::mount::{MsFlags, mount};
use nix::sys::stat::{Mode, fstat};
use nix::unistd::{mkdir, symlinkat};

use crate::prepare::without_links;
use crate::step::Step;
use crate::sys;
use crate::wire::Failure;

/// A device of the host that a general image may use.
#[derive(Debug)]
pub struct Device {
    /// Its path on the host and in the jail.
    pub path: &'static CStr,
    /// Its minor number; the major number of all of them is 1 (Documentation/admin-guide/devices.txt).
    minor: u64,
}

impl Device {
    const ALL: [Self; 5] = [
        Self { path: c"/dev/null", minor: 3 },
        Self { path: c"/dev/zero", minor: 5 },
        Self { path: c"/dev/full", minor: 7 },
        Self { path: c"/dev/random", minor: 8 },
        Self { path: c"/dev/urandom", minor: 9 },
    ];

    /// Detached mounts of all of them, once each is proved to be what it is called.
    pub(crate) fn all() -> Result<Vec<(&'static Self, OwnedFd)>, Failure> {
        Self::ALL
            .iter()
            .zip(0..)
            .map(|(device, index)| Ok((device, device.detach(index)?)))
            .collect()
    }

    fn detach(&self, index: u16) -> Result<OwnedFd, Failure> {
        let fail = |errno: Errno| Failure { step: Step::Devices, index, errno: errno as i32 };
        let node =
            openat2(nix::fcntl::AT_FDCWD, self.path, without_links(OFlag::O_PATH)).map_err(fail)?;
        let found = fstat(&node).map_err(fail)?;
        let is_device = found.st_mode & libc::S_IFMT == libc::S_IFCHR;
        if !is_device || found.st_rdev != nix::sys::stat::makedev(1, self.minor) {
            return Err(fail(Errno::ENODEV));
        }
        let tree = sys::copy_tree(node.as_fd()).map_err(fail)?;
        // Not nodev: on the node itself that would make it useless.
        let flags = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC;
        sys::restrict_tree(tree.as_fd(), flags).map_err(fail)?;
        Ok(tree)
    }
}

/// What programs expect beside the devices.
const LINKS: [(&CStr, &CStr); 4] = [
    (c"/proc/self/fd", c"/dev/fd"),
    (c"/proc/self/fd/0", c"/dev/stdin"),
    (c"/proc/self/fd/1", c"/dev/stdout"),
    (c"/proc/self/fd/2", c"/dev/stderr"),
];

/// Makes /dev in the root that the child has already entered.
pub(crate) fn populate(devices: &[(&'static Device, OwnedFd)]) -> nix::Result<()> {
    const NONE: Option<&CStr> = None;
    let tmpfs = Some(c"tmpfs");
    let tight = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(tmpfs, c"/dev", tmpfs, tight, Some(c"size=64k,nr_inodes=32,mode=755"))?;
    for (device, tree) in devices {
        let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
        drop(open(device.path, flags, Mode::S_IRUSR | Mode::S_IWUSR)?);
        sys::attach_tree(tree.as_fd(), device.path)?;
    }
    for (target, link) in LINKS {
        symlinkat(target, nix::fcntl::AT_FDCWD, link)?;
    }
    mkdir(c"/dev/shm", Mode::S_IRWXU)?;
    let read_only = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY | tight;
    mount(NONE, c"/dev", NONE, read_only, NONE)?;
    mount(tmpfs, c"/dev/shm", tmpfs, tight, Some(c"size=16m,nr_inodes=1024,mode=1777"))
}
