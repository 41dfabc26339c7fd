//! A jail's mounts where detached ones cannot be had: bound in the jail's own namespace, and restricted
//! there.
//!
//! Everything is resolved without links and bound by descriptor, while /proc is still there to name
//! descriptors by. Between bind and restriction a mount can be seen by this process alone. Mounts below a
//! source are left behind, for they could not be restricted at once.

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd as _, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::mount::{MsFlags, mount};
use nix::sys::stat::fstat;
use nix::sys::statvfs::{FsFlags, fstatvfs};
use nix::unistd::fchdir;

use crate::child::{Done, fail_at};
use crate::devices::{self, Device};
use crate::open::without_links;
use crate::prepare::{Prepared, open_source};
use crate::seccomp::Profile;
use crate::step::Step;
use crate::wire::{Failure, Source};

const NONE: Option<&CStr> = None;

/// Binds the root over itself and everything else into it; gives back the root, which is the working
/// directory then.
pub(crate) fn root(jail: &Prepared) -> Result<OwnedFd, Failure> {
    let set = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    let root = bind(&jail.plan.root, &jail.root_path, set | MsFlags::MS_RDONLY, 0)?;
    fchdir(&root).map_err(fail_at(Step::AttachRoot, 0))?;
    for (place, index) in jail.plan.binds.iter().zip(1..) {
        let mut flags = set;
        flags.set(MsFlags::MS_RDONLY, place.target.read_only());
        flags.set(MsFlags::MS_NOEXEC, place.noexec);
        bind(&place.source, place.target.name(), flags, index)?;
    }
    if jail.plan.profile == Profile::General {
        devices(jail)?;
    }
    Ok(root)
}

fn bind(source: &Source, target: &CStr, flags: MsFlags, index: u16) -> Result<OwnedFd, Failure> {
    let source_dir = open_source(source, index)?;
    let attach = fail_at(Step::AttachMount, index);
    let place = without_links(target, OFlag::O_PATH | OFlag::O_DIRECTORY).map_err(&attach)?;
    let from = by_descriptor(&source_dir);
    mount(Some(from.as_c_str()), by_descriptor(&place).as_c_str(), NONE, MsFlags::MS_BIND, NONE)
        .map_err(fail_at(Step::CopyTree, index))?;
    // The same path now leads to what was mounted there.
    let bound = without_links(target, OFlag::O_PATH | OFlag::O_DIRECTORY).map_err(&attach)?;
    let found = fstat(&bound).map_err(&attach)?;
    if (found.st_dev, found.st_ino) != (source.dev, source.ino) {
        return Err(fail_at(Step::SourceIdentity, index)(Errno::ESTALE));
    }
    restrict(&bound, flags).map_err(fail_at(Step::TreeFlags, index))?;
    Ok(bound)
}

/// Sets flags of a mount, by a descriptor of its root, and keeps those that it has: some are locked. Those
/// about access times are kept by the kernel where none is given (mount(2)).
fn restrict(bound: &OwnedFd, flags: MsFlags) -> nix::Result<()> {
    let has = fstatvfs(bound)?.flags();
    let kept = [
        (FsFlags::ST_RDONLY, MsFlags::MS_RDONLY),
        (FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
        (FsFlags::ST_NODEV, MsFlags::MS_NODEV),
        (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
    ];
    let kept = kept.into_iter().filter(|&(flag, _)| has.contains(flag)).map(|(_, flag)| flag);
    let flags = kept.fold(flags | MsFlags::MS_REMOUNT | MsFlags::MS_BIND, |all, flag| all | flag);
    mount(NONE, by_descriptor(bound).as_c_str(), NONE, flags, NONE)
}

fn devices(_jail: &Prepared) -> Done {
    let place = without_links(c"dev", OFlag::O_PATH | OFlag::O_DIRECTORY);
    drop(place.map_err(fail_at(Step::Devices, 0))?);
    let attach = |index: usize, place: &CStr| {
        let node = Device::ALL[index].open()?;
        mount(Some(by_descriptor(&node).as_c_str()), place, NONE, MsFlags::MS_BIND, NONE)?;
        let bound = without_links(place, OFlag::O_PATH)?;
        // Not nodev: on the node itself that would make it useless.
        restrict(&bound, MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC)
    };
    devices::populate(attach).map_err(fail_at(Step::Devices, 0))
}

fn by_descriptor(fd: &OwnedFd) -> CString {
    // A number has no NUL in it.
    CString::new(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap_or_default()
}
