//! The general profile, call by call.

use libc::{
    EAFNOSUPPORT, EINVAL, ENOPROTOOPT, ENOSYS, ENOTTY, EOPNOTSUPP, EPERM, EPROTONOSUPPORT,
    ESOCKTNOSUPPORT,
};

use super::table::{Row, assert_rows, assert_sound, bare, error};
use crate::seccomp::{
    FilterOptions, Profile,
    machine::Machine,
    numbers::{self as call, ALL, Call},
    rule::Answer::Allow,
    rules,
};

/// Bits that the kernel ignores in a 32 bit argument.
const HIGH: u64 = 0xdead_beef << 32;

const ROWS: &[Row] = &[
    (call::CLONE, &[0x3d_0f00], Allow),
    (call::CLONE, &[17], Allow),
    (call::CLONE, &[0x4111], Allow),
    (call::CLONE, &[0x1000_0011], error(EPERM)),
    (call::CLONE, &[0x0002_0000], error(EPERM)),
    (call::CLONE, &[0x0200_0000], error(EPERM)),
    (call::CLONE, &[0x0400_0000], error(EPERM)),
    (call::CLONE, &[0x0800_0000], error(EPERM)),
    (call::CLONE, &[0x2000_0000], error(EPERM)),
    (call::CLONE, &[0x4000_0000], error(EPERM)),
    (call::CLONE, &[0x80], error(EPERM)),
    (call::CLONE, &[HIGH | 0x4000_0000], error(EPERM)),
    (call::CLONE, &[HIGH + 17], Allow),
    (call::MMAP, &[0, 4096, 7, 0x22], Allow),
    (call::MMAP, &[0, 4096, 3, 0x122], error(EPERM)),
    (call::MMAP, &[0, 4096, 3, HIGH | 0x122], error(EPERM)),
    (call::OPEN, &[1, 0o100 | 2, 0o644], Allow),
    (call::OPEN, &[1, 0, 0o6777], Allow),
    (call::OPEN, &[1, 0o100, 0o4755], error(EPERM)),
    (call::OPEN, &[1, HIGH | 0o100, HIGH | 0o2755], error(EPERM)),
    (call::OPENAT, &[3, 1, 0o100, 0o644], Allow),
    (call::OPENAT, &[3, 1, 0, 0o7777], Allow),
    (call::OPENAT, &[3, 1, 0o100, 0o4755], error(EPERM)),
    (call::OPENAT, &[3, 1, 0o20_200_002, 0o2755], error(EPERM)),
    (call::OPENAT, &[3, 1, 0o20_200_002, 0o755], Allow),
    (call::CREAT, &[1, 0o755], Allow),
    (call::CREAT, &[1, 0o4755], error(EPERM)),
    (call::MKDIR, &[1, 0o1777], Allow),
    (call::MKDIR, &[1, 0o2777], error(EPERM)),
    (call::MKDIRAT, &[3, 1, 0o777], Allow),
    (call::MKDIRAT, &[3, 1, 0o2777], error(EPERM)),
    (call::CHMOD, &[1, 0o1755], Allow),
    (call::CHMOD, &[1, 0o4755], error(EPERM)),
    (call::CHMOD, &[1, HIGH | 0o6755], error(EPERM)),
    (call::FCHMOD, &[1, 0o755], Allow),
    (call::FCHMOD, &[1, 0o2755], error(EPERM)),
    (call::FCHMODAT, &[3, 1, 0o755], Allow),
    (call::FCHMODAT, &[3, 1, 0o6777], error(EPERM)),
    (call::FCNTL, &[3, 4, 0o4000], Allow),
    (call::FCNTL, &[3, HIGH + 1030], Allow),
    (call::FCNTL, &[3, 1024], error(EINVAL)),
    (call::FCNTL, &[3, HIGH + 1024], error(EINVAL)),
    (call::FCNTL, &[3, 1026], error(EINVAL)),
    (call::FCNTL, &[3, 8], error(EINVAL)),
    (call::FCNTL, &[3, 10], error(EINVAL)),
    (call::FCNTL, &[3, 15], error(EINVAL)),
    (call::FCNTL, &[3, 1031], error(EINVAL)),
    (call::FCNTL, &[3, 1040], error(EINVAL)),
    (call::IOCTL, &[1, 0x5401], Allow),
    (call::IOCTL, &[1, 0x541b], Allow),
    (call::IOCTL, &[1, 0x5412], error(ENOTTY)),
    (call::IOCTL, &[1, HIGH | 0x5412], error(ENOTTY)),
    (call::IOCTL, &[1, 0x541c], error(ENOTTY)),
    (call::IOCTL, &[1, 0x540e], error(ENOTTY)),
    (call::IOCTL, &[1, 0x4008_6602], error(ENOTTY)),
    (call::PRCTL, &[15], Allow),
    (call::PRCTL, &[23, 12], Allow),
    (call::PRCTL, &[0x5356_4d41], Allow),
    (call::PRCTL, &[47, 1], Allow),
    (call::PRCTL, &[47, 2], error(EPERM)),
    (call::PRCTL, &[47, 4], error(EPERM)),
    (call::PRCTL, &[HIGH + 47, HIGH | 2], error(EPERM)),
    (call::PRCTL, &[22, 2], error(EPERM)),
    (call::PRCTL, &[35], error(EPERM)),
    (call::PRCTL, &[28, 0], error(EPERM)),
    (call::PRCTL, &[24, 1], error(EPERM)),
    (call::PRCTL, &[59], error(EPERM)),
    (call::PRCTL, &[62], error(EPERM)),
    (call::PRCTL, &[0x5961_6d61], error(EPERM)),
    (call::PRCTL, &[53, 0], error(EPERM)),
    (call::ARCH_PRCTL, &[0x1002], Allow),
    (call::ARCH_PRCTL, &[0x1023], Allow),
    (call::ARCH_PRCTL, &[0x1012], error(EINVAL)),
    (call::ARCH_PRCTL, &[0x3001], error(EINVAL)),
    (call::PERSONALITY, &[0xffff_ffff], Allow),
    (call::PERSONALITY, &[0], Allow),
    (call::PERSONALITY, &[HIGH], Allow),
    (call::PERSONALITY, &[0x0040_0000], error(EPERM)),
    (call::PERSONALITY, &[0x0004_0000], error(EPERM)),
    (call::SETPRIORITY, &[0, 0, 5], Allow),
    (call::SETPRIORITY, &[1, 0, 5], error(EPERM)),
    (call::SETPRIORITY, &[HIGH | 2, 0, 5], error(EPERM)),
    (call::PRLIMIT64, &[0, 7, 1, 1], Allow),
    (call::PRLIMIT64, &[HIGH, 7, 1, 1], Allow),
    (call::PRLIMIT64, &[1, 7, 0, 1], error(EPERM)),
    (call::SENDTO, &[3, 1, 1, 0x4000], Allow),
    (call::SENDTO, &[3, 1, 1, 0x4001], error(EOPNOTSUPP)),
    (call::SENDTO, &[3, 1, 1, HIGH | 1], error(EOPNOTSUPP)),
    (call::RECVFROM, &[3, 1, 1, 2], Allow),
    (call::RECVFROM, &[3, 1, 1, 1], error(EOPNOTSUPP)),
    (call::SENDMSG, &[3, 1, 0], Allow),
    (call::SENDMSG, &[3, 1, 1], error(EOPNOTSUPP)),
    (call::RECVMSG, &[3, 1, 0x4000_0000], Allow),
    (call::RECVMSG, &[3, 1, 0x4000_0001], error(EOPNOTSUPP)),
    (call::SENDMMSG, &[3, 1, 1, 0], Allow),
    (call::SENDMMSG, &[3, 1, 1, 1], error(EOPNOTSUPP)),
    (call::RECVMMSG, &[3, 1, 1, 0], Allow),
    (call::RECVMMSG, &[3, 1, 1, 1], error(EOPNOTSUPP)),
    (call::SOCKETPAIR, &[1, 0x8_0001], Allow),
    (call::SOCKETPAIR, &[2, 1], error(EAFNOSUPPORT)),
    (call::SOCKETPAIR, &[30, 1], error(EAFNOSUPPORT)),
    (call::SOCKET, &[1, 1], Allow),
    (call::SOCKET, &[1, 2], Allow),
    (call::SOCKET, &[HIGH | 1, 5], Allow),
    (call::SOCKET, &[0, 1], error(EAFNOSUPPORT)),
    (call::SOCKET, &[16, 3], error(EAFNOSUPPORT)),
    (call::SOCKET, &[17, 3], error(EAFNOSUPPORT)),
    (call::SOCKET, &[38, 5], error(EAFNOSUPPORT)),
    (call::SOCKET, &[40, 1], error(EAFNOSUPPORT)),
    (call::SOCKET, &[(1 << 32) | 16, 3], error(EAFNOSUPPORT)),
    (call::SETSOCKOPT, &[3, 1, 2], Allow),
    (call::SETSOCKOPT, &[3, 1, 16], Allow),
    (call::SETSOCKOPT, &[3, 1, 10], error(ENOPROTOOPT)),
    (call::SETSOCKOPT, &[3, 1, 26], error(ENOPROTOOPT)),
    (call::SETSOCKOPT, &[3, 1, 50], error(ENOPROTOOPT)),
    (call::SETSOCKOPT, &[3, 1, HIGH + 51], error(ENOPROTOOPT)),
    (call::SETSOCKOPT, &[3, 1, 52], error(ENOPROTOOPT)),
    (call::SETSOCKOPT, &[3, HIGH | 1, 10], error(ENOPROTOOPT)),
];

