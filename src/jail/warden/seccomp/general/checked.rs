//! What the general profile lets through only with certain arguments, sockets aside.

use libc::{EINVAL, ENOTTY, EPERM};

use crate::seccomp::{
    arguments::CREATING,
    numbers as call,
    rule::{Clause, Rule, clear, demand, is},
};

/// Flags of clone that make namespaces: cgroup, UTS, IPC, user, pid, network, mount, and time.
const NEW_NAMESPACES: u32 = 0x7e02_0000 | 0x80;

/// `S_ISUID` and `S_ISGID`.
const SET_ID_BITS: u32 = 0o6_000;
/// `MAP_GROWSDOWN`.
const MAP_GROWSDOWN: u32 = 0x100;

const NO_SET_ID_1: &[Clause] = &[demand(&[clear(1, SET_ID_BITS)], EPERM)];
const NO_SET_ID_2: &[Clause] = &[demand(&[clear(2, SET_ID_BITS)], EPERM)];

/// Commands of fcntl: duplicates, descriptor and file flags, record locks, seals, and questions. Not
/// leases, delegations and notifications (a lease of the jail's holds up the host), owners and
/// signals, and pipe sizes (they use up the user's quota).
const FCNTL_COMMANDS: &[u32] = &[
    0, 1, 2, 3, 4, 5, 6, 7, 9, 11, 16, 36, 37, 38, 1025, 1027, 1028, 1030, 1032, 1033, 1034, 1035,
    1037,
];

/// TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX, FIOASYNC, FICLONE.
const IOCTL_COMMANDS: &[u32] =
    &[0x5401, 0x5413, 0x541b, 0x5421, 0x5450, 0x5451, 0x5452, 0x4004_9409];

/// Options of prctl without an argument to look at: PR_SET_PDEATHSIG, PR_GET_PDEATHSIG,
/// PR_GET_DUMPABLE, PR_SET_DUMPABLE, PR_SET_NAME, PR_GET_NAME, PR_GET_SECCOMP, PR_CAPBSET_READ,
/// PR_GET_SECUREBITS, PR_SET_TIMERSLACK, PR_GET_TIMERSLACK, PR_SET_CHILD_SUBREAPER,
/// PR_GET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_GET_NO_NEW_PRIVS, PR_SET_THP_DISABLE,
/// PR_GET_THP_DISABLE, PR_SET_VMA.
const PRCTL_OPTIONS: &[u32] =
    &[1, 2, 3, 4, 15, 16, 21, 23, 27, 29, 30, 36, 37, 38, 39, 41, 42, 0x5356_4d41];
/// PR_CAP_AMBIENT and its question PR_CAP_AMBIENT_IS_SET.
const CAP_AMBIENT: u32 = 47;
const CAP_AMBIENT_IS_SET: u32 = 1;

/// ARCH_SET_GS, ARCH_SET_FS, ARCH_GET_FS, ARCH_GET_GS, and the four that ask for and about wide
/// registers, which numerical libraries use.
const ARCH_PRCTL_OPTIONS: &[u32] =
    &[0x1001, 0x1002, 0x1003, 0x1004, 0x1021, 0x1022, 0x1023, 0x1024];

/// Calls whose arguments decide.
pub(super) const CHECKED: &[Rule] = &[
    Rule::allow_if(
        call::CLONE,
        &[demand(&[clear(0, NEW_NAMESPACES)], EPERM)],
        "processes and threads, in no new namespace",
    ),
    Rule::allow_if(
        call::MMAP,
        &[demand(&[clear(3, MAP_GROWSDOWN)], EPERM)],
        "memory; growing downwards has few users and a history",
    ),
    Rule::allow_if(
        call::OPEN,
        &[demand(&[clear(1, CREATING), clear(2, SET_ID_BITS)], EPERM)],
        "opens files; no set-id bit, which would be the host user's",
    ),
    Rule::allow_if(
        call::OPENAT,
        &[demand(&[clear(2, CREATING), clear(3, SET_ID_BITS)], EPERM)],
        "opens files; no set-id bit, which would be the host user's",
    ),
    Rule::allow_if(call::CREAT, NO_SET_ID_1, "makes files without a set-id bit"),
    Rule::allow_if(call::MKDIR, NO_SET_ID_1, "makes directories without a set-id bit"),
    Rule::allow_if(call::MKDIRAT, NO_SET_ID_2, "makes directories without a set-id bit"),
    Rule::allow_if(call::CHMOD, NO_SET_ID_1, "changes modes, but for set-id bits"),
    Rule::allow_if(call::FCHMOD, NO_SET_ID_1, "changes modes, but for set-id bits"),
    Rule::allow_if(call::FCHMODAT, NO_SET_ID_2, "changes modes, but for set-id bits"),
    Rule::allow_if(
        call::FCNTL,
        &[demand(&[is(1, FCNTL_COMMANDS)], EINVAL)],
        "flags and locks; no lease, owner or pipe size",
    ),
    Rule::allow_if(
        call::IOCTL,
        &[demand(&[is(1, IOCTL_COMMANDS)], ENOTTY)],
        "questions to files and streams; no terminal control",
    ),
    Rule::allow_if(
        call::PRCTL,
        &[
            demand(&[is(0, PRCTL_OPTIONS), is(0, &[CAP_AMBIENT])], EPERM),
            demand(&[is(0, PRCTL_OPTIONS), is(1, &[CAP_AMBIENT_IS_SET])], EPERM),
        ],
        "names and questions; no memory layout, filters or dispatch",
    ),
    Rule::allow_if(
        call::ARCH_PRCTL,
        &[demand(&[is(0, ARCH_PRCTL_OPTIONS)], EINVAL)],
        "thread pointers and register state",
    ),
    Rule::allow_if(
        call::PERSONALITY,
        &[demand(&[is(0, &[0, u32::MAX])], EPERM)],
        "asks; changes nothing",
    ),
    Rule::allow_if(
        call::SETPRIORITY,
        &[demand(&[is(0, &[0])], EPERM)],
        "of a process; groups and users reach beyond the jail",
    ),
    Rule::allow_if(
        call::PRLIMIT64,
        &[demand(&[is(0, &[0])], EPERM)],
        "limits of the caller itself",
    ),
];
