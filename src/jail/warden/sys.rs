//! One thin function per system call that no crate wraps. Nothing here decides anything.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use libc::{c_char, c_int, c_long, c_uint, c_ulong};
use nix::errno::Errno;

use crate::seccomp::Instruction;

mod attempt;
mod descriptors;
mod init;
mod landlock;
mod presence;

pub use attempt::attempt;
pub use descriptors::{bound_descriptors, close_from, has_close_range};
pub use init::{block_signals, fork, next_signal, reap_any, send};
pub use landlock::{
    RulesetAttributes, landlock_abi, landlock_create, landlock_enforce, landlock_grant,
};
pub use presence::{has_clone3, has_move_mount, has_openat2};

type Result<T> = std::result::Result<T, Errno>;

/// PR_SET_MDWE, Linux 6.3 (include/uapi/linux/prctl.h).
const PR_SET_MDWE: c_int = 65;
const PR_GET_MDWE: c_int = 66;
const PR_MDWE_REFUSE_EXEC_GAIN: c_ulong = 1;

/// Larger than the type that the libc crate gives the other flags (include/uapi/linux/sched.h).
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// What clone3 gives back.
pub enum Cloned {
    /// In the parent: a pidfd of the child.
    Parent(OwnedFd),
    /// In the child.
    Child,
}

fn check(result: c_long) -> Result<c_long> {
    if result == -1 { Err(Errno::last()) } else { Ok(result) }
}

fn new_fd(result: c_long) -> Result<OwnedFd> {
    let fd = check(result)? as RawFd;
    // SAFETY: the kernel has just returned this descriptor as new, so nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// clone3(2) without shared memory or files: like fork, into new namespaces, with a pidfd, and into a
/// cgroup (v2) when the descriptor of its directory is given (Linux 5.7).
///
/// The caller has one thread (asserted in debug builds), so the child may do whatever the parent may.
pub fn clone3(namespaces: u64, cgroup: Option<BorrowedFd>) -> Result<Cloned> {
    debug_assert_eq!(threads(), 1, "clone3 in a threaded process");
    let mut pidfd: c_int = -1;
    // SAFETY: all-zero is a valid clone_args; the kernel reads fields that are zero as unset.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = namespaces | libc::CLONE_PIDFD as u64;
    args.pidfd = std::ptr::from_mut(&mut pidfd) as u64;
    args.exit_signal = libc::SIGCHLD as u64;
    if let Some(cgroup) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = cgroup.as_raw_fd() as u64;
    }
    // SAFETY: `args` lives across the call and its size is given. Without CLONE_VM the child has its own
    // copy of this memory, and with one thread no lock can be held by somebody who is not copied.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size_of_val(&args)) };
    let pid = match check(pid) {
        // An outer filter cannot look at the argument, so many refuse the call.
        Err(Errno::ENOSYS | Errno::EPERM) if cgroup.is_some() => return Err(Errno::ENOSYS),
        Err(Errno::ENOSYS | Errno::EPERM) => clone(namespaces, &mut pidfd)?,
        other => other?,
    };
    match pid {
        0 => Ok(Cloned::Child),
        _ => new_fd(c_long::from(pidfd)).map(Cloned::Parent),
    }
}

/// clone(2) to the same effect, without a cgroup.
fn clone(namespaces: u64, pidfd: &mut c_int) -> Result<c_long> {
    let flags = namespaces | libc::CLONE_PIDFD as u64 | libc::SIGCHLD as u64;
    let none = std::ptr::null_mut::<c_int>();
    // SAFETY: without a stack of its own and without CLONE_VM this is a fork, as with clone3. The kernel
    // writes the pidfd to the live integer; no other pointer is used. The order of the last two, which are
    // null, differs between the machines.
    check(unsafe {
        libc::syscall(libc::SYS_clone, flags, none, std::ptr::from_mut(pidfd), none, none)
    })
}

/// Raises `lo` in this process's network namespace, in which it holds every capability.
pub fn raise_loopback() -> Result<()> {
    let (domain, kind) = (libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC);
    // SAFETY: takes integers only.
    let socket = new_fd(c_long::from(unsafe { libc::socket(domain, kind, 0) }))?;
    // SAFETY: all-zero is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, &from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = from as c_char;
    }
    request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
    let (number, flags) = (libc::SYS_ioctl, libc::SIOCSIFFLAGS);
    // SAFETY: the request is a live ifreq, whose name ends with zeros.
    check(unsafe { libc::syscall(number, socket.as_raw_fd(), flags, &raw const request) }).map(drop)
}

