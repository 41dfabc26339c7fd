//! Whether standard output was open when the program was started. That can be asked only before Rust's
//! runtime starts: it opens /dev/null where a standard stream is closed, and what is written is lost.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};

use nix::libc;

static STDOUT_CLOSED: AtomicBool = AtomicBool::new(false);

/// Called by the loader before `main`.
#[used]
// SAFETY: the loader calls every function of this section once, with the C library ready; this one takes
// nothing from its arguments and allocates nothing.
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    // SAFETY: F_GETFD takes no further argument and touches no memory.
    if unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) } == -1 {
        STDOUT_CLOSED.store(true, Ordering::Relaxed);
    }
}

/// Whether nothing that is written to standard output can reach anybody.
pub fn stdout_was_closed() -> bool {
    STDOUT_CLOSED.load(Ordering::Relaxed)
}
