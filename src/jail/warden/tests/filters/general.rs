//! The general profile in the kernel.

use std::ffi::CString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use libc::{
    EAFNOSUPPORT, EINVAL, ENOPROTOOPT, ENOSYS, ENOTTY, EOPNOTSUPP, EPERM, EPROTONOSUPPORT,
    ESOCKTNOSUPPORT,
};
use turnjail_warden::seccomp::{
    Filter, FilterOptions, Profile,
    numbers::{self, Call},
    program,
};

use super::child::{
    End, address, address_mut, attempt, c_path, call, directory, execute, pipe, refused, wait_for,
};

/// Bits that the kernel ignores in a 32 bit argument.
const HIGH: u64 = 0xdead_beef << 32;
const SIGCHLD: u64 = 17;
const AT_FDCWD: u64 = -100_i64 as u64;

fn general() -> Filter {
    program(Profile::General, &FilterOptions::default())
}

fn with_loopback() -> Filter {
    program(Profile::General, &FilterOptions { loopback: true, ..FilterOptions::default() })
}

/// Whether the act works without the filter, and gets `errno` with it.
fn assert_refused(what: &str, errno: i32, act: impl Fn() -> i64) {
    let control = attempt(None, &act);
    assert!(matches!(control, End::Value(0..)), "{what} fails anyway: {control:?}");
    assert_eq!(attempt(Some(&general()), &act), refused(errno), "{what}");
}

/// Whether the kernel looks at the arguments without the filter, and gets `errno` with it. For calls
/// that a test cannot let succeed.
fn assert_never_reached(what: &str, errno: i32, act: impl Fn() -> i64) {
    let control = attempt(None, &act);
    assert_ne!(control, refused(errno), "{what} cannot be told from the kernel's own answer");
    assert_eq!(attempt(Some(&general()), &act), refused(errno), "{what}");
}

fn assert_allowed(what: &str, act: impl Fn() -> i64) {
    let end = attempt(Some(&general()), act);
    assert!(matches!(end, End::Value(0..)), "{what}: {end:?}");
}

#[test]
fn only_unix_sockets_open() {
    let open = |family: u64, kind: u64| move || call(numbers::SOCKET, &[family, kind, 0]);
    for family in [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK] {
        let kind = if family == libc::AF_NETLINK { 3 } else { 1 };
        assert_refused("a socket", EAFNOSUPPORT, open(family as u64, kind));
        assert_refused("a socket, high bits", EAFNOSUPPORT, open(HIGH | family as u64, kind));
    }
    for family in (0..51).filter(|&family| family != 1) {
        for kind in [1, 2, 3, 5, 10] {
            for flags in [0, 0o2_000_000] {
                let end = attempt(Some(&general()), open(family, kind | flags));
                assert_eq!(end, refused(EAFNOSUPPORT), "family {family} type {kind}");
            }
        }
    }
    for kind in [1, 2, 5] {
        assert_allowed("a Unix socket", open(1, kind));
        let mut ends = [0_i32; 2];
        let place = address_mut(&mut ends);
        assert_allowed("a pair", || call(numbers::SOCKETPAIR, &[1, kind, 0, place]));
    }
}

#[test]
fn a_loopback_opens_streams_and_datagrams_alone() {
    let end = |family: u64, kind: u64, protocol: u64| {
        attempt(Some(&with_loopback()), || call(numbers::SOCKET, &[family, kind, protocol]))
    };
    for family in [libc::AF_INET as u64, libc::AF_INET6 as u64] {
        assert!(matches!(end(family, 1, 0), End::Value(0..)));
        assert!(matches!(end(family, 2, 17), End::Value(0..)));
        assert_eq!(end(family, 3, 1), refused(ESOCKTNOSUPPORT));
        assert_eq!(end(family, 1, 262), refused(EPROTONOSUPPORT));
        assert_eq!(end(family, 2, 1), refused(EPROTONOSUPPORT));
    }
    assert_eq!(end(16, 3, 0), refused(EAFNOSUPPORT));
    let upper_layer = || {
        let socket = call(numbers::SOCKET, &[2, 1, 0]) as u64;
        call(numbers::SETSOCKOPT, &[socket, 6, 31, address(c"tls"), 3])
    };
    assert_ne!(attempt(None, upper_layer), refused(ENOPROTOOPT));
    assert_eq!(attempt(Some(&with_loopback()), upper_layer), refused(ENOPROTOOPT));
}

