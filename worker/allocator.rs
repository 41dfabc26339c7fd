//! The allocator: quick to start, for one thread, and with a fixed exit code when memory runs out.
//!
//! The C library's own would ask the system for pages a few at a time, with a fault for each: most of
//! what a short turn costs. This one asks once, for pages that are there already. And a failed
//! allocation ends the program with a code by which the host can tell that the memory limit was
//! reached; an abort would look like any crash.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::ptr::null_mut;

use dlmalloc::Dlmalloc;
use turnjail_protocol::limits::EXIT_OUT_OF_MEMORY;

/// What the system is asked for at a time, unless more is needed: half of what an ordinary turn takes.
const CHUNK: usize = 32 * 1024;

#[global_allocator]
static ALLOCATOR: OneThread = OneThread(UnsafeCell::new(EMPTY));

const EMPTY: Dlmalloc<Pages> = {
    let mut empty = Dlmalloc::new_with_allocator(Pages);
    assert!(empty.set_granularity(CHUNK));
    empty
};

struct OneThread(UnsafeCell<Dlmalloc<Pages>>);

// SAFETY: this program never makes a second thread; in a sealed jail it could not.
unsafe impl Sync for OneThread {}

// SAFETY: every call is passed on to one dlmalloc with the same sizes and alignments, and no pointer is
// null.
unsafe impl GlobalAlloc for OneThread {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: one thread, and dlmalloc does not call back, so there is no other reference; the
        // caller keeps the contract of this same method.
        or_exit(unsafe { (*self.0.get()).malloc(layout.size(), layout.align()) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as for `alloc`.
        or_exit(unsafe { (*self.0.get()).calloc(layout.size(), layout.align()) })
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as for `alloc`; `pointer` is of this allocator and has this layout.
        or_exit(unsafe { (*self.0.get()).realloc(pointer, layout.size(), layout.align(), size) })
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as for `realloc`.
        unsafe { (*self.0.get()).free(pointer, layout.size(), layout.align()) }
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

/// Pages from the system.
struct Pages;

// SAFETY: `alloc` gives fresh zeroed pages or null, and nothing else is done with them.
unsafe impl dlmalloc::Allocator for Pages {
    fn alloc(&self, size: usize) -> (*mut u8, usize, u32) {
        // A small chunk is sure to be used, so its pages come without faults.
        let populate = if size <= CHUNK { libc::MAP_POPULATE } else { 0 };
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | populate;
        // SAFETY: a new anonymous mapping touches nothing that exists.
        let pages = unsafe { libc::mmap(null_mut(), size, protection, flags, -1, 0) };
        if pages == libc::MAP_FAILED { (null_mut(), 0, 0) } else { (pages.cast(), size, 0) }
    }

    fn remap(&self, _: *mut u8, _: usize, _: usize, _: bool) -> *mut u8 {
        null_mut()
    }

    /// A worker lives for one turn and uses its pages again: it gives none back.
    fn free_part(&self, _: *mut u8, _: usize, _: usize) -> bool {
        false
    }

    fn free(&self, _: *mut u8, _: usize) -> bool {
        false
    }

    fn can_release_part(&self, _: u32) -> bool {
        false
    }

    fn allocates_zeros(&self) -> bool {
        true
    }

    fn page_size(&self) -> usize {
        // Of no account: chunks are a multiple of every page size, and no part of one is given back.
        4096
    }
}