const WITHOUT_LOOPBACK: &[Row] = &[
    (call::SOCKET, &[2, 1], error(EAFNOSUPPORT)),
    (call::SOCKET, &[10, 2], error(EAFNOSUPPORT)),
    (call::SETSOCKOPT, &[3, 6, 1], error(ENOPROTOOPT)),
    (call::SETSOCKOPT, &[3, 0, 1], error(ENOPROTOOPT)),
];

const WITH_LOOPBACK: &[Row] = &[
    (call::SOCKET, &[2, 0x8_0801, 6], Allow),
    (call::SOCKET, &[2, 2, 17], Allow),
    (call::SOCKET, &[10, 0x8_0002], Allow),
    (call::SOCKET, &[2, 3, 1], error(ESOCKTNOSUPPORT)),
    (call::SOCKET, &[2, 5, 132], error(ESOCKTNOSUPPORT)),
    (call::SOCKET, &[2, HIGH | 3, 1], error(ESOCKTNOSUPPORT)),
    (call::SOCKET, &[2, 1, 262], error(EPROTONOSUPPORT)),
    (call::SOCKET, &[2, 2, 1], error(EPROTONOSUPPORT)),
    (call::SOCKET, &[2, 2, 136], error(EPROTONOSUPPORT)),
    (call::SOCKET, &[10, 1, HIGH + 132], error(EPROTONOSUPPORT)),
    (call::SOCKET, &[1, 1, 0], Allow),
    (call::SETSOCKOPT, &[3, 6, 1], Allow),
    (call::SETSOCKOPT, &[3, 41, 26], Allow),
    (call::SETSOCKOPT, &[3, 0, 1], Allow),
    (call::SETSOCKOPT, &[3, 6, 31], error(ENOPROTOOPT)),
    (call::SETSOCKOPT, &[3, 6, 19], error(ENOPROTOOPT)),
    (call::SETSOCKOPT, &[3, 0, 64], error(ENOPROTOOPT)),
    (call::SETSOCKOPT, &[3, 41, 64], error(ENOPROTOOPT)),
    (call::SETSOCKOPT, &[3, 132, 1], error(ENOPROTOOPT)),
    (call::SETSOCKOPT, &[3, 282, 1], error(ENOPROTOOPT)),
];