#[test]
fn no_new_namespaces() {
    for flag in [0x1000_0000, 0x1002_0000, 0x5000_0000, 0x3000_0000, 0x1c00_0000, 0x1200_0000] {
        assert_refused("unshare", EPERM, || call(numbers::UNSHARE, &[flag]));
        let fork = |flag: u64| {
            move || match call(numbers::CLONE, &[flag | SIGCHLD, 0, 0, 0, 0]) {
                0 => {
                    call(numbers::EXIT_GROUP, &[0]);
                    0
                }
                pid if pid > 0 => wait_for(pid),
                error => error,
            }
        };
        assert_refused("clone", EPERM, fork(flag));
        assert_refused("clone, high bits", EPERM, fork(HIGH | flag));
    }
    let in_memory = || {
        let mut arguments = [0_u64; 8];
        arguments[0] = 0x1000_0000;
        arguments[4] = SIGCHLD;
        match call(numbers::CLONE3, &[address(&arguments), 64]) {
            0 => call(numbers::EXIT_GROUP, &[0]),
            pid if pid > 0 => wait_for(pid),
            error => error,
        }
    };
    assert_refused("clone3", ENOSYS, in_memory);
    assert_allowed("fork", || match call(numbers::CLONE, &[SIGCHLD, 0, 0, 0, 0]) {
        0 => call(numbers::EXIT_GROUP, &[0]),
        pid => wait_for(pid),
    });
}

#[test]
fn no_set_id_bit_is_left_on_a_file() {
    let home = directory();
    let file = home.path().join("file");
    fs::write(&file, "x").expect("a file");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).expect("its mode");
    if nix::unistd::geteuid().is_root() {
        let owner = Some(super::child::ORDINARY);
        std::os::unix::fs::chown(&file, owner, owner).expect("its owner");
    }
    let path = c_path(&file);
    let made = c_path(&home.path().join("made"));
    let opened = c_path(home.path());
    let descriptor = || call(numbers::OPENAT, &[AT_FDCWD, address(path.as_c_str()), 0]) as u64;
    let created = |act: i64| {
        call(numbers::UNLINKAT, &[AT_FDCWD, address(made.as_c_str()), 0]);
        act
    };
    for mode in [0o4755, 0o2755, 0o6777, HIGH | 0o4755] {
        assert_refused("fchmodat", EPERM, || {
            call(numbers::FCHMODAT, &[AT_FDCWD, address(path.as_c_str()), mode])
        });
        assert_refused("fchmod", EPERM, || call(numbers::FCHMOD, &[descriptor(), mode]));
        assert_refused("fchmodat2", ENOSYS, || {
            call(numbers::FCHMODAT2, &[AT_FDCWD, address(path.as_c_str()), mode & 0o7777, 0])
        });
        assert_refused("openat", EPERM, || {
            created(call(numbers::OPENAT, &[AT_FDCWD, address(made.as_c_str()), 0o101, mode]))
        });
        assert_refused("O_TMPFILE", EPERM, || {
            let (directory, flags) = (address(opened.as_c_str()), libc::O_TMPFILE as u64 | 2);
            call(numbers::OPENAT, &[AT_FDCWD, directory, flags, mode])
        });
        #[cfg(target_arch = "x86_64")]
        {
            let legacy = |what: &str, act: &dyn Fn() -> i64| assert_refused(what, EPERM, act);
            legacy("chmod", &|| call(numbers::CHMOD, &[address(path.as_c_str()), mode]));
            legacy("creat", &|| created(call(numbers::CREAT, &[address(made.as_c_str()), mode])));
            legacy("open", &|| {
                created(call(numbers::OPEN, &[address(made.as_c_str()), 0o101, mode]))
            });
        }
        let in_memory = || {
            let how = [0o101, mode & 0o7777, 0];
            created(call(
                numbers::OPENAT2,
                &[AT_FDCWD, address(made.as_c_str()), address(&how), 24],
            ))
        };
        assert_refused("openat2", ENOSYS, in_memory);
    }
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("its mode");
    let act = || call(numbers::FCHMODAT, &[AT_FDCWD, address(path.as_c_str()), 0o4755]);
    assert_eq!(attempt(Some(&general()), act), refused(EPERM));
    assert_eq!(fs::metadata(&file).expect("it is there").permissions().mode(), 0o100_644);
    assert_allowed("an ordinary mode", || {
        call(numbers::FCHMODAT, &[AT_FDCWD, address(path.as_c_str()), 0o755])
    });
}

