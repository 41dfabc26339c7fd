//! The first process of a general image's jail.
//!
//! A program that was not written to be one makes a poor PID 1: it ignores signals and leaves zombies.
//! So a general image's program is the second process, and this one reaps whatever ends and hands on the
//! signals that it is sent. It ends with the program, and with it the kernel ends the pid namespace,
//! daemons and all.

use std::os::fd::RawFd;

use nix::errno::Errno;

use crate::prepare::Prepared;
use crate::seccomp;
use crate::step::Step;
use crate::sys;
use crate::wire::{Failure, Report};

/// Where the init keeps its two descriptors; all others are closed.
const STATUS: RawFd = 0;
const FAILURES: RawFd = 1;

/// Makes the program's process, and comes back in that one alone, with the descriptor that its failures
/// go to. The calling process stays behind as the init.
pub fn split(jail: &Prepared, status: RawFd) -> Result<RawFd, Failure> {
    let fail = |errno: Errno| Failure { step: Step::Init, index: 0, errno: errno as i32 };
    // Before there is a program that could look into this process or write to its memory, in which there
    // is no filter yet. The program's process is as before once it has executed something.
    sys::not_dumpable().map_err(fail)?;
    let [failures, writer] = sys::pipe().map_err(fail)?;
    match sys::fork().map_err(fail)? {
        // A session of its own, so that the program's group does not contain its init.
        None => nix::unistd::setsid().map_err(fail).map(|_| writer),
        Some(program) => {
            let failed = supervise(jail, program, status, failures).unwrap_or_else(fail);
            let _ = sys::write(STATUS, &Report::Failed(failed).encode());
            sys::exit_now(127)
        }
    }
}

/// Reports what becomes of the program, reaping everything else. Comes back only with a failure.
fn supervise(
    jail: &Prepared,
    program: libc::pid_t,
    status: RawFd,
    failures: RawFd,
) -> Result<Failure, Errno> {
    // Both are above 2 here, so neither is overwritten by the other.
    sys::duplicate_to(status, STATUS, libc::O_CLOEXEC)?;
    sys::duplicate_to(failures, FAILURES, libc::O_CLOEXEC)?;
    sys::close_from(FAILURES + 1)?;
    // The filter knows the program by its number, which in a new pid namespace is 2.
    debug_assert_eq!(program, seccomp::PROGRAM_PID);
    // Blocked signals wait to be taken, even those that the kernel spares a first process.
    sys::block_signals()?;
    sys::install_filter(jail.policies.init_filter.instructions())?;
    let mut record = [0; Report::BYTES];
    if sys::read(FAILURES, &mut record)? > 0 {
        if let Some(Report::Failed(failure)) = Report::decode(record) {
            return Ok(failure);
        }
        return Err(Errno::EBADMSG);
    }
    sys::write(STATUS, &Report::Running.encode())?;
    loop {
        // Before the first wait, too: what has ended by now has sent its signal unseen.
        while let Some((pid, raw)) = sys::reap_any()? {
            if pid == program {
                end(raw);
            }
        }
        match sys::next_signal()? {
            libc::SIGCHLD => {}
            // The program may be gone already, which the next round finds.
            signal => drop(sys::send(program, signal)),
        }
    }
}

/// Ends this process, and so the jail, as the program ended.
fn end(raw: i32) -> ! {
    if libc::WIFSIGNALED(raw) {
        let signal = libc::WTERMSIG(raw);
        let _ = sys::write(STATUS, &Report::Signal(signal).encode());
        sys::exit_now(128 + signal);
    }
    sys::exit_now(libc::WEXITSTATUS(raw))
}
