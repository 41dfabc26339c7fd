//! What the init of a general image does: children and signals.

use libc::{c_int, c_long};
use nix::errno::Errno;

use super::{Result, check};

/// fork(2) of this, the only, thread: none in the child, the child's number in the parent.
pub fn fork() -> Result<Option<libc::pid_t>> {
    // SAFETY: the caller has one thread, as with clone3.
    match check(c_long::from(unsafe { libc::fork() }))? {
        0 => Ok(None),
        pid => Ok(Some(pid as libc::pid_t)),
    }
}

/// wait4(2) for any child that has ended: its number and its raw wait status; none when none has.
pub fn reap_any() -> Result<Option<(libc::pid_t, c_int)>> {
    let mut status = 0;
    // SAFETY: the out-pointer is to a live integer; no resource use is asked for.
    let pid = unsafe { libc::wait4(-1, &raw mut status, libc::WNOHANG, std::ptr::null_mut()) };
    match check(c_long::from(pid)) {
        Ok(0) | Err(Errno::ECHILD) => Ok(None),
        other => other.map(|pid| Some((pid as libc::pid_t, status))),
    }
}

/// Every signal, as the kernel's set: bit 0 is signal 1.
static ALL_SIGNALS: u64 = u64::MAX;

/// rt_sigprocmask(2): blocks every signal that can be blocked. Raw, because a C library keeps some back.
pub fn block_signals() -> Result<()> {
    let none = std::ptr::null_mut::<u64>();
    let (number, set) = (libc::SYS_rt_sigprocmask, &raw const ALL_SIGNALS);
    // SAFETY: the set lives across the call and its size is given; no old set is asked for.
    check(unsafe { libc::syscall(number, libc::SIG_SETMASK, set, none, size_of::<u64>()) })
        .map(drop)
}

/// rt_sigtimedwait(2) without a time: takes the next blocked signal.
pub fn next_signal() -> Result<c_int> {
    let none = std::ptr::null::<u8>();
    loop {
        let (number, set) = (libc::SYS_rt_sigtimedwait, &raw const ALL_SIGNALS);
        // SAFETY: the set lives across the call and its size is given; nothing is written.
        match check(unsafe { libc::syscall(number, set, none, none, size_of::<u64>()) }) {
            // After a stop.
            Err(Errno::EINTR) => {}
            other => return other.map(|signal| signal as c_int),
        }
    }
}

/// kill(2) of one process.
pub fn send(pid: libc::pid_t, signal: c_int) -> Result<()> {
    // SAFETY: takes integers only.
    check(c_long::from(unsafe { libc::kill(pid, signal) })).map(drop)
}
