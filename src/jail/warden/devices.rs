//! The /dev of a general image: a read-only tmpfs of ours with five devices of the host, whatever the
//! image has there, and a small /dev/shm.

use std::ffi::CStr;
use std::os::fd::{AsFd as _, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::mount::{MsFlags, mount};
use nix::sys::stat::{Mode, fstat};
use nix::unistd::{mkdir, symlinkat};

use crate::open::without_links;
use crate::step::Step;
use crate::sys;
use crate::wire::Failure;

/// A device of the host that a general image may use.
#[derive(Debug)]
pub struct Device {
    /// Its path on the host.
    pub path: &'static CStr,
    /// The same in the jail's root.
    place: &'static CStr,
    /// Its minor number; the major number of all of them is 1 (Documentation/admin-guide/devices.txt).
    minor: u64,
}

impl Device {
    pub(crate) const ALL: [Self; 5] = [
        Self { path: c"/dev/null", place: c"dev/null", minor: 3 },
        Self { path: c"/dev/zero", place: c"dev/zero", minor: 5 },
        Self { path: c"/dev/full", place: c"dev/full", minor: 7 },
        Self { path: c"/dev/random", place: c"dev/random", minor: 8 },
        Self { path: c"/dev/urandom", place: c"dev/urandom", minor: 9 },
    ];

    /// Detached mounts of all of them, once each is proved to be what it is called.
    pub(crate) fn all() -> Result<Vec<OwnedFd>, Failure> {
        Self::ALL.iter().zip(0..).map(|(device, index)| device.detach(index)).collect()
    }

    /// The device of the host, once it is proved to be what it is called.
    pub(crate) fn open(&self) -> nix::Result<OwnedFd> {
        let node = without_links(self.path, OFlag::O_PATH)?;
        let found = fstat(&node)?;
        let is_device = found.st_mode & libc::S_IFMT == libc::S_IFCHR;
        if !is_device || found.st_rdev != nix::sys::stat::makedev(1, self.minor) {
            return Err(Errno::ENODEV);
        }
        Ok(node)
    }

    fn detach(&self, index: u16) -> Result<OwnedFd, Failure> {
        let fail = |errno: Errno| Failure { step: Step::Devices, index, errno: errno as i32 };
        let node = self.open().map_err(fail)?;
        let tree = sys::copy_tree(node.as_fd()).map_err(fail)?;
        // Not nodev: on the node itself that would make it useless.
        let flags = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC;
        sys::restrict_tree(tree.as_fd(), flags).map_err(fail)?;
        Ok(tree)
    }
}

/// What programs expect beside the devices.
const LINKS: [(&CStr, &CStr); 4] = [
    (c"/proc/self/fd", c"dev/fd"),
    (c"/proc/self/fd/0", c"dev/stdin"),
    (c"/proc/self/fd/1", c"dev/stdout"),
    (c"/proc/self/fd/2", c"dev/stderr"),
];

/// Makes /dev in the root, which is the working directory. `attach` mounts the device with an index of
/// [`Device::ALL`] at a file.
pub(crate) fn populate(attach: impl Fn(usize, &CStr) -> nix::Result<()>) -> nix::Result<()> {
    const NONE: Option<&CStr> = None;
    let tmpfs = Some(c"tmpfs");
    let tight = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(tmpfs, c"dev", tmpfs, tight, Some(c"size=64k,nr_inodes=32,mode=755"))?;
    for (device, index) in Device::ALL.iter().zip(0..) {
        let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
        drop(open(device.place, flags, Mode::S_IRUSR | Mode::S_IWUSR)?);
        attach(index, device.place)?;
    }
    for (target, link) in LINKS {
        symlinkat(target, nix::fcntl::AT_FDCWD, link)?;
    }
    mkdir(c"dev/shm", Mode::S_IRWXU)?;
    let read_only = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY | tight;
    mount(NONE, c"dev", NONE, read_only, NONE)?;
    mount(tmpfs, c"dev/shm", tmpfs, tight, Some(c"size=16m,nr_inodes=1024,mode=1777"))
}
