//! The messages between the host and the warden.
//!
//! They travel over one `SOCK_SEQPACKET` socket pair, one message a packet, encoded with postcard. Both
//! ends are of one build (the warden is embedded in the host), so there is no version. Strings of the
//! system (paths, arguments) are bytes.

use serde::{Deserialize, Serialize};

use crate::canary::Attempt;
use crate::mechanisms::Mechanisms;
use crate::seccomp::{FilterOptions, Profile};
use crate::step::Step;

/// The largest message in either direction, in bytes. A packet socket's default buffer holds it.
pub const MESSAGE_BYTES: usize = 128 * 1024;

/// Host to warden. The host sends a plan that it keeps.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request<P = Box<Plan>> {
    /// How the warden is to work. Sent once, before the first jail.
    Settings(Settings),
    /// A cgroup (v2) with these limits in which a jail can be born. With it comes a descriptor of its
    /// directory. The warden says what becomes of it: [`Response::Started`], [`Response::Rejected`] or
    /// [`Response::Returned`].
    Lend {
        /// The host's number for it.
        group: u64,
        /// What is set in it.
        limits: GroupLimits,
    },
    /// Start a jail. With it come three descriptors: the worker's stdin, stdout and stderr; with
    /// [`Plan::group`] a fourth, the directory of a group that is lent with it.
    Start(P),
}

/// The limits of a whole jail that its cgroup holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupLimits {
    /// Bytes of memory.
    pub memory: u64,
    /// Processes and threads.
    pub processes: u32,
    /// Microseconds of CPU time in 100 ms.
    pub cpu_us: u64,
}

/// How a warden works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// How many jails are prepared ahead of need; 0 for none.
    pub pool: u16,
}

/// By which way a jail comes about. Both build the same walls, and what is in force is the same.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Way {
    /// From the pool where it has a jail that fits, else directly.
    #[default]
    Any,
    /// Every step after the request.
    Direct,
    /// Prepared first, and handed what is the plan's alone afterwards; made on the spot where the pool has none that fits. A
    /// plan that cannot be prepared for goes the direct way.
    Prepared,
}

/// Everything one jail needs, as plain data that the host has already checked.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    /// The host's number for this jail, unique while the warden lives.
    pub id: u64,
    /// The worker's user id, inside as outside.
    pub uid: u32,
    /// The worker's group id, inside as outside.
    pub gid: u32,
    /// The image's root filesystem; seen read-only.
    pub root: Source,
    /// What is mounted into the root.
    pub binds: Vec<Bind>,
    /// The size of /tmp in bytes.
    pub tmp_bytes: u64,
    /// How many files /tmp may hold.
    pub tmp_inodes: u64,
    /// The isolation profile.
    pub profile: Profile,
    /// A loopback of the jail's own, in the general profile alone.
    pub loopback: bool,
    /// The sealed program clears a workspace for the host, and may open directories again.
    pub clears: bool,
    /// The program, an absolute path inside the root, and its arguments; the first is its name.
    pub program: Vec<u8>,
    /// The program's arguments, its name first.
    pub arguments: Vec<Vec<u8>>,
    /// The program's environment, `NAME=value`.
    pub environment: Vec<Vec<u8>>,
    /// The working directory inside the root.
    pub working_dir: Vec<u8>,
    /// The host name inside.
    pub hostname: Vec<u8>,
    /// The umask of the program.
    pub umask: u32,
    /// Resource limits: number (as in getrlimit(2)) and value, soft and hard alike.
    pub rlimits: Vec<(u32, u64)>,
    /// The nice value of the program.
    pub nice: i32,
    /// Whether a landlock ruleset is applied.
    pub landlock: bool,
    /// An act to try in place of the program, most often a forbidden one.
    pub attempt: Option<Attempt>,
    /// By which way it comes about.
    pub way: Way,
    /// The jail is born in a cgroup with these limits: one that has been [lent](Request::Lend) before, or
    /// the one that is lent with the request.
    pub group: Option<GroupLimits>,
    /// The host's number for the group that is lent with the request.
    pub lent: u64,
    /// How much the writable directories may hold; looked at before the program runs.
    pub bounds: Option<Bounds>,
    /// Nothing is executed: the jail ends with code 0 after that look.
    pub look_only: bool,
}