#[test]
fn no_lease_owner_or_pipe_size() {
    let home = directory();
    let file = home.path().join("leased");
    let path = c_path(&file);
    let own_file = || {
        call(numbers::OPENAT, &[AT_FDCWD, address(path.as_c_str()), 0o100, 0o600]);
        call(numbers::OPENAT, &[AT_FDCWD, address(path.as_c_str()), 0]) as u64
    };
    for high in [0, HIGH] {
        assert_refused("a lease", EINVAL, || {
            let file = own_file();
            call(numbers::FCNTL, &[file, high | 1024, 0])
        });
        fs::remove_file(&file).expect("the control made it");
        let [_, end] = pipe();
        let end = end as u64;
        assert_refused("a pipe's size", EINVAL, || {
            call(numbers::FCNTL, &[end, high + 1031, 0x1_0000])
        });
        assert_refused("an owner", EINVAL, || call(numbers::FCNTL, &[end, high + 8, 0]));
        assert_refused("a signal", EINVAL, || call(numbers::FCNTL, &[end, high + 10, 0]));
    }
    let [end, _] = pipe();
    assert_allowed("flags", || call(numbers::FCNTL, &[end as u64, 4, 0o4000]));
}

#[test]
fn ioctl_only_asks() {
    const FS_IOC_GETFLAGS: u64 = 0x8008_6601;
    const FIONREAD: u64 = 0x541b;
    let home = directory();
    let path = c_path(home.path());
    for high in [0, HIGH] {
        let flags = || {
            let directory = call(numbers::OPENAT, &[AT_FDCWD, address(path.as_c_str()), 0]);
            let mut flags = 0_u64;
            let place = address_mut(&mut flags);
            call(numbers::IOCTL, &[directory as u64, high | FS_IOC_GETFLAGS, place])
        };
        // Some file systems have no flags; what matters is that the question arrives there.
        assert_ne!(attempt(None, flags), End::Signal(libc::SIGSYS));
        assert_eq!(attempt(Some(&general()), flags), refused(ENOTTY));
        let [end, _] = pipe();
        assert_allowed("FIONREAD", || {
            let mut waiting = 0_i32;
            let place = address_mut(&mut waiting);
            call(numbers::IOCTL, &[end as u64, high | FIONREAD, place])
        });
    }
}

#[test]
fn nothing_watches_or_steers_other_processes() {
    assert_refused("ptrace", EPERM, || call(numbers::PTRACE, &[0, 0, 0, 0]));
    assert_refused("process_vm_readv", EPERM, || {
        let (mut to, from) = ([0_u8; 4], *b"test");
        let local = [address_mut(&mut to), 4];
        let remote = [address(&from), 4];
        let own = call(numbers::GETPID, &[]) as u64;
        call(numbers::PROCESS_VM_READV, &[own, address(&local), 1, address(&remote), 1, 0])
    });
    assert_refused("pidfd_getfd", EPERM, || {
        let own = call(numbers::GETPID, &[]) as u64;
        let handle = call(numbers::PIDFD_OPEN, &[own, 0]) as u64;
        call(numbers::PIDFD_GETFD, &[handle, 0, 0])
    });
    assert_refused("limits of another", EPERM, || {
        let mut limit = [0_u64; 2];
        let place = address_mut(&mut limit);
        let parent = call(numbers::GETPID, &[]) as u64;
        call(numbers::PRLIMIT64, &[parent, 7, 0, place])
    });
    assert_refused("priority of a group", EPERM, || {
        call(numbers::SETSID, &[]);
        call(numbers::SETPRIORITY, &[1, 0, 19])
    });
    assert_refused("priority of the user", EPERM, || call(numbers::SETPRIORITY, &[2, 0, 19]));
    assert_allowed("its own priority", || call(numbers::SETPRIORITY, &[0, 0, 19]));
}

#[test]
fn no_urgent_data() {
    let pair = || {
        let mut ends = [0_i32; 2];
        let place = address_mut(&mut ends);
        call(numbers::SOCKETPAIR, &[1, 1, 0, place]);
        [ends[0] as u64, ends[1] as u64]
    };
    for flags in [1, HIGH | 1, 0x4001] {
        assert_refused("sendto", EOPNOTSUPP, || {
            let [end, _other] = pair();
            call(numbers::SENDTO, &[end, address(c"x"), 1, flags, 0, 0])
        });
        assert_refused("sendmsg", EOPNOTSUPP, || {
            let [end, _other] = pair();
            let part = [address(c"x"), 1];
            let message = [0, 0, address(&part), 1, 0, 0, 0];
            call(numbers::SENDMSG, &[end, address(&message), flags])
        });
    }
    assert_allowed("data", || {
        let [end, _other] = pair();
        call(numbers::SENDTO, &[end, address(c"x"), 1, 0x4000, 0, 0])
    });
}

