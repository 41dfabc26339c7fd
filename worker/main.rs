//! The worker's program: see the library.
#![no_main]

mod allocator;

use std::ffi::{CStr, c_char, c_int};

/// The C entry point. Rust's own would first poll the standard streams and set up signal handlers and
/// an alternate stack: a dozen system calls that this program has no use for, before the first act.
#[allow(unsafe_code)]
// SAFETY: no other symbol of this program is named main.
#[unsafe(no_mangle)]
extern "C" fn main(count: c_int, arguments: *const *const c_char) -> c_int {
    let count = usize::try_from(count).unwrap_or_default();
    let arguments: Vec<&[u8]> = (1..count)
        // SAFETY: the C library passes `count` pointers to strings that end with NUL and live as long
        // as the process.
        .map(|index| unsafe { CStr::from_ptr(*arguments.add(index)) }.to_bytes())
        .collect();
    turnjail_worker::run(&arguments)
}