/// How much may stand in each directory that a jail can write. 0 is no bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// Bytes on disk.
    pub bytes: u64,
    /// Files, directories and everything else.
    pub entries: u64,
    /// Bytes of the file system that must stay free.
    pub reserve: u64,
}

/// The bound that is passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Over {
    /// [`Bounds::bytes`].
    Bytes,
    /// [`Bounds::entries`].
    Entries,
    /// Deeper than is looked.
    Depth,
    /// [`Bounds::reserve`].
    Reserve,
}

impl Over {
    const ALL: [Self; 4] = [Self::Bytes, Self::Entries, Self::Depth, Self::Reserve];

    /// The index of a [`Failure`] at [`Step::Holdings`]: what is passed, and of which bind of the plan.
    pub fn index(self, bind: u16) -> u16 {
        bind << 2 | self as u16
    }

    /// Reads such an index.
    pub fn of_index(index: u16) -> (Self, usize) {
        (Self::ALL[usize::from(index & 3)], usize::from(index >> 2))
    }
}

impl Plan {
    /// Which filter of its profile is meant.
    pub fn filter_options(&self) -> FilterOptions {
        FilterOptions { loopback: self.loopback, clears: self.clears }
    }
}

/// A directory of the host, by path, with the identity that the host saw when it checked it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// An absolute path without symbolic links.
    pub path: Vec<u8>,
    /// The device it must be on.
    pub dev: u64,
    /// The inode it must be.
    pub ino: u64,
}

/// A directory of the host mounted into the root.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Bind {
    /// What is mounted.
    pub source: Source,
    /// Where; the mount point exists in the root.
    pub target: Target,
    /// Nothing in it can be executed.
    pub noexec: bool,
}

/// The places where a directory of the host can be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// `/workspace`, read-write.
    Workspace,
    /// `/channel`, read-write.
    Channel,
    /// `/broker`, read-only.
    Broker,
}

impl Target {
    /// Every place.
    pub const ALL: [Self; 3] = [Self::Workspace, Self::Channel, Self::Broker];

    /// The one whose mount point this path is.
    pub fn at(path: &std::ffi::CStr) -> Option<Self> {
        Self::ALL.into_iter().find(|target| target.path() == path)
    }

    /// Nothing can be written through this mount.
    pub fn read_only(self) -> bool {
        self == Self::Broker
    }

    /// The mount point, seen from the root.
    pub fn name(self) -> &'static std::ffi::CStr {
        match self {
            Self::Workspace => c"workspace",
            Self::Channel => c"channel",
            Self::Broker => c"broker",
        }
    }

    /// The mount point inside the root.
    pub fn path(self) -> &'static std::ffi::CStr {
        match self {
            Self::Workspace => c"/workspace",
            Self::Channel => c"/channel",
            Self::Broker => c"/broker",
        }
    }
}

/// Warden to host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Response {
    /// The warden is ready.
    Ready(Facts),
    /// The warden could not set itself up, and ends.
    Unable(Failure),
    /// The jail has been cloned. With it come two descriptors: a pidfd of its first process, and the
    /// status pipe, from which [`Report`]s are read until its end, which means that the program runs.
    Started {
        /// The plan's number.
        id: u64,
        /// It was prepared before its plan was known.
        prepared: bool,
        /// The lent group that it is in.
        group: Option<u64>,
    },
    /// The jail could not be made, or the host could not be told of it; nothing of it is left.
    Rejected {
        /// The plan's number.
        id: u64,
        /// Why.
        failure: Failure,
        /// A lent group that is not needed any more, for the one that came with the request.
        group: Option<u64>,
    },
    /// A lent group is not needed any more, and nothing is in it.
    Returned {
        /// The host's number for it.
        group: u64,
    },
    /// The jail has ended, its first process is reaped, and nothing of it is left.
    Exited {
        /// The plan's number.
        id: u64,
        /// How.
        exit: Exit,
    },
}