#[test]
fn what_needs_no_privilege_but_is_dangerous_is_refused() {
    assert_refused("a keyring", EPERM, || call(numbers::KEYCTL, &[0, -3_i64 as u64, 1]));
    assert_refused("a key", EPERM, || {
        let (kind, name) = (address(c"user"), address(c"turnjail"));
        call(numbers::ADD_KEY, &[kind, name, address(c"x"), 1, -2_i64 as u64])
    });
    assert_refused("memfd_create", ENOSYS, || call(numbers::MEMFD_CREATE, &[address(c"x"), 0]));
    assert_refused("a personality", EPERM, || call(numbers::PERSONALITY, &[0x0040_0000]));
    assert_refused("a message queue", ENOSYS, || call(numbers::MSGGET, &[0, 0o1600]));
    assert_refused("shared memory", ENOSYS, || call(numbers::SHMGET, &[0, 4096, 0o1600]));
    assert_refused("semaphores", ENOSYS, || call(numbers::SEMGET, &[0, 1, 0o1600]));
    assert_refused("a landlock ruleset", ENOSYS, || {
        call(numbers::LANDLOCK_CREATE_RULESET, &[0, 0, 1])
    });
    assert_refused("writing out the host", EPERM, || call(numbers::SYNC, &[]));
    assert_refused("PR_MCE_KILL_GET", EPERM, || call(numbers::PRCTL, &[34, 0, 0, 0, 0]));
    assert_refused("growing downwards", EPERM, || {
        call(numbers::MMAP, &[0, 4096, 3, 0x122, u64::MAX, 0])
    });
    let descriptors = || {
        let [from, to] = pipe();
        let [other, into] = pipe();
        call(numbers::WRITE, &[to as u64, address(c"x"), 1]);
        [from as u64, into as u64, other as u64]
    };
    assert_refused("splice", ENOSYS, || {
        let [from, into, _] = descriptors();
        call(numbers::SPLICE, &[from, 0, into, 0, 1, 0])
    });
    assert_refused("tee", ENOSYS, || {
        let [from, into, _] = descriptors();
        call(numbers::TEE, &[from, into, 1, 0])
    });
    assert_refused("vmsplice", ENOSYS, || {
        let [_, into, _] = descriptors();
        let part = [address(c"x"), 1];
        call(numbers::VMSPLICE, &[into, address(&part), 1, 0])
    });
    let home = directory();
    let path = home.path().join("sent");
    fs::write(&path, "x").expect("a file");
    let path = c_path(&path);
    assert_refused("sendfile", EINVAL, || {
        let [_, into, _] = descriptors();
        let file = call(numbers::OPENAT, &[AT_FDCWD, address(path.as_c_str()), 0]) as u64;
        call(numbers::SENDFILE, &[into, file, 0, 1])
    });
    assert_refused("a fifo", EPERM, || {
        let path = c_path(&home.path().join("fifo"));
        let made = call(numbers::MKNODAT, &[AT_FDCWD, address(path.as_c_str()), 0o10600, 0]);
        call(numbers::UNLINKAT, &[AT_FDCWD, address(path.as_c_str()), 0]);
        made
    });
}

#[test]
fn the_never_list_does_not_reach_the_kernel() {
    // With arguments that are all zero, the kernel would complain about them, or do something
    // harmless.
    let probes: &[(i32, &[Call])] = &[
        (
            ENOSYS,
            &[
                numbers::IO_URING_SETUP,
                numbers::IO_URING_ENTER,
                numbers::USERFAULTFD,
                numbers::SECCOMP,
                numbers::EXECVEAT,
                numbers::NAME_TO_HANDLE_AT,
                numbers::IO_SETUP,
                numbers::MQ_OPEN,
                numbers::LANDLOCK_ADD_RULE,
            ],
        ),
        (EPERM, &[numbers::SETNS, numbers::MBIND, numbers::MOVE_PAGES, numbers::REMAP_FILE_PAGES]),
    ];
    for (errno, calls) in probes {
        for probe in *calls {
            assert_never_reached(probe.name, *errno, || call(*probe, &[]));
        }
    }
    let uid = || call(numbers::GETUID, &[]) as u64;
    assert_refused("setuid to itself", EPERM, || call(numbers::SETUID, &[uid()]));
}

#[test]
fn ordinary_programs_run() {
    let shell = CString::from(c"/bin/sh");
    let script =
        "set -e; echo one | cat > /dev/null; test \"$(ls / | wc -l)\" -gt 3; (exit 3) || exit 7";
    let arguments =
        [c"sh".into(), c"-c".into(), CString::new(script).expect("no NUL in the script")];
    let run = || match call(numbers::CLONE, &[SIGCHLD, 0, 0, 0, 0]) {
        0 => execute(&shell, &arguments),
        pid => wait_for(pid),
    };
    assert_eq!(attempt(None, run), End::Value(7));
    assert_eq!(attempt(Some(&general()), run), End::Value(7));
    assert_eq!(attempt(Some(&with_loopback()), run), End::Value(7));
}
