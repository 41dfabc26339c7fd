//! The allocator: the C library's, but that a failure ends the program with a fixed code.
//!
//! Without this a failed allocation aborts, which as the first process of a namespace looks like any
//! crash; with it the host can tell that the memory limit was reached.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};

use turnjail_protocol::limits::EXIT_OUT_OF_MEMORY;

#[global_allocator]
static ALLOCATOR: OrExit = OrExit;

struct OrExit;

// SAFETY: every call is passed on to the system's allocator as it came; a null pointer is never
// returned, which the trait permits.
unsafe impl GlobalAlloc for OrExit {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of this same method.
        or_exit(unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of this same method.
        or_exit(unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller keeps the contract of this same method, and `pointer` is the system's.
        or_exit(unsafe { System.realloc(pointer, layout, size) })
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of this same method, and `pointer` is the system's.
        unsafe { System.dealloc(pointer, layout) }
    }
}

fn or_exit(pointer: *mut u8) -> *mut u8 {
    if pointer.is_null() {
        turnjail_worker::report_out_of_memory();
        // SAFETY: ends the process without running anything else, which may need memory.
        unsafe { libc::_exit(EXIT_OUT_OF_MEMORY) }
    }
    pointer
}
