//! Using more than one's share.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::call::raw_call;
use crate::{files, report};

/// Allocates and writes memory, a MiB at a time, and keeps it.
pub fn touch(mib: u64) -> Value {
    let mut all = Vec::new();
    for _ in 0..mib {
        let mut part: Vec<u8> = Vec::new();
        if part.try_reserve_exact(1 << 20).is_err() {
            break;
        }
        part.resize(1 << 20, 1);
        all.push(part);
    }
    let got = all.len() as u64;
    std::mem::forget(all);
    if got < mib { json!({"errno": libc::ENOMEM, "made": got}) } else { json!({"value": got}) }
}

/// Maps memory that nothing can read or write, as runtimes do that want addresses next to each other.
pub fn reserve(mib: u64) -> Value {
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as u64;
    let (none, nowhere) = (libc::PROT_NONE as u64, u64::MAX);
    let got = raw_call(libc::SYS_mmap as u64, [0, mib << 20, none, flags, nowhere, 0]);
    if (-4095..0).contains(&got) { report::value(got) } else { json!({"value": mib}) }
}

/// Writes shared anonymous memory, a MiB at a time, and gives each page back from this process alone: it
/// stays allocated and is resident nowhere.
#[allow(unsafe_code)]
pub fn hide(mib: u64) -> Value {
    const PART: usize = 1 << 20;
    for made in 0..mib {
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping where the kernel likes it; used within its length, never unmapped.
        unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let part = libc::mmap(std::ptr::null_mut(), PART, access, flags, -1, 0);
            if part == libc::MAP_FAILED {
                return json!({"errno": libc::ENOMEM, "made": made});
            }
            std::ptr::write_bytes(part.cast::<u8>(), 1, PART);
            libc::madvise(part, PART, libc::MADV_DONTNEED);
        }
    }
    json!({"value": mib})
}

/// Uses the processor.
pub fn spin(milliseconds: u64) -> Value {
    let end = Instant::now() + Duration::from_millis(milliseconds);
    let mut rounds = 0_u64;
    while Instant::now() < end {
        rounds += 1;
    }
    json!({"value": rounds})
}

/// Sleeps.
pub fn sleep(milliseconds: u64) -> Value {
    std::thread::sleep(Duration::from_millis(milliseconds));
    report::value(0)
}

/// Writes one line that does not end.
pub fn flood(descriptor: u64, bytes: u64) -> Value {
    let part = vec![b'x'; 65_536];
    let mut left = bytes;
    while left > 0 {
        let size = left.min(part.len() as u64);
        let written = files::write_all(descriptor, &part[..size as usize]);
        if written < 0 {
            return report::value(written);
        }
        left -= size;
    }
    json!({"value": bytes})
}

/// Writes a file, a MiB at a time, of bytes that no file system can compress; how much went in before an
/// error.
pub fn fill(path: &str, mib: u64) -> Value {
    let file = files::open(path, libc::O_WRONLY | libc::O_CREAT | libc::O_CLOEXEC, 0o600);
    if file < 0 {
        return report::value(file);
    }
    let part = noise(1 << 20);
    for made in 0..mib {
        let written = files::write_all(file as u64, &part);
        if written < 0 {
            files::close(file);
            return json!({"errno": -written, "made": made});
        }
    }
    files::close(file);
    json!({"value": mib})
}

fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(bytes).collect()
}

/// Makes empty files; how many before an error.
pub fn files(directory: &str, count: u64) -> Value {
    for made in 0..count {
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
        let file = files::open(&format!("{directory}/{made}"), flags, 0o600);
        if file < 0 {
            return json!({"errno": -file, "made": made});
        }
        files::close(file);
    }
    json!({"value": count})
}
