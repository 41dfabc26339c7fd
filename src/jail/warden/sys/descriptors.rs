//! Closing descriptors, with close_range(2) and without.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, Ordering};

use libc::c_uint;
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::{Result, check};

/// close_range(2) from `first` to the last.
pub fn close_from(first: RawFd) -> Result<()> {
    // SAFETY: closing descriptors touches no memory; what owns them is never used again by the caller,
    // which is about to exec or has just been executed.
    match check(unsafe { libc::syscall(libc::SYS_close_range, first as c_uint, c_uint::MAX, 0) }) {
        Err(Errno::ENOSYS | Errno::EPERM) => {
            for number in first..DESCRIPTORS.load(Ordering::Relaxed) {
                // SAFETY: as above. Most of these numbers are not open, which is no error here.
                unsafe { libc::close(number) };
            }
            Ok(())
        }
        other => other.map(drop),
    }
}

/// No descriptor of this process or of its children has this number or a higher one.
static DESCRIPTORS: AtomicI32 = AtomicI32::new(RawFd::MAX);

/// How many descriptors a warden may hold that has to close them one by one.
const FEW: libc::rlim_t = 2048;

/// Without close_range(2): closes every descriptor from `first` on, by the list in /proc, and bounds the
/// numbers that new ones get, so that children need not try all there could be.
pub fn bound_descriptors(first: RawFd) -> Result<()> {
    let list = std::fs::read_dir("/proc/self/fd").map_err(|_| Errno::ENOSYS)?;
    let numbers: Vec<RawFd> =
        list.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for number in numbers.into_iter().filter(|&number| number >= first) {
        // SAFETY: touches no memory; nothing in this freshly executed program owns them. That of the list
        // is closed already.
        unsafe { libc::close(number) };
    }
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let bound = hard.min(FEW);
    setrlimit(Resource::RLIMIT_NOFILE, bound, hard)?;
    DESCRIPTORS.store(bound as RawFd, Ordering::Relaxed);
    Ok(())
}

/// Whether there is close_range(2). Closes nothing.
pub fn has_close_range() -> bool {
    // SAFETY: touches no memory, and no descriptor has the highest number.
    let result =
        unsafe { libc::syscall(libc::SYS_close_range, c_uint::MAX, c_uint::MAX, 0 as c_uint) };
    check(result).is_ok()
}
