//! Whether the kernel has a system call, and whoever is around this process lets it through. Each is made
//! with arguments that are refused before anything is done.

use libc::c_uint;
use nix::errno::Errno;

use super::check;

/// Whether there is clone3(2): it refuses an argument of no size before it looks at anything else.
pub fn has_clone3() -> bool {
    let none = std::ptr::null::<libc::clone_args>();
    // SAFETY: with a size of 0 the kernel reads no memory and clones nothing.
    check(unsafe { libc::syscall(libc::SYS_clone3, none, 0) }) == Err(Errno::EINVAL)
}

/// Whether there is openat2(2): it refuses an argument of no size as well.
pub fn has_openat2() -> bool {
    let none = std::ptr::null::<libc::open_how>();
    // SAFETY: the path is a valid C string; with a size of 0 the kernel reads no more memory.
    let result = unsafe { libc::syscall(libc::SYS_openat2, -1, c"".as_ptr(), none, 0) };
    check(result) == Err(Errno::EINVAL)
}

/// Whether there is move_mount(2): it refuses descriptors that are none.
pub fn has_move_mount() -> bool {
    const BOTH_EMPTY: c_uint = 0x44;
    let empty = c"".as_ptr();
    // SAFETY: both paths are valid C strings.
    let result = unsafe { libc::syscall(libc::SYS_move_mount, -1, empty, -1, empty, BOTH_EMPTY) };
    check(result) == Err(Errno::EBADF)
}