/// What the warden found out about this kernel.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Facts {
    /// The highest landlock ABI that the kernel reports and accepts, 0 when there is none.
    pub landlock_abi: u32,
    /// By which mechanisms jails are made.
    pub mechanisms: Mechanisms,
    /// Whether the kernel can deny making memory executable (PR_SET_MDWE, Linux 6.3).
    pub mdwe: bool,
    /// SHA-256 of the sealed profile's seccomp program, hexadecimal.
    pub sealed_filter: String,
    /// SHA-256 of the two programs that together do the same in a jail that was prepared.
    pub sealed_stages: [String; 2],
    /// SHA-256 of the general profile's seccomp program, hexadecimal.
    pub general_filter: String,
    /// SHA-256 of the sealed one for clearing a workspace.
    pub clearing_filter: String,
    /// SHA-256 of the same with a loopback.
    pub loopback_filter: String,
}

/// How a jail's first process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// The exit code, or the signal that ended it.
    pub status: Status,
    /// User CPU time of the whole jail in microseconds.
    pub user_us: u64,
    /// System CPU time in microseconds.
    pub system_us: u64,
    /// The largest resident set of a process, in KiB. It includes the launcher before exec.
    pub max_rss_kib: u64,
}

/// An exit code or a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    /// Ended by itself.
    Code(i32),
    /// Ended by this signal.
    Signal(i32),
}

/// A step that failed, and the system's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// What was being done.
    pub step: Step,
    /// To which of several objects (a mount, a limit), counted from 0.
    pub index: u16,
    /// The errno.
    pub errno: i32,
}

/// One record on the status pipe of a jail, [`Report::BYTES`] long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    /// Something that the plan allows to be missing is missing.
    Missing(Failure),
    /// The jail could not be completed and is gone; the program never ran.
    Failed(Failure),
    /// The program has been executed. Only an init says so; without one the end of the pipe does.
    Running,
    /// The program under an init was ended by this signal.
    Signal(i32),
}

impl Report {
    /// The length of a record.
    pub const BYTES: usize = 8;

    /// The record's bytes. Allocates nothing: the child writes it after clone.
    pub fn encode(self) -> [u8; Self::BYTES] {
        let (kind, step, index, number) = match self {
            Self::Missing(failure) => (0, failure.step as u8, failure.index, failure.errno),
            Self::Failed(failure) => (1, failure.step as u8, failure.index, failure.errno),
            Self::Running => (2, 0, 0, 0),
            Self::Signal(signal) => (3, 0, 0, signal),
        };
        let [i0, i1] = index.to_le_bytes();
        let [n0, n1, n2, n3] = number.to_le_bytes();
        [kind, step, i0, i1, n0, n1, n2, n3]
    }

    /// Reads a record; none when it is not one.
    pub fn decode(bytes: [u8; Self::BYTES]) -> Option<Self> {
        let [kind, step, i0, i1, n0, n1, n2, n3] = bytes;
        let number = i32::from_le_bytes([n0, n1, n2, n3]);
        let failure = || {
            let index = u16::from_le_bytes([i0, i1]);
            Step::from_number(step).map(|step| Failure { step, index, errno: number })
        };
        match kind {
            0 => failure().map(Self::Missing),
            1 => failure().map(Self::Failed),
            2 => Some(Self::Running),
            3 => Some(Self::Signal(number)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_survive_the_pipe() {
        for report in [
            Report::Failed(Failure { step: Step::Exec, index: 0, errno: libc::ENOENT }),
            Report::Missing(Failure { step: Step::NamespaceLimit, index: 513, errno: libc::EROFS }),
            Report::Running,
            Report::Signal(libc::SIGSYS),
        ] {
            assert_eq!(Report::decode(report.encode()), Some(report));
        }
        assert_eq!(Report::decode([9, 0, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(Report::decode([1, 255, 0, 0, 0, 0, 0, 0]), None);
    }
}