#[test]
fn arguments_get_the_answer_of_the_table() {
    assert_rows(Profile::General, false, &[ROWS, WITHOUT_LOOPBACK].concat());
    assert_rows(Profile::General, true, &[ROWS, WITH_LOOPBACK].concat());
}

/// What never reaches the kernel, by name; the numbers come from the table.
const NEVER: &[(i32, &[Call])] = &[
    (
        EPERM,
        &[
            call::BPF,
            call::KEYCTL,
            call::ADD_KEY,
            call::REQUEST_KEY,
            call::PERF_EVENT_OPEN,
            call::PTRACE,
            call::PROCESS_VM_READV,
            call::PROCESS_VM_WRITEV,
            call::PROCESS_MADVISE,
            call::PIDFD_GETFD,
            call::KCMP,
            call::OPEN_BY_HANDLE_AT,
            call::QUOTACTL,
            call::QUOTACTL_FD,
            call::VHANGUP,
            call::ACCT,
            call::SWAPON,
            call::SWAPOFF,
            call::REBOOT,
            call::KEXEC_LOAD,
            call::KEXEC_FILE_LOAD,
            call::INIT_MODULE,
            call::FINIT_MODULE,
            call::DELETE_MODULE,
            call::IOPL,
            call::IOPERM,
            call::MODIFY_LDT,
            call::SETTIMEOFDAY,
            call::CLOCK_SETTIME,
            call::ADJTIMEX,
            call::CLOCK_ADJTIME,
            call::SETHOSTNAME,
            call::SETDOMAINNAME,
            call::SYSLOG,
            call::LOOKUP_DCOOKIE,
            call::MBIND,
            call::MOVE_PAGES,
            call::SET_MEMPOLICY,
            call::FANOTIFY_INIT,
            call::REMAP_FILE_PAGES,
            call::MOUNT,
            call::UMOUNT2,
            call::PIVOT_ROOT,
            call::CHROOT,
            call::FSOPEN,
            call::FSCONFIG,
            call::FSMOUNT,
            call::OPEN_TREE,
            call::MOVE_MOUNT,
            call::MOUNT_SETATTR,
            call::UNSHARE,
            call::SETNS,
            call::MKNOD,
            call::MKNODAT,
            call::SETUID,
            call::SETGID,
            call::SETRESUID,
            call::SETRESGID,
            call::SETGROUPS,
            call::CAPSET,
            call::IOPRIO_SET,
        ],
    ),
    (
        ENOSYS,
        &[
            call::CLONE3,
            call::OPENAT2,
            call::FCHMODAT2,
            call::EXECVEAT,
            call::MEMFD_CREATE,
            call::MEMFD_SECRET,
            call::IO_URING_SETUP,
            call::IO_URING_ENTER,
            call::IO_URING_REGISTER,
            call::SPLICE,
            call::TEE,
            call::VMSPLICE,
            call::STATMOUNT,
            call::LISTMOUNT,
            call::USERFAULTFD,
            call::NAME_TO_HANDLE_AT,
            call::LANDLOCK_CREATE_RULESET,
            call::LANDLOCK_ADD_RULE,
            call::LANDLOCK_RESTRICT_SELF,
            call::SECCOMP,
            call::SHMGET,
            call::SEMGET,
            call::MSGGET,
            call::MQ_OPEN,
            call::IO_SETUP,
            call::CACHESTAT,
            call::LSM_GET_SELF_ATTR,
            call::MAP_SHADOW_STACK,
        ],
    ),
    (EINVAL, &[call::SENDFILE]),
    (EOPNOTSUPP, &[call::SETXATTR, call::LSETXATTR, call::FSETXATTR]),
];

#[test]
fn what_is_never_reachable_is_not() {
    for machine in [Machine::X86_64, Machine::Aarch64] {
        for &(errno, calls) in NEVER {
            for call in calls {
                let Some(number) = call.number(machine) else { continue };
                let got = bare(Profile::General, true, machine, number);
                assert_eq!(got, error(errno), "{} on {machine:?}", call.name);
            }
        }
    }
}

#[test]
fn unknown_numbers_do_not_exist() {
    for machine in [Machine::X86_64, Machine::Aarch64] {
        for number in (470..521).chain([337, 400, 423, 1000, 0x3fff_ffff]) {
            let got = bare(Profile::General, false, machine, number);
            assert_eq!(got, error(ENOSYS), "{number} on {machine:?}");
        }
    }
}

#[test]
fn every_call_of_the_table_has_one_rule() {
    for loopback in [false, true] {
        assert_sound(Profile::General, loopback);
        let rules =
            rules(Profile::General, &FilterOptions { loopback, ..FilterOptions::default() });
        for call in ALL {
            assert!(rules.iter().any(|rule| rule.call == *call), "{} has no rule", call.name);
        }
    }
}
