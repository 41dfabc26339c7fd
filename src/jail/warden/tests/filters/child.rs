//! A throw-away child that applies a filter, does one thing, and is gone.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::io;
use std::os::fd::RawFd;
use std::path::Path;

use turnjail_warden::seccomp::{Filter, machine::Machine, numbers::Call};

/// The identity of a child where the tests run as root: the kernel spares root many checks, which
/// would hide what a filter does.
pub const ORDINARY: u32 = 65_533;

/// How a child's act ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// With this value; a negative one is an error number.
    Value(i64),
    /// With a signal.
    Signal(i32),
}

/// The act was refused with an error.
pub const fn refused(errno: i32) -> End {
    End::Value(-(errno as i64))
}

/// Death by the filter.
pub const FILTERED: End = End::Signal(libc::SIGSYS);

/// Does `act` in a child as an ordinary user, under `filter` if there is one. The act may make system
/// calls and compute, and nothing else: it runs in a copy of a process with threads.
pub fn attempt(filter: Option<&Filter>, act: impl FnOnce() -> i64) -> End {
    let page = SharedValue::new();
    // SAFETY: the child makes system calls and writes to the shared page until it ends itself.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "{}", io::Error::last_os_error());
    if pid == 0 {
        become_ordinary();
        if let Some(filter) = filter {
            install(filter);
        }
        page.set(act());
        // SAFETY: ends the process at once, without what the parent registered to run at its end.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: the pid is that of our child, the status a local.
    let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(waited, pid, "{}", io::Error::last_os_error());
    if libc::WIFSIGNALED(status) {
        return End::Signal(libc::WTERMSIG(status));
    }
    assert_eq!(libc::WEXITSTATUS(status), 0, "the child failed before its act");
    End::Value(page.get())
}

/// Makes a system call, and gives its value or negative error number.
pub fn call(call: Call, arguments: &[u64]) -> i64 {
    numbered(call.number(Machine::NATIVE).unwrap_or(u32::MAX).into(), arguments)
}

/// The same by number.
pub fn numbered(number: i64, arguments: &[u64]) -> i64 {
    let a = |index: usize| arguments.get(index).copied().unwrap_or(0);
    // SAFETY: only children call this, with arguments that are numbers, null, or point to memory
    // which outlives the call; whatever the call does to the child, it ends right after.
    let value = unsafe { libc::syscall(number, a(0), a(1), a(2), a(3), a(4), a(5)) };
    if value == -1 { -i64::from(errno()) } else { value }
}

/// The address of something, as an argument.
pub fn address<T: ?Sized>(value: &T) -> u64 {
    std::ptr::from_ref(value).cast::<u8>() as u64
}

/// A place that the kernel writes to, as an argument.
pub fn address_mut<T: ?Sized>(place: &mut T) -> u64 {
    std::ptr::from_mut(place).cast::<u8>() as u64
}

/// A path as a C string.
pub fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_encoded_bytes()).expect("no NUL in a path")
}

/// A directory that the ordinary identity may write to.
pub fn directory() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(directory.path(), open).expect("its mode is set");
    directory
}

/// Executes a program in place of the child; gives a value only when that fails.
pub fn execute(program: &CString, arguments: &[CString]) -> i64 {
    const MOST: usize = 8;
    let mut pointers = [std::ptr::null(); MOST];
    for (pointer, argument) in pointers[..MOST - 1].iter_mut().zip(arguments) {
        *pointer = argument.as_ptr();
    }
    let environment = [c"PATH=/usr/bin:/bin".as_ptr(), std::ptr::null()];
    // SAFETY: both arrays end with null and their strings outlive the call.
    unsafe { libc::execve(program.as_ptr(), pointers.as_ptr(), environment.as_ptr()) };
    -i64::from(errno())
}

/// Waits for a child of the child; its exit code, or 128 and the signal.
pub fn wait_for(pid: i64) -> i64 {
    let mut status = 0;
    // SAFETY: the status is a local.
    let waited = unsafe { libc::waitpid(pid as i32, &raw mut status, 0) };
    if i64::from(waited) != pid {
        return -i64::from(errno());
    }
    i64::from(if libc::WIFSIGNALED(status) {
        128 + libc::WTERMSIG(status)
    } else {
        libc::WEXITSTATUS(status)
    })
}

/// abort(3).
pub fn abort() -> ! {
    // SAFETY: ends the process with SIGABRT.
    unsafe { libc::abort() }
}

fn become_ordinary() {
    // SAFETY: identity calls take numbers only; the group list is empty.
    let done = unsafe {
        libc::geteuid() != 0
            || (libc::setgroups(0, std::ptr::null()) == 0
                && libc::setresgid(ORDINARY, ORDINARY, ORDINARY) == 0
                && libc::setresuid(ORDINARY, ORDINARY, ORDINARY) == 0)
    };
    fail_unless(done);
}

fn install(filter: &Filter) {
    #[repr(C)]
    struct Program {
        length: u16,
        instructions: *const turnjail_warden::seccomp::Instruction,
    }
    let instructions = filter.instructions();
    let program =
        Program { length: instructions.len() as u16, instructions: instructions.as_ptr() };
    // SAFETY: both calls take numbers and a program that outlives them.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::syscall(libc::SYS_seccomp, 1, 0, &raw const program) == 0
    };
    fail_unless(done);
}

fn fail_unless(done: bool) {
    if !done {
        // SAFETY: ends the child; the parent sees the code.
        unsafe { libc::_exit(1) };
    }
}

fn errno() -> i32 {
    // SAFETY: the C library's own variable of this thread.
    unsafe { *libc::__errno_location() }
}

/// A number in memory that parent and child share.
struct SharedValue(*mut i64);

impl SharedValue {
    fn new() -> Self {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, which nothing else uses.
        let page = unsafe { libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0) };
        assert_ne!(page, libc::MAP_FAILED, "{}", io::Error::last_os_error());
        Self(page.cast())
    }

    fn set(&self, value: i64) {
        // SAFETY: the page lives as long as this, and only one process writes to it.
        unsafe { self.0.write_volatile(value) };
    }

    fn get(&self) -> i64 {
        // SAFETY: as above; the writer has ended.
        unsafe { self.0.read_volatile() }
    }
}

impl Drop for SharedValue {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made, unused from here on.
        unsafe { libc::munmap(self.0.cast(), 4096) };
    }
}

/// A pipe; reading end first. Left open on purpose: children come and go.
pub fn pipe() -> [RawFd; 2] {
    let mut ends = [0; 2];
    // SAFETY: the array takes both descriptors.
    let made = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) };
    assert_eq!(made, 0, "{}", io::Error::last_os_error());
    ends
}