/// CLOCK_MONOTONIC in nanoseconds.
pub fn monotonic() -> u64 {
    // SAFETY: all-zero is a valid timespec.
    let mut now: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes the live timespec; this clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// PR_SET_DUMPABLE 0: nobody of the same user may look into this process.
pub fn not_dumpable() -> Result<()> {
    prctl(libc::PR_SET_DUMPABLE, [0; 4]).map(drop)
}

/// read(2).
pub fn read(fd: RawFd, bytes: &mut [u8]) -> Result<usize> {
    // SAFETY: pointer and length are of one live slice, which the kernel writes.
    let got = unsafe { libc::read(fd, bytes.as_mut_ptr().cast(), bytes.len()) };
    check(got as c_long).map(|got| got as usize)
}

/// getdents64(2): the next records of a directory, and how many bytes they are; 0 at its end.
pub fn list(dir: BorrowedFd, records: &mut [u8]) -> Result<usize> {
    let (number, fd) = (libc::SYS_getdents64, dir.as_raw_fd());
    // SAFETY: pointer and length are of one live slice, which the kernel writes.
    let got = unsafe { libc::syscall(number, fd, records.as_mut_ptr(), records.len()) };
    check(got).map(|got| got as usize)
}

/// openat(2) of an existing file.
pub fn open_at(dir: RawFd, name: &CStr, flags: c_int) -> Result<RawFd> {
    // SAFETY: the name is a valid C string.
    check(c_long::from(unsafe { libc::openat(dir, name.as_ptr(), flags) })).map(|fd| fd as RawFd)
}

/// newfstatat(2): device and inode of what stands at `path`, be it a link.
pub fn identity(path: &CStr) -> Result<(libc::dev_t, libc::ino_t)> {
    // SAFETY: all-zero is a valid stat.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    let (number, flags) = (libc::SYS_newfstatat, libc::AT_SYMLINK_NOFOLLOW);
    // Raw: a C library may make lstat(2) of it, which the filter of a worker does not know.
    // SAFETY: the path is a valid C string, and the kernel writes its struct stat, which is libc's on both
    // machines, to a live one.
    let result =
        unsafe { libc::syscall(number, libc::AT_FDCWD, path.as_ptr(), &raw mut found, flags) };
    check(result).map(|_| (found.st_dev, found.st_ino))
}

/// pipe2(2), closed at exec.
pub fn pipe() -> Result<[RawFd; 2]> {
    let mut ends = [0; 2];
    // SAFETY: the kernel writes two descriptors into the live array.
    check(c_long::from(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })).map(|_| ends)
}

/// How many threads this process has; 1 where /proc is not readable.
fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count)
}

/// open_tree(2): a detached, recursive copy of the mount that `dir` is on, rooted at `dir`.
pub fn copy_tree(dir: BorrowedFd) -> Result<OwnedFd> {
    let flags = libc::OPEN_TREE_CLONE
        | libc::OPEN_TREE_CLOEXEC
        | libc::AT_EMPTY_PATH as c_uint
        | libc::AT_RECURSIVE as c_uint;
    // SAFETY: the path is a valid C string, empty, so that the descriptor itself is meant.
    new_fd(unsafe { libc::syscall(libc::SYS_open_tree, dir.as_raw_fd(), c"".as_ptr(), flags) })
}

/// mount_setattr(2): sets `flags` (MOUNT_ATTR_*) and private propagation on every mount of a tree.
pub fn restrict_tree(tree: BorrowedFd, flags: u64) -> Result<()> {
    let attributes = libc::mount_attr {
        attr_set: flags,
        attr_clr: 0,
        propagation: libc::MS_PRIVATE,
        userns_fd: 0,
    };
    let at = libc::AT_EMPTY_PATH | libc::AT_RECURSIVE;
    // SAFETY: the path is a valid C string and `attributes` lives across the call, its size given.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            at,
            &raw const attributes,
            size_of_val(&attributes),
        )
    };
    check(result).map(drop)
}

/// move_mount(2): attaches a detached tree at `target`, without following a symbolic link there.
pub fn attach_tree(tree: BorrowedFd, target: &CStr) -> Result<()> {
    const MOVE_MOUNT_F_EMPTY_PATH: c_uint = 4;
    // SAFETY: both paths are valid C strings.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_FDCWD,
            target.as_ptr(),
            MOVE_MOUNT_F_EMPTY_PATH,
        )
    };
    check(result).map(drop)
}

