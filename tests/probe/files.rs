//! Looking at and writing files and streams.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString};

use serde_json::{Value, json};

use crate::call::raw_call;
use crate::report;

/// Everything on standard input.
pub fn input() -> Vec<u8> {
    let mut all = Vec::new();
    let mut part = [0_u8; 4096];
    loop {
        let got = raw(libc::SYS_read, [0, part.as_mut_ptr() as u64, part.len() as u64, 0]);
        match usize::try_from(got) {
            Ok(got) if got > 0 => all.extend_from_slice(&part[..got]),
            _ => return all,
        }
    }
}

/// Writes everything; the number of bytes, or the negative error number.
pub fn write_all(descriptor: u64, bytes: &[u8]) -> i64 {
    let mut rest = bytes;
    while !rest.is_empty() {
        let arguments = [descriptor, rest.as_ptr() as u64, rest.len() as u64, 0];
        match usize::try_from(raw(libc::SYS_write, arguments)) {
            Ok(written) => rest = &rest[written..],
            Err(_) => return raw(libc::SYS_write, arguments),
        }
    }
    bytes.len() as i64
}

/// Opens by `openat`, the one call that every machine has.
pub fn open(path: &str, flags: i32, mode: u64) -> i64 {
    let path = c_string(path);
    raw(libc::SYS_openat, [libc::AT_FDCWD as u64, path.as_ptr() as u64, flags as u64, mode])
}

pub fn close(descriptor: i64) {
    raw(libc::SYS_close, [descriptor as u64, 0, 0, 0]);
}

pub fn read(path: &str) -> Value {
    let file = open(path, libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK, 0);
    if file < 0 {
        return report::value(file);
    }
    let mut all = Vec::new();
    let mut part = [0_u8; 4096];
    let failure = loop {
        let place = part.as_mut_ptr() as u64;
        match raw(libc::SYS_read, [file as u64, place, part.len() as u64, 0]) {
            0 => break None,
            error @ ..0 => break Some(error),
            got => all.extend_from_slice(&part[..got as usize]),
        }
        if all.len() > 1 << 20 {
            break None;
        }
    };
    close(file);
    failure.map_or_else(|| report::text(&all), report::value)
}

pub fn list(path: &str) -> Value {
    let directory = open(path, libc::O_RDONLY | libc::O_CLOEXEC | libc::O_DIRECTORY, 0);
    if directory < 0 {
        return report::value(directory);
    }
    let mut names = Vec::new();
    let mut part = [0_u8; 4096];
    loop {
        let arguments = [directory as u64, part.as_mut_ptr() as u64, part.len() as u64, 0];
        let got = raw(libc::SYS_getdents64, arguments);
        if got <= 0 {
            close(directory);
            names.sort();
            return if got < 0 { report::value(got) } else { json!({"list": names}) };
        }
        // A record is inode (8), offset (8), length (2), type (1), name.
        let mut records = &part[..got as usize];
        while let [.., _] = records {
            let length = usize::from(u16::from_le_bytes([records[16], records[17]]));
            let name = CStr::from_bytes_until_nul(&records[19..length]).unwrap_or_default();
            if name != c"." && name != c".." {
                names.push(name.to_string_lossy().into_owned());
            }
            records = &records[length..];
        }
    }
}

/// Mode, device, inode, owner, group, size, device number.
pub fn status(path: &str) -> Value {
    let path = c_string(path);
    // SAFETY: all zeroes is a stat, which the call fills.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    let (at, flags) = (libc::AT_FDCWD as u64, libc::AT_SYMLINK_NOFOLLOW as u64);
    let place = &raw mut status as u64;
    let result = raw(libc::SYS_newfstatat, [at, path.as_ptr() as u64, place, flags]);
    if result != 0 {
        return report::value(result);
    }
    let (device, inode) = (status.st_dev, status.st_ino);
    json!({"list": [status.st_mode, device, inode, status.st_uid, status.st_gid, status.st_size, status.st_rdev]})
}

