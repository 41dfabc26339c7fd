//! Forbidden acts that a throw-away jail tries in place of its program, to prove that the walls stand.
//!
//! A success, or an answer that shows that the kernel looked at the request at all, means that a wall
//! is silently absent. Each attempt is its own jail, because under the sealed profile most are death.

use serde::{Deserialize, Serialize};

use crate::seccomp::Profile;
use crate::sys;
use crate::wire::{Plan, Status};

/// A forbidden act.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Attempt {
    /// Open a path that exists on the host.
    HostPath,
    /// Create a file in the root.
    WriteRoot,
    /// List the root, which no rule of the sealed landlock ruleset grants.
    ListRoot,
    /// Make an IPv4 socket.
    Socket,
    /// Make a user namespace.
    Unshare,
    /// Mount something.
    Mount,
    /// Ask to be traced.
    Trace,
    /// Make a socket file in /tmp, which of the general profile's walls landlock alone forbids.
    SocketFile,
    /// Make a netlink socket, which no setting allows.
    Netlink,
    /// Send a datagram out of the network namespace, from a jail with a loopback.
    Outside,
    /// Not forbidden: write the monotonic clock's nanoseconds to standard output, 8 bytes in native order,
    /// at the instant at which the program would have been executed. What a benchmark measures.
    Clock,
}

impl Attempt {
    /// What is tried under the sealed profile.
    pub const SEALED: &[Self] = &[
        Self::HostPath,
        Self::WriteRoot,
        Self::ListRoot,
        Self::Socket,
        Self::Unshare,
        Self::Mount,
        Self::Trace,
    ];
    /// What is tried under the general profile.
    pub const GENERAL: &[Self] = &[
        Self::HostPath,
        Self::WriteRoot,
        Self::SocketFile,
        Self::Socket,
        Self::Netlink,
        Self::Unshare,
        Self::Mount,
        Self::Trace,
    ];
    /// What is tried under the general profile with a loopback.
    pub const LOOPBACK: &[Self] = &[
        Self::HostPath,
        Self::WriteRoot,
        Self::SocketFile,
        Self::Outside,
        Self::Netlink,
        Self::Unshare,
        Self::Mount,
        Self::Trace,
    ];

    /// The act in words, fit for `a jailed program could <words>`.
    pub fn words(self) -> &'static str {
        match self {
            Self::HostPath => "open a file of the host",
            Self::WriteRoot => "write to its root filesystem",
            Self::ListRoot => "list its root directory against landlock",
            Self::Socket => "make a network socket",
            Self::Unshare => "make a user namespace",
            Self::Mount => "mount a file system",
            Self::Trace => "use ptrace",
            Self::SocketFile => "make a socket file against landlock",
            Self::Netlink => "make a netlink socket",
            Self::Outside => "send to an address outside its loopback",
            Self::Clock => "tell the time",
        }
    }

    /// Whether a jail of this profile that tried this ended as it must, with landlock in force or not.
    pub fn refused(self, profile: Profile, status: Status, landlock: bool) -> bool {
        let errno = match status {
            // Death by the filter proves nothing of a wall that is made of mounts or landlock, and the
            // general filter kills nobody for these.
            Status::Signal(signal) => {
                return profile == Profile::Sealed && self.is_filtered() && signal == libc::SIGSYS;
            }
            Status::Code(errno) => errno,
        };
        match self {
            Self::HostPath => [libc::ENOENT, libc::EACCES].contains(&errno),
            Self::WriteRoot => [libc::EROFS, libc::EACCES].contains(&errno),
            Self::ListRoot | Self::SocketFile if landlock => errno == libc::EACCES,
            Self::ListRoot | Self::SocketFile => errno == SUCCEEDED,
            // EINVAL, EFAULT and the like would mean that the call reached the kernel.
            Self::Socket | Self::Netlink => errno == libc::EAFNOSUPPORT,
            Self::Outside => errno == libc::ENETUNREACH,
            Self::Clock => false,
            Self::Unshare | Self::Mount | Self::Trace => {
                [libc::EPERM, libc::ENOSYS].contains(&errno)
            }
        }
    }

    /// Whether the filter is what refuses it.
    fn is_filtered(self) -> bool {
        matches!(self, Self::Socket | Self::Netlink | Self::Unshare | Self::Mount | Self::Trace)
    }

    /// Tries it, and ends the process with the errno, or with [`SUCCEEDED`]; after [`Clock`](Self::Clock)
    /// with 0.
    pub(crate) fn run(self, plan: &Plan) -> ! {
        if self == Self::Clock {
            let told = sys::write(libc::STDOUT_FILENO, &sys::monotonic().to_ne_bytes());
            sys::exit_now(told.map_or_else(|errno| errno as i32, |()| 0));
        }
        let errno = sys::attempt(self, &plan.root.path).map_or_else(|e| e as i32, |()| SUCCEEDED);
        sys::exit_now(errno)
    }
}

/// The exit code of an attempt that was not refused; no errno has this number.
pub const SUCCEEDED: i32 = 200;