/// dup3(2) onto a fixed number that this process does not use otherwise.
pub fn duplicate_to(from: RawFd, to: RawFd, flags: c_int) -> Result<()> {
    // Raw: without flags a C library may make another call of it, which a filter does not expect.
    // SAFETY: touches no memory; `to` is a standard stream or a number that nothing owns.
    check(unsafe { libc::syscall(libc::SYS_dup3, from, to, flags) }).map(drop)
}

/// F_DUPFD_CLOEXEC: a copy with the lowest free number from `lowest` on.
pub fn duplicate_above(fd: RawFd, lowest: RawFd) -> Result<RawFd> {
    // SAFETY: touches no memory.
    let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, lowest) };
    check(c_long::from(copy)).map(|copy| copy as RawFd)
}

/// waitid(2) on a pidfd, reaping the child, with its resource use.
pub fn reap(pidfd: BorrowedFd) -> Result<(libc::siginfo_t, libc::rusage)> {
    // SAFETY: all-zero is a valid siginfo_t and a valid rusage.
    let (mut info, mut usage): (libc::siginfo_t, libc::rusage) = unsafe { std::mem::zeroed() };
    // SAFETY: both out-pointers are to live values of the types that the call writes.
    let result = unsafe {
        libc::syscall(
            libc::SYS_waitid,
            libc::P_PIDFD,
            pidfd.as_raw_fd(),
            &raw mut info,
            libc::WEXITED,
            &raw mut usage,
        )
    };
    check(result).map(|_| (info, usage))
}

/// Whether the child of a pidfd has ended; it is not reaped.
pub fn has_ended(pidfd: BorrowedFd) -> bool {
    // SAFETY: all-zero is a valid siginfo_t, whose pid stays 0 where nothing is to be told.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: the out-pointer is to a live value of the type that the call writes.
    let told =
        unsafe { libc::waitid(libc::P_PIDFD, pidfd.as_raw_fd() as u32, &raw mut info, flags) };
    // SAFETY: waitid fills the child's fields of the union, or leaves the zeros.
    told != 0 || unsafe { info.si_pid() } != 0
}

/// pidfd_send_signal(2) of SIGKILL.
pub fn kill(pidfd: BorrowedFd) -> Result<()> {
    let (number, none) = (libc::SYS_pidfd_send_signal, std::ptr::null::<libc::siginfo_t>());
    // SAFETY: no siginfo is given; nothing else points to memory.
    check(unsafe { libc::syscall(number, pidfd.as_raw_fd(), libc::SIGKILL, none, 0) }).map(drop)
}

/// The exit code or signal in what [`reap`] gave.
pub fn exit_status(info: &libc::siginfo_t) -> c_int {
    // SAFETY: waitid fills the child's fields of the union, which is what this reads.
    unsafe { info.si_status() }
}

fn prctl(option: c_int, args: [c_ulong; 4]) -> Result<c_int> {
    // SAFETY: the options used below take integers only, no pointer.
    let result = unsafe { libc::prctl(option, args[0], args[1], args[2], args[3]) };
    check(c_long::from(result)).map(|value| value as c_int)
}

/// PR_CAPBSET_READ: whether the bounding set has `capability`; EINVAL past the last one.
pub fn bounding_set_has(capability: u32) -> Result<bool> {
    prctl(libc::PR_CAPBSET_READ, [c_ulong::from(capability), 0, 0, 0]).map(|held| held == 1)
}

/// PR_CAPBSET_DROP.
pub fn drop_from_bounding_set(capability: u32) -> Result<()> {
    prctl(libc::PR_CAPBSET_DROP, [c_ulong::from(capability), 0, 0, 0]).map(drop)
}

/// PR_SET_SECUREBITS.
pub fn set_secure_bits(bits: u32) -> Result<()> {
    prctl(libc::PR_SET_SECUREBITS, [c_ulong::from(bits), 0, 0, 0]).map(drop)
}

/// PR_CAP_AMBIENT_CLEAR_ALL.
pub fn clear_ambient_set() -> Result<()> {
    prctl(libc::PR_CAP_AMBIENT, [libc::PR_CAP_AMBIENT_CLEAR_ALL as c_ulong, 0, 0, 0]).map(drop)
}

/// capset(2) of empty effective, permitted and inheritable sets.
pub fn drop_capabilities() -> Result<()> {
    #[repr(C)]
    struct Header {
        version: u32,
        pid: c_int,
    }
    const VERSION_3: u32 = 0x2008_0522;
    let header = Header { version: VERSION_3, pid: 0 };
    let empty = [0_u32; 6];
    // SAFETY: version 3 reads a header and two structs of three words each; both live across the call.
    check(unsafe { libc::syscall(libc::SYS_capset, &raw const header, empty.as_ptr()) }).map(drop)
}