pub fn write(path: &str, text: &str, mode: u64) -> Value {
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_CLOEXEC | libc::O_NONBLOCK;
    let file = open(path, flags, mode);
    if file < 0 {
        return report::value(file);
    }
    let written = write_all(file as u64, text.as_bytes());
    close(file);
    report::value(written)
}

/// The open ones, each with the mode of what it is.
pub fn descriptors() -> Value {
    let mut open = Vec::new();
    for descriptor in 0..4096 {
        // SAFETY: all zeroes is a stat, which the call fills.
        let mut status: libc::stat = unsafe { std::mem::zeroed() };
        let result = raw(libc::SYS_fstat, [descriptor, &raw mut status as u64, 0, 0]);
        if result == 0 {
            open.push(json!([descriptor, status.st_mode]));
        }
    }
    json!({"list": open})
}

pub fn working_directory() -> Value {
    let mut place = [0_u8; 4096];
    let got = raw(libc::SYS_getcwd, [place.as_mut_ptr() as u64, place.len() as u64, 0, 0]);
    if got <= 0 {
        return report::value(got);
    }
    report::text(&place[..got as usize - 1])
}

/// Opens the reading end of a FIFO.
pub fn wait(path: &str) -> Value {
    report::value(open(path, libc::O_RDONLY | libc::O_CLOEXEC, 0))
}

pub fn connect(path: &str) -> Value {
    match open_connection(path) {
        Err(error) => report::value(error),
        Ok(socket) => {
            close(socket);
            report::value(0)
        }
    }
}

fn open_connection(path: &str) -> Result<i64, i64> {
    let kind = (libc::SOCK_STREAM | libc::SOCK_CLOEXEC) as u64;
    let socket = raw(libc::SYS_socket, [libc::AF_UNIX as u64, kind, 0, 0]);
    if socket < 0 {
        return Err(socket);
    }
    let mut address = (libc::AF_UNIX as u16).to_le_bytes().to_vec();
    match path.strip_prefix('@') {
        Some(name) => address.extend([0].iter().chain(name.as_bytes())),
        None => address.extend(path.bytes().chain([0])),
    }
    let length = address.len() as u64;
    let result = raw(libc::SYS_connect, [socket as u64, address.as_ptr() as u64, length, 0]);
    if result < 0 {
        close(socket);
        return Err(result);
    }
    Ok(socket)
}

/// Connects to a Unix stream socket, sends text as it is, and reads what comes to the end.
pub fn talk(path: &str, text: &str) -> Value {
    let socket = match open_connection(path).and_then(|socket| send(socket, text)) {
        Ok(socket) => socket,
        Err(error) => return report::value(error),
    };
    let (mut answer, mut part) = (Vec::new(), vec![0; 65_536]);
    loop {
        let call = [socket as u64, part.as_mut_ptr() as u64, part.len() as u64, 0];
        match raw(libc::SYS_read, call) {
            got @ 1.. => answer.extend_from_slice(&part[..got as usize]),
            _ => break,
        }
    }
    close(socket);
    json!({ "text": String::from_utf8_lossy(&answer) })
}

/// Connects, sends text, and leaves the connection open.
pub fn hang(path: &str, text: &str) -> Value {
    let sent = open_connection(path).and_then(|socket| send(socket, text));
    report::value(sent.unwrap_or_else(|error| error))
}

fn send(socket: i64, text: &str) -> Result<i64, i64> {
    let (bytes, quiet) = (text.as_bytes(), libc::MSG_NOSIGNAL as u64);
    let call = [socket as u64, bytes.as_ptr() as u64, bytes.len() as u64, quiet, 0, 0];
    let sent = raw_call(libc::SYS_sendto as u64, call);
    if sent < 0 { Err(sent) } else { Ok(socket) }
}

pub fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "?")).unwrap_or_default()
}

fn raw(number: libc::c_long, [a, b, c, d]: [u64; 4]) -> i64 {
    raw_call(number as u64, [a, b, c, d, 0, 0])
}
