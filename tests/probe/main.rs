//! A program that the tests put in the worker's place: it does inside a jail what it is told, by
//! system calls and nothing in between, and reports how that went.
//!
//! # Protocol
//!
//! Each argument is one act, a JSON array: the act's name and its parameters. The acts are done in
//! order. Each writes one line of JSON to standard output before the next begins, so that a death
//! shows how far it came. With `-` as only argument, standard input is a JSON array of acts instead.
//! Exit code 0 after the last act; 2 for an act that is not understood.
//!
//! A line is one of
//! - `{"value": N}`: it worked; what the call returned, and `"buffers": ["00ff..", ...]` when it had some
//! - `{"errno": N}`: the kernel refused
//! - `{"text": ".."}` or `{"list": [..]}`: what was found
//!
//! System calls:
//! - `["call", NUMBER, ARGUMENT...]` makes a system call. An argument is a number; a string (a pointer
//!   to its bytes and a NUL); `{"buffer": N}` (a pointer to N zero bytes, reported afterwards);
//!   `{"hex": ".."}` (a pointer to these bytes, reported afterwards); `[..]` (a pointer to 64 bit words,
//!   each an argument itself); `{"of": K}` (the value of act K, counted from 0); `{"word": [K, B, O]}`
//!   (the 32 bit word at offset O of buffer B of act K)
//! - `["int80", NUMBER, ARGUMENT...]` the same through the 32 bit entry of x86_64, numbers only
//!
//! What is there:
//! - `["arguments"]`, `["environment"]`, `["directory"]` (working directory)
//! - `["read", PATH]`, `["list", PATH]`, `["status", PATH]` (mode, device, inode, owner as `list`)
//! - `["write", PATH, TEXT, MODE?]` makes or replaces a file (mode 0600)
//! - `["descriptors"]` those open from 0 to 4095, as `list` of `[number, mode]`
//! - `["input"]` reads standard input to its end
//! - `["wait", PATH]` opens a FIFO and so sleeps until somebody else opens its other end
//! - `["talk", PATH, TEXT]` connects, sends the text and reads to the end; `["hang", PATH, TEXT]`
//!   leaves the connection open instead
//! - `["times", N, ACT]` does the act N times: the `last` outcome and how many in a row were `equal`
//! - `["connect", PATH]` connects to a Unix stream socket; a leading `@` means an abstract name
//!
//! Processes:
//! - `["child", [ACT...]]` does the acts in a child; `{"list": [lines..., {"exit": N} or {"signal": N}]}`
//! - `["execute", PATH, ARGUMENT...]` in place of the probe; a line only when that fails
//! - `["run", PATH, ARGUMENT...]` in a child; `{"text": its output, "exit": N}`
//! - `["forks", N]` makes children that sleep until one is refused or there are N, then ends them;
//!   `{"value": made}` or `{"errno": .., "made": ..}`
//! - `["orphan", MILLISECONDS]` leaves a grandchild that ignores signals and sleeps; `["survivor",
//!   [ACT...]]` one that does the acts and keeps the streams
//! - `["chain", N]` makes a child that makes a child, each by vfork's flag, until one is refused or there
//!   are N; the last one reports. `["zombies", N]` makes children that end and are not waited for,
//!   `["threads", N]` threads that sleep; each `{"value": made}` or `{"errno": .., "made": ..}`
//!
//! Misbehaviour:
//! - `["touch", MIB]` allocates and writes memory, `["hide", MIB]` shared memory that is resident nowhere,
//!   `["spin", MILLISECONDS]` uses the processor,
//!   `["sleep", MILLISECONDS]`, `["flood", DESCRIPTOR, BYTES]` writes a line without an end,
//!   `["fill", PATH, MIB]` writes a file, `["files", DIRECTORY, N]` makes empty files,
//!   `["print", TEXT]` writes to standard output as it is, `["exit", CODE]`, `["crash"]` is a fault,
//!   `["abort"]` is abort(3)
//! - `["ignore"]` ignores every signal that can be, `["relay", MILLISECONDS]` uses the processor in one
//!   short-lived child after another, `["echo"]` copies standard input to standard output,
//!   `["reserve", MIB]` maps memory that nothing can touch

#![no_main]

mod acts;
mod call;
mod files;
mod misbehave;
mod process;
mod report;

use std::ffi::{CStr, c_char, c_int};

use serde_json::Value;

/// The C entry point. Rust's own makes calls at start that the sealed profile has no use for; the
/// worker does without it too.
#[allow(unsafe_code)]
// SAFETY: no other symbol of this program is named main.
#[unsafe(no_mangle)]
extern "C" fn main(count: c_int, arguments: *const *const c_char) -> c_int {
    let count = usize::try_from(count).unwrap_or_default();
    let arguments: Vec<String> = (0..count)
        // SAFETY: the C library passes `count` pointers to strings that end with NUL and live as long
        // as the process.
        .map(|index| unsafe { CStr::from_ptr(*arguments.add(index)) })
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    let told = arguments.get(1..).unwrap_or_default();
    let acts: Option<Vec<Value>> = if told == ["-"] {
        serde_json::from_slice(&files::input()).ok()
    } else {
        told.iter().map(|text| serde_json::from_str(text).ok()).collect()
    };
    let done = acts.and_then(|acts| acts::perform(&acts, &arguments, &mut report::to_stdout));
    if done.is_some() { 0 } else { 2 }
}