/// PR_SET_MDWE: memory that is writable never becomes executable. Survives execve.
pub fn deny_executable_memory() -> Result<()> {
    prctl(PR_SET_MDWE, [PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0]).map(drop)
}

/// Whether the kernel knows PR_SET_MDWE.
pub fn can_deny_executable_memory() -> bool {
    prctl(PR_GET_MDWE, [0, 0, 0, 0]).is_ok()
}

/// Lowers the soft and the hard value of a resource limit, by its number; one that is lower stays.
pub fn lower_limit(resource: u32, value: u64) -> Result<()> {
    let set = |value| {
        let limit = libc::rlimit64 { rlim_cur: value, rlim_max: value };
        let none = std::ptr::null_mut::<libc::rlimit64>();
        // SAFETY: `limit` lives across the call; no old value is asked for.
        let result =
            unsafe { libc::syscall(libc::SYS_prlimit64, 0, resource, &raw const limit, none) };
        check(result).map(drop)
    };
    // The hard value can only be lowered.
    match set(value) {
        Err(Errno::EPERM) => {}
        other => return other,
    }
    let mut old = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    let none = std::ptr::null::<libc::rlimit64>();
    // SAFETY: the kernel writes the old value to a live struct and is given no new one.
    check(unsafe { libc::syscall(libc::SYS_prlimit64, 0, resource, none, &raw mut old) })?;
    set(value.min(old.rlim_max))
}

/// Raises the nice value of this process; one that is higher stays.
pub fn raise_nice(value: c_int) -> Result<()> {
    // SAFETY: takes integers only. The raw call answers 20 minus the nice value, so never -1 but for an
    // error.
    let priority = check(unsafe { libc::syscall(libc::SYS_getpriority, 0, 0) })? as c_int;
    let value = value.max(20 - priority);
    // SAFETY: takes integers only. The raw call's first argument is PRIO_PROCESS, 0.
    check(unsafe { libc::syscall(libc::SYS_setpriority, 0, 0, value) }).map(drop)
}

/// seccomp(2): installs a filter program on this, the only, thread.
pub fn install_filter(program: &[Instruction]) -> Result<()> {
    let len = u16::try_from(program.len()).map_err(|_| Errno::EINVAL)?;
    // An instruction has the layout of struct sock_filter.
    let program = libc::sock_fprog { len, filter: program.as_ptr().cast_mut().cast() };
    let mode = libc::SECCOMP_SET_MODE_FILTER;
    // SAFETY: the kernel only reads the program, whose length is given and which lives across the call.
    check(unsafe { libc::syscall(libc::SYS_seccomp, mode, 0, &raw const program) }).map(drop)
}

/// execve(2) with arrays that end with a null pointer. Returns only when it fails.
pub fn execute(
    program: &CStr,
    arguments: &[*const c_char],
    environment: &[*const c_char],
) -> Errno {
    debug_assert!(arguments.last().is_some_and(|p| p.is_null()));
    debug_assert!(environment.last().is_some_and(|p| p.is_null()));
    // SAFETY: both arrays hold pointers to live C strings and end with null; the caller keeps the strings.
    unsafe { libc::execve(program.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    Errno::last()
}

/// Writes all of a few bytes in one call.
pub fn write(fd: RawFd, bytes: &[u8]) -> Result<()> {
    // SAFETY: pointer and length are of one live slice.
    let written = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
    check(written as c_long)
        .and_then(|n| if n as usize == bytes.len() { Ok(()) } else { Err(Errno::EIO) })
}

/// _exit(2): ends the process without running anything.
pub fn exit_now(code: c_int) -> ! {
    // SAFETY: never returns and touches no memory.
    unsafe { libc::_exit(code) }
}

/// Sets every signal to its default action and unblocks all: what a host ignores or blocks would
/// otherwise survive the exec.
pub fn reset_signals() {
    for signal in 1..=64 {
        // SAFETY: SIG_DFL installs no handler. Signals that cannot be changed answer EINVAL, which is
        // what they should stay.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // SAFETY: an all-zero sigset_t is made valid by sigemptyset before it is read.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
    }
}

/// Takes the descriptor `from`, which the program was started with, to the number `to`, whatever may
/// have been inherited there.
pub fn take_inherited(from: RawFd, to: RawFd) -> Result<OwnedFd> {
    duplicate_to(from, to, libc::O_CLOEXEC)?;
    new_fd(c_long::from(to))
}

/// Owns a descriptor that recvmsg(2) has just put into this process.
pub fn received(fd: RawFd) -> OwnedFd {
    // SAFETY: the kernel installed it for this message alone, so nobody else owns it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}
