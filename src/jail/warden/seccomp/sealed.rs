//! The policy of the sealed profile: what the static worker uses. Everything else is death.
//!
//! The list was taken from traces of the worker over every turn that is recorded for it, built for
//! musl and for glibc; a test takes it again and compares. Arguments are as narrow as the traces. There
//! is no restart_syscall and no rt_sigreturn: the worker has no signal handlers and makes no call that
//! the kernel resumes in this way after a stop, which the same test shows.

use libc::EINVAL;

use super::{
    FilterOptions,
    arguments::{CREATING, PROT_EXEC, STREAM, UNIX},
    machine::Machine,
    numbers as call,
    rule::{Answer, Policy, Rule, clear, demand, demand_or_kill, is, masked, null},
};

/// `SOCK_CLOEXEC`.
const CLOSE_ON_EXEC: u32 = 0o2_000_000;
/// `MSG_NOSIGNAL`.
const MSG_NOSIGNAL: u32 = 0x4000;
/// `PR_SET_DUMPABLE`.
const PR_SET_DUMPABLE: u32 = 4;
/// `ARCH_SET_FS`.
const ARCH_SET_FS: u32 = 0x1002;
/// `MAP_PRIVATE` with `MAP_ANONYMOUS`, the same with `MAP_POPULATE`, and at a given place (`MAP_FIXED`).
const ANONYMOUS: &[u32] = &[0x22, 0x8022, 0x32];
/// `MAP_NORESERVE`, which glibc adds when the heap cannot grow any more.
const MAP_NORESERVE: u32 = 0x4000;
/// `MADV_DONTNEED` and `MADV_FREE`.
const GIVING_BACK: &[u32] = &[4, 8];
const SIGABRT: u32 = 6;

/// What every build of the worker uses.
pub const WORKER: &[Rule] = &[
    Rule::allow(call::READ, "the turn, files, and the broker's answers"),
    Rule::allow(call::WRITE, "the reply, and files"),
    Rule::allow_if(
        call::OPENAT,
        &[demand_or_kill(&[clear(2, CREATING), is(3, &[0o600])])],
        "files and directories; new ones are the owner's alone",
    ),
    Rule::allow(call::CLOSE, "what was opened"),
    Rule::allow(call::FSTAT, "whether what was opened is a regular file"),
    Rule::allow(call::NEWFSTATAT, "what stands under a name"),
    Rule::allow(call::GETDENTS64, "lists directories of the user's files"),
    Rule::allow_if(
        call::MKDIRAT,
        &[demand_or_kill(&[is(2, &[0o700])])],
        "directories of the user's files",
    ),
    Rule::allow(call::UNLINKAT, "removes what stands where a file is to be staged"),
    Rule::allow(call::RENAMEAT, "puts staged files into place"),
    Rule::allow(call::FSYNC, "makes them last"),
    Rule::allow(call::GETRANDOM, "names of staged files, seeds of hash tables"),
    Rule::allow_if(
        call::SOCKET,
        &[
            demand_or_kill(&[is(0, &[UNIX])]),
            demand_or_kill(&[is(1, &[STREAM | CLOSE_ON_EXEC])]),
            demand_or_kill(&[is(2, &[0])]),
        ],
        "the broker",
    ),
    Rule::allow(call::CONNECT, "the broker"),
    Rule::allow_if(
        call::SENDTO,
        &[demand_or_kill(&[is(3, &[MSG_NOSIGNAL])]), demand_or_kill(&[null(4)])],
        "the broker; to nobody else",
    ),
    Rule::allow_if(
        call::PRCTL,
        &[demand_or_kill(&[is(0, &[PR_SET_DUMPABLE])]), demand_or_kill(&[is(1, &[0])])],
        "the first act: not dumpable",
    ),
    Rule::allow(call::EXECVE, "the last act before the worker; landlock leaves it one file"),
    Rule::allow_if(
        call::ARCH_PRCTL,
        &[demand(&[is(0, &[ARCH_SET_FS])], EINVAL)],
        "the thread pointer at start; newer libraries also ask for shadow stacks, and take no for an \
         answer",
    ),
    Rule::allow(call::SET_TID_ADDRESS, "start of the C library"),
    Rule::allow_if(
        call::MMAP,
        &[
            demand_or_kill(&[clear(2, PROT_EXEC)]),
            demand_or_kill(&[masked(3, !MAP_NORESERVE, ANONYMOUS)]),
        ],
        "memory: never code, never a file",
    ),
    Rule::allow(call::CLOCK_GETTIME, "the time, once a turn"),
    Rule::allow(call::EXIT_GROUP, "the end"),
];

/// What a worker that clears a workspace uses beside that.
pub const CLEARING: &[Rule] = &[Rule::allow_if(
    call::FCHMODAT,
    &[demand_or_kill(&[is(2, &[0o700])])],
    "opens directories again that a general image closed",
)];

/// What only the glibc build uses.
pub const GLIBC: &[Rule] = &[
    Rule::allow(call::BRK, "start of glibc: memory before there is an allocator"),
    Rule::allow(call::SET_ROBUST_LIST, "start of glibc"),
    Rule::allow(call::RSEQ, "start of glibc"),
    Rule::allow_if(
        call::PRLIMIT64,
        &[demand_or_kill(&[is(0, &[0])]), demand_or_kill(&[null(2)])],
        "glibc asks for the size of its stack at start; it sets nothing",
    ),
    Rule::allow(call::READLINK, "glibc looks for /proc/self/exe at start"),
    Rule::allow(call::READLINKAT, "the same where there is no readlink").only(Machine::Aarch64),
    Rule::allow_if(
        call::MPROTECT,
        &[demand_or_kill(&[clear(2, PROT_EXEC)])],
        "start of glibc: constants become read-only; never code",
    ),
];

/// What no trace shows, with the reason why it is here all the same.
pub const RESERVED: &[Rule] = &[
    Rule::allow(
        call::MUNMAP,
        "an allocator that gives memory back; the worker's keeps what it has",
    ),
    Rule::allow(call::MREMAP, "the same for one that moves what grows"),
    Rule::allow_if(
        call::MADVISE,
        &[demand_or_kill(&[is(2, GIVING_BACK)])],
        "glibc gives memory back where the heap could not grow and lies in pieces",
    ),
    Rule::allow(call::UNAME, "start of older glibc, which looks at the kernel's version"),
    // Aborting: a broken worker is to end as one, and not as if it had attacked.
    Rule::allow(call::RT_SIGPROCMASK, "abort: signals are held while it raises its own"),
    Rule::allow_if(
        call::RT_SIGACTION,
        &[demand_or_kill(&[is(0, &[SIGABRT])])],
        "abort: the first process of a namespace ignores the first SIGABRT",
    ),
    Rule::allow(call::GETTID, "abort: glibc asks whom to signal"),
    Rule::allow(call::GETPID, "abort: glibc asks whom to signal"),
    Rule::allow_if(
        call::TKILL,
        &[demand_or_kill(&[is(1, &[SIGABRT])])],
        "abort: musl's signal; there is nobody else to send it to",
    ),
    Rule::allow_if(
        call::TGKILL,
        &[demand_or_kill(&[is(2, &[SIGABRT])])],
        "abort: glibc's signal; there is nobody else to send it to",
    ),
];

/// The sealed policy.
pub(super) fn policy(options: FilterOptions) -> Policy {
    let clearing = if options.clears { CLEARING } else { &[] };
    Policy {
        rules: [WORKER, clearing, GLIBC, RESERVED].concat(),
        unlisted: Answer::Kill,
        unknown: Answer::Kill,
    }
}
