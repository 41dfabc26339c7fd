//! The system calls of a canary's attempts.

use std::os::fd::AsRawFd as _;

use libc::c_char;

use super::{Result, check, new_fd};
use crate::canary::Attempt;

/// Makes the system call of a canary's attempt. A path longer than its room is cut: it still must not
/// exist in a jail.
pub fn attempt(attempt: Attempt, host_path: &[u8]) -> Result<()> {
    let mut path = [0_u8; libc::PATH_MAX as usize];
    let length = host_path.len().min(path.len() - 1);
    path[..length].copy_from_slice(&host_path[..length]);
    let none = std::ptr::null::<u8>();
    // SAFETY: every path is a C string that lives across the call (the zeroed tail ends the copied one);
    // the other pointers are null, and the numbers ask for nothing that touches this process's memory.
    let result = unsafe {
        match attempt {
            Attempt::HostPath => {
                libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), libc::O_RDONLY, 0)
            }
            Attempt::WriteRoot => {
                let flags = libc::O_WRONLY | libc::O_CREAT;
                libc::syscall(libc::SYS_openat, libc::AT_FDCWD, c"/canary".as_ptr(), flags, 0o600)
            }
            Attempt::ListRoot => {
                let flags = libc::O_RDONLY | libc::O_DIRECTORY;
                libc::syscall(libc::SYS_openat, libc::AT_FDCWD, c"/".as_ptr(), flags, 0)
            }
            Attempt::Socket => libc::syscall(libc::SYS_socket, libc::AF_INET, libc::SOCK_STREAM, 0),
            Attempt::Unshare => libc::syscall(libc::SYS_unshare, libc::CLONE_NEWUSER),
            Attempt::Mount => {
                let (kind, at) = (c"tmpfs".as_ptr(), c"/tmp".as_ptr());
                libc::syscall(libc::SYS_mount, kind, at, kind, 0, none)
            }
            Attempt::Trace => libc::syscall(libc::SYS_ptrace, libc::PTRACE_TRACEME, 0, none, none),
            Attempt::Netlink => {
                libc::syscall(libc::SYS_socket, libc::AF_NETLINK, libc::SOCK_RAW, 0)
            }
            Attempt::Clock => return Ok(()),
            Attempt::SocketFile => return bind_in_tmp(),
            Attempt::Outside => return send_outside(),
        }
    };
    check(result).map(drop)
}

/// Binds a Unix socket to a name in /tmp.
fn bind_in_tmp() -> Result<()> {
    // SAFETY: takes integers only.
    let socket =
        new_fd(unsafe { libc::syscall(libc::SYS_socket, libc::AF_UNIX, libc::SOCK_STREAM, 0) })?;
    // SAFETY: all-zero is a valid sockaddr_un.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, &from) in address.sun_path.iter_mut().zip(b"/tmp/canary") {
        *to = from as c_char;
    }
    let size = size_of_val(&address);
    // SAFETY: the address is live, its size is given, and its path ends with zeros.
    check(unsafe { libc::syscall(libc::SYS_bind, socket.as_raw_fd(), &raw const address, size) })
        .map(drop)
}

/// Sends a byte to 192.0.2.1 (RFC 5737: nobody's) over UDP.
fn send_outside() -> Result<()> {
    // SAFETY: takes integers only.
    let socket =
        new_fd(unsafe { libc::syscall(libc::SYS_socket, libc::AF_INET, libc::SOCK_DGRAM, 0) })?;
    // SAFETY: all-zero is a valid sockaddr_in.
    let mut address: libc::sockaddr_in = unsafe { std::mem::zeroed() };
    address.sin_family = libc::AF_INET as libc::sa_family_t;
    address.sin_port = 9_u16.to_be();
    address.sin_addr.s_addr = u32::from_ne_bytes([192, 0, 2, 1]);
    let (number, fd, size) = (libc::SYS_sendto, socket.as_raw_fd(), size_of_val(&address));
    // SAFETY: the byte and the address are live, and their sizes are given.
    check(unsafe { libc::syscall(number, fd, b"x".as_ptr(), 1, 0, &raw const address, size) })
        .map(drop)
}
