//! Every system call that the worker makes, behind one thin function each.
//!
//! The tight seccomp profile is made from [`SYSTEM_CALLS`]: in a jail a call that is not there kills.
#![allow(unsafe_code)]

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::buffer::spare_capacity;
use rustix::fs::{AtFlags, Mode, OFlags, RawDir, Stat};
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::rand::GetRandomFlags;
use rustix::{fs, io, net, rand};

pub use rustix::fs::FileType;
pub use rustix::io::Errno;

/// The system calls of the worker: those made here, then those of the C library around it (start,
/// memory, time, end). No threads, signals, processes, terminals, no position in a file.
pub const SYSTEM_CALLS: &[&str] = &[
    // Here.
    "prctl",      // PR_SET_DUMPABLE, 0
    "read",       // standard input, files, the broker's socket
    "write",      // standard output and error, staged files
    "openat",     // always O_CLOEXEC; O_NOFOLLOW but for the places of the command line
    "newfstatat", // AT_SYMLINK_NOFOLLOW
    "fstat",
    "getdents64",
    "mkdirat",  // mode 0700
    "unlinkat", // flags 0 or AT_REMOVEDIR
    "renameat",
    "fsync",
    "close",
    "getrandom", // names of staged files; seeds of hash tables
    "socket",    // AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0
    "connect",
    "sendto",        // MSG_NOSIGNAL, no address
    "clock_gettime", // CLOCK_REALTIME
    "mmap",          // the allocator: private and anonymous, never executable
    // The C library.
    "execve",     // once, by what starts it
    "arch_prctl", // ARCH_SET_FS, x86_64
    "set_tid_address",
    "set_robust_list", // glibc
    "rseq",            // glibc
    "prlimit64",       // glibc: RLIMIT_STACK, read only
    "readlink",        // glibc: /proc/self/exe, which need not exist
    "readlinkat",      // the same on aarch64
    "mprotect",        // glibc: PROT_READ
    "brk",             // glibc
    "exit_group",
];

/// Bytes read at a time.
const CHUNK: usize = 8 * 1024;

/// Why reading to the end failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadError {
    /// There is more than the limit.
    TooLarge,
    /// The system's answer.
    Errno(Errno),
}

impl From<Errno> for ReadError {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

/// Keeps the process's memory out of core dumps and from others of its user.
pub fn forbid_dumps() -> Result<(), Errno> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
}

/// Standard input.
pub fn stdin() -> BorrowedFd<'static> {
    // SAFETY: the program is given its three standard streams and never closes them.
    unsafe { BorrowedFd::borrow_raw(0) }
}

/// Standard output.
pub fn stdout() -> BorrowedFd<'static> {
    // SAFETY: as for standard input.
    unsafe { BorrowedFd::borrow_raw(1) }
}

/// Standard error.
pub fn stderr() -> BorrowedFd<'static> {
    // SAFETY: as for standard input.
    unsafe { BorrowedFd::borrow_raw(2) }
}

/// Appends what one `read` gives; 0 at the end.
pub fn read_some(from: BorrowedFd<'_>, into: &mut Vec<u8>) -> Result<usize, Errno> {
    if into.capacity() == into.len() {
        into.reserve(CHUNK);
    }
    retry(|| io::read(from, spare_capacity(into)))
}

/// Reads to the end; more than `limit` bytes are an error.
pub fn read_to_end(from: BorrowedFd<'_>, limit: usize) -> Result<Vec<u8>, ReadError> {
    let mut bytes = Vec::new();
    while read_some(from, &mut bytes)? > 0 {
        if bytes.len() > limit {
            return Err(ReadError::TooLarge);
        }
    }
    Ok(bytes)
}

/// Writes all.
pub fn write_all(to: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match retry(|| io::write(to, bytes))? {
            0 => return Err(Errno::IO),
            written => bytes = &bytes[written..],
        }
    }
    Ok(())
}

/// Opens a directory by the path that the command line gave.
pub fn open_place(path: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    retry(|| fs::openat(fs::CWD, path, flags, Mode::empty()))
}

/// Opens a directory in another one, following nothing.
pub fn open_dir(dir: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    retry(|| fs::openat(dir, name, flags, Mode::empty()))
}

/// Opens a file for reading, following nothing and waiting for nothing.
pub fn open_file(dir: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    retry(|| fs::openat(dir, name, flags, Mode::empty()))
}

/// Makes a new file, readable and writable for the owner alone.
pub fn create_file(dir: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    retry(|| fs::openat(dir, name, flags, Mode::RUSR | Mode::WUSR))
}

/// What stands under a name, without following it.
pub fn stat(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Kind, Errno> {
    fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map(|stat| Kind::of(&stat))
}

/// What an open descriptor is.
pub fn stat_open(file: BorrowedFd<'_>) -> Result<Kind, Errno> {
    fs::fstat(file).map(|stat| Kind::of(&stat))
}

/// What something in a file system is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file of so many bytes.
    File(u64),
    /// A directory.
    Directory,
    /// A link, pipe, socket or device: never opened.
    Other,
}

impl Kind {
    fn of(stat: &Stat) -> Self {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Self::File(u64::try_from(stat.st_size).unwrap_or_default()),
            FileType::Directory => Self::Directory,
            _ => Self::Other,
        }
    }
}

/// Calls `each` with every name in a directory, in the file system's order.
pub fn list(dir: BorrowedFd<'_>, mut each: impl FnMut(&[u8])) -> Result<(), Errno> {
    let mut buffer = Vec::with_capacity(CHUNK);
    let mut entries = RawDir::new(dir, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        match entry {
            Ok(entry) => match entry.file_name().to_bytes() {
                b"." | b".." => {}
                name => each(name),
            },
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Makes a directory for the owner alone.
pub fn make_dir(dir: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
    fs::mkdirat(dir, name, Mode::RWXU)
}

/// Removes a name that is not a directory's.
pub fn unlink(dir: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
    fs::unlinkat(dir, name, AtFlags::empty())
}

/// Removes an empty directory.
pub fn remove_dir(dir: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
    fs::unlinkat(dir, name, AtFlags::REMOVEDIR)
}

/// Lets the owner into a directory again, whatever its mode was. It follows a link, so only what was just
/// seen to be a directory is named, where nobody else runs.
pub fn let_owner_in(dir: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
    fs::chmodat(dir, name, Mode::RWXU, AtFlags::empty())
}

/// The same for a place of the jail.
pub fn let_owner_into_place(path: &[u8]) -> Result<(), Errno> {
    fs::chmodat(fs::CWD, path, Mode::RWXU, AtFlags::empty())
}

/// Gives something another name, replacing what had it.
pub fn rename(
    from: BorrowedFd<'_>,
    name: &[u8],
    to: BorrowedFd<'_>,
    new_name: &[u8],
) -> Result<(), Errno> {
    fs::renameat(from, name, to, new_name)
}

/// Waits until a file's content is on disk.
pub fn sync(file: BorrowedFd<'_>) -> Result<(), Errno> {
    retry(|| fs::fsync(file))
}

/// Waits until a directory's names are on disk, where its file system can tell.
pub fn sync_dir(dir: BorrowedFd<'_>) -> Result<(), Errno> {
    match sync(dir) {
        // Some network and user space file systems have nothing to sync there.
        Err(Errno::INVAL) => Ok(()),
        synced => synced,
    }
}

/// Random bytes for a name.
pub fn random() -> Result<[u8; 8], Errno> {
    let mut bytes = [0; 8];
    let read = retry(|| rand::getrandom(&mut bytes, GetRandomFlags::empty()))?;
    if read == bytes.len() { Ok(bytes) } else { Err(Errno::IO) }
}

/// Seconds and nanoseconds since 1970. Once in a turn, so that finding the kernel's page with the
/// quicker way would cost more than the call.
pub fn now() -> Result<(i64, i32), Errno> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one timespec to the pointer, which is valid for that.
    let failed =
        unsafe { libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_REALTIME, &raw mut time) };
    if failed != 0 {
        return Err(Errno::NOSYS);
    }
    Ok((time.tv_sec, i32::try_from(time.tv_nsec).unwrap_or_default()))
}

/// Connects to a Unix socket.
pub fn connect(path: &[u8]) -> Result<OwnedFd, Errno> {
    let socket =
        net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let address = SocketAddrUnix::new(path)?;
    retry(|| net::connect(&socket, &address))?;
    Ok(socket)
}

/// Sends all. A closed connection is an error, never a signal.
pub fn send_all(socket: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match retry(|| net::send(socket, bytes, SendFlags::NOSIGNAL))? {
            0 => return Err(Errno::IO),
            sent => bytes = &bytes[sent..],
        }
    }
    Ok(())
}

fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            answer => return answer,
        }
    }
}
