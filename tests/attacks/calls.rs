//! A14 to A20: what reaches the kernel.

use std::fs;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::Command;

use serde_json::json;
use turnjail_driver::ExitReason;
use turnjail_images::{ImageStore, ImportOptions, Source};
use turnjail_jail::{Profile, Status};
use turnjail_tests::acts::{call, numbered};
use turnjail_tests::archive::{configuration, image};
use turnjail_tests::jails::{Bench, PROBE};
use turnjail_tests::{Fact, Test, unique_word};
use turnjail_warden::seccomp::machine::Machine;
use turnjail_warden::seccomp::numbers::{self, Call};

use crate::inside;
use crate::support::{HERE, PROFILES, assert_forbidden, assert_forbidden_inside, assert_refused};

pub const TESTS: &[Test] = &[
    #[cfg(target_arch = "x86_64")]
    Test::new("a14_foreign_doors_are_death", a14),
    #[cfg(target_arch = "x86_64")]
    Test::new("a14_a_32_bit_program_is_death", a14_program),
    Test::new("a16_only_unix_sockets_open", a16_families),
    Test::new("a16_nor_of_any_type_in_a_general_jail", a16_types),
    Test::new("a16_no_name_of_the_hosts_is_reached", a16_abstract),
    Test::new("a17_the_never_list_does_not_reach_the_kernel", a17),
    Test::new("a18_no_pages_of_files_in_pipes", a18),
    Test::new("a18_the_files_of_an_image_stay_as_they_are", a18_pages),
    Test::new("a20_no_terminal_is_steered", a20_calls),
    Test::with("a20_nor_where_the_host_has_one", &[Fact::Jail, Fact::Script], a20_terminal),
];

/// `SOCK_CLOEXEC`.
const CLOSE_ON_EXEC: i64 = 0x8_0000;

const EPERM: i32 = 1;
const EBADF: i64 = 9;
#[cfg(target_arch = "x86_64")]
const EACCES: i32 = 13;
const EINVAL: i32 = 22;
const ENOTTY: i32 = 25;
const ENOSYS: i32 = 38;
const EAFNOSUPPORT: i32 = 97;
const ECONNREFUSED: i32 = 111;

#[cfg(target_arch = "x86_64")]
fn a14() {
    let bench = Bench::new();
    // getpid, socketcall, mount, keyctl and execve of a 32 bit program.
    let control = bench.outside(&[json!(["int80", 20])]);
    assert!(control.value(0) > 0, "this kernel has no such door: {control:?}");
    for &profile in PROFILES {
        for number in [20, 102, 21, 288, 11] {
            let report = bench.acts(profile, &[json!(["int80", number, 1, 0, 0])]);
            assert!(report.filtered_at(0), "{number} under {profile}: {report:?}");
        }
        for number in [numbers::GETUID, numbers::SOCKET, numbers::MOUNT, numbers::KEYCTL] {
            let number = number.number(Machine::X86_64);
            let x32 = numbered(0x4000_0000 | number.expect("a number"), json!([]));
            assert_eq!(
                bench.outside(std::slice::from_ref(&x32)).lines.len(),
                1,
                "the control dies too"
            );
            let report = bench.acts(profile, &[x32]);
            assert!(report.filtered_at(0), "{number:?} under {profile}: {report:?}");
        }
    }
}

/// A 32 bit program that ends with code 42: ELF header, one segment that is the whole file, code.
#[cfg(target_arch = "x86_64")]
fn program_of_32_bits() -> Vec<u8> {
    const BASE: u32 = 0x0804_8000;
    const HEADERS: u16 = 52 + 32;
    // mov ebx, 42; mov eax, 1; int 0x80
    let code = [0xbb, 42, 0, 0, 0, 0xb8, 1, 0, 0, 0, 0xcd, 0x80];
    let size = u32::from(HEADERS) + code.len() as u32;
    let mut file = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    // Executable, for the 80386, version 1.
    file.extend([2_u16, 3].iter().flat_map(|half| half.to_le_bytes()));
    let entry = BASE + u32::from(HEADERS);
    file.extend([1, entry, 52, 0, 0].iter().flat_map(|word: &u32| word.to_le_bytes()));
    file.extend([52_u16, 32, 1, 0, 0, 0].iter().flat_map(|half| half.to_le_bytes()));
    // One segment to load, readable and executable.
    let segment = [1, 0, BASE, BASE, size, size, 5, 0x1000];
    file.extend(segment.iter().flat_map(|word: &u32| word.to_le_bytes()));
    file.extend(code);
    file
}

#[cfg(target_arch = "x86_64")]
fn a14_program() {
    let bench = Bench::new();
    let path = bench.path("root").join("old");
    turnjail_tests::jails::write_program(&path, &program_of_32_bits());
    let control = bench.outside(&[json!(["execute", path])]);
    assert_eq!(control.end, Status::Code(42), "this kernel runs none: {control:?}");
    let report = bench.acts(Profile::General, &[json!(["execute", "/old"])]);
    assert!(report.filtered_at(0), "{report:?}");
    // Sealed, landlock does not let it start.
    let report = bench.acts(Profile::Sealed, &[json!(["execute", "/old"])]);
    assert_eq!(report.last_error(), Some(EACCES.into()), "{report:?}");
}

fn a16_types() {
    let bench = Bench::new();
    let mut acts = Vec::new();
    for family in (0..51).filter(|&family| family != 1) {
        for kind in [1, 2, 3, 5, 10, 1 | CLOSE_ON_EXEC] {
            acts.push(call(numbers::SOCKET, json!([family, kind, 0])));
            acts.push(call(numbers::SOCKETPAIR, json!([family, kind, 0, {"buffer": 8}])));
        }
    }
    let input = serde_json::to_vec(&acts).expect("JSON");
    let report = bench.acts_in(&bench.spec(Profile::General, &["-"]), &input);
    assert_eq!(report.lines.len(), acts.len());
    for (line, act) in report.lines.iter().zip(acts) {
        assert_eq!(line["errno"], EAFNOSUPPORT, "{act}");
    }
}

fn a16_families() {
    let bench = Bench::new();
    let socket = |family: i64, kind: i64, protocol: i64| {
        [call(numbers::SOCKET, json!([family, kind, protocol]))]
    };
    for &profile in PROFILES {
        for family in [2, 10] {
            for kind in [1, 2, 1 | CLOSE_ON_EXEC, 2 | CLOSE_ON_EXEC] {
                assert_forbidden(&bench, profile, "IP", EAFNOSUPPORT, &socket(family, kind, 0));
            }
        }
        for protocol in [0, 4, 6, 9, 12, 15, 16] {
            assert_forbidden(&bench, profile, "netlink", EAFNOSUPPORT, &socket(16, 3, protocol));
        }
        let high = (1_i64 << 32) | 2;
        assert_forbidden(&bench, profile, "IP, high bits", EAFNOSUPPORT, &socket(high, 1, 0));
        for family in (0..51).filter(|&family| family != 1) {
            let act = socket(family, 1 | CLOSE_ON_EXEC, 0);
            assert_forbidden_inside(&bench, profile, "a family", EAFNOSUPPORT, &act);
        }
        let pair = [call(numbers::SOCKETPAIR, json!([2, 1, 0, {"buffer": 8}]))];
        assert_forbidden_inside(&bench, profile, "a pair", EAFNOSUPPORT, &pair);
        let unix = bench.acts(profile, &socket(1, 1 | CLOSE_ON_EXEC, 0));
        assert!(unix.worked(), "a Unix socket: {unix:?}");
    }
}

fn a16_abstract() {
    let bench = Bench::new();
    let name = unique_word("turnjail-test");
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    let _listener = UnixListener::bind_addr(&address).expect("a listener");
    let act = [json!(["connect", format!("@{name}")])];
    for &profile in PROFILES {
        // Another network namespace, and landlock's scope.
        assert_refused(&bench, profile, "an abstract name", &[ECONNREFUSED, EPERM], &act, &act);
    }
    // The one socket that is to be reached.
    let _broker = UnixListener::bind(bench.path("run").join("broker.sock")).expect("a listener");
    for &profile in PROFILES {
        let report = bench.acts(profile, &[json!(["connect", "/broker/broker.sock"])]);
        assert!(report.worked(), "the broker: {report:?}");
    }
}

/// Calls that no jail may make, with the general profile's answer; with arguments that are all zero the
/// kernel would refuse most of them too, but with other errors.
const NEVER: &[(i32, &[Call])] = &[
    (
        EPERM,
        &[
            numbers::BPF,
            numbers::KEYCTL,
            numbers::ADD_KEY,
            numbers::REQUEST_KEY,
            numbers::PERF_EVENT_OPEN,
            numbers::PROCESS_VM_READV,
            numbers::PROCESS_VM_WRITEV,
            numbers::PROCESS_MADVISE,
            numbers::KCMP,
            numbers::OPEN_BY_HANDLE_AT,
            numbers::QUOTACTL,
            numbers::QUOTACTL_FD,
            numbers::VHANGUP,
            numbers::ACCT,
            numbers::SWAPON,
            numbers::REBOOT,
            numbers::KEXEC_LOAD,
            numbers::KEXEC_FILE_LOAD,
            numbers::INIT_MODULE,
            numbers::FINIT_MODULE,
            numbers::SETTIMEOFDAY,
            numbers::CLOCK_SETTIME,
            numbers::ADJTIMEX,
            numbers::SETHOSTNAME,
            numbers::SYSLOG,
            numbers::LOOKUP_DCOOKIE,
            numbers::MBIND,
            numbers::MOVE_PAGES,
            numbers::FANOTIFY_INIT,
            numbers::REMAP_FILE_PAGES,
            numbers::IOPL,
            numbers::IOPERM,
            numbers::MODIFY_LDT,
        ],
    ),
    (
        ENOSYS,
        &[
            numbers::USERFAULTFD,
            numbers::IO_URING_SETUP,
            numbers::IO_URING_ENTER,
            numbers::IO_URING_REGISTER,
            numbers::IO_SETUP,
            numbers::SHMGET,
            numbers::SEMGET,
            numbers::MSGGET,
            numbers::MQ_OPEN,
            numbers::MEMFD_CREATE,
            numbers::MEMFD_SECRET,
            numbers::CACHESTAT,
            numbers::MAP_SHADOW_STACK,
            numbers::STATMOUNT,
            numbers::LISTMOUNT,
            numbers::SECCOMP,
            numbers::LANDLOCK_CREATE_RULESET,
        ],
    ),
];

fn a17() {
    let bench = Bench::new();
    for &profile in PROFILES {
        for (errno, calls) in NEVER {
            // Not every machine has all of them.
            for &one in calls.iter().filter(|one| one.number(Machine::NATIVE).is_some()) {
                let act = [call(one, json!([]))];
                assert_forbidden_inside(&bench, profile, one.name, *errno, &act);
            }
        }
        for number in (460..521).chain([1000]) {
            // A mount by its attributes, refused like the others of its kind.
            let errno = if number == 467 { EPERM } else { ENOSYS };
            let act = [numbered(number, json!([]))];
            assert_forbidden_inside(&bench, profile, "a new number", errno, &act);
        }
        // Without privileges and with good arguments these work on the host.
        for (what, errno, act) in [
            ("a keyring", EPERM, call(numbers::KEYCTL, json!([0, -3, 1]))),
            ("memory as a file", ENOSYS, call(numbers::MEMFD_CREATE, json!(["x", 0]))),
            ("a message queue", ENOSYS, call(numbers::MSGGET, json!([0, 0o1600]))),
            ("shared memory", ENOSYS, call(numbers::SHMGET, json!([0, 4096, 0o1600]))),
            ("a ruleset", ENOSYS, call(numbers::LANDLOCK_CREATE_RULESET, json!([0, 0, 1]))),
        ] {
            assert_forbidden(&bench, profile, what, errno, &[act]);
        }
        #[cfg(target_arch = "x86_64")]
        for (what, act) in [
            ("the level of ports", call(numbers::IOPL, json!([0]))),
            ("a port", call(numbers::IOPERM, json!([0, 1, 0]))),
            ("segments", call(numbers::MODIFY_LDT, json!([0, {"buffer": 16}, 16]))),
        ] {
            assert_forbidden(&bench, profile, what, EPERM, &[act]);
        }
    }
}

fn a18() {
    let bench = Bench::new();
    let path = bench.path("workspace").join("file");
    fs::write(&path, "content").expect("a file");
    let file = |path: &str| call(numbers::OPENAT, json!([HERE, path, 0, 0]));
    let pipe = call(numbers::PIPE2, json!([{"buffer": 8}, 0]));
    let splice = call(numbers::SPLICE, json!([{"of": 0}, 0, {"word": [1, 0, 4]}, 0, 1, 0]));
    let control = bench.outside(&[file(&path.to_string_lossy()), pipe.clone(), splice]);
    assert!(control.worked(), "splice fails anyway: {control:?}");
    let send = call(numbers::SENDFILE, json!([{"word": [1, 0, 4]}, {"of": 0}, 0, 1]));
    let control = bench.outside(&[file(&path.to_string_lossy()), pipe, send]);
    assert!(control.worked(), "sendfile fails anyway: {control:?}");
    for &profile in PROFILES {
        for (one, errno) in [
            (numbers::SPLICE, ENOSYS),
            (numbers::TEE, ENOSYS),
            (numbers::VMSPLICE, ENOSYS),
            (numbers::SENDFILE, EINVAL),
        ] {
            let act = [file("/workspace/file"), call(one, json!([1, {"of": 0}, 0, 1]))];
            assert_forbidden_inside(&bench, profile, one.name, errno, &act);
        }
    }
}

/// Whatever a program tries on the files of its image, the next turn and the store find them as they were:
/// both read through the same pages.
fn a18_pages() {
    let bench = Bench::new();
    let store = ImageStore::open(&bench.path("images")).expect("a store");
    let archive = bench.path("archive");
    fs::write(&archive, image("probe", PROBE, configuration())).expect("an archive");
    let (source, name) = (Source::Path(archive), "probe".parse().expect("a name"));
    let imported = store.import(source, &name, &ImportOptions::default()).expect("an image");
    let rootfs = imported.image.rootfs.clone();
    let file = |flags: i64| call(numbers::OPENAT, json!([HERE, "/worker", flags, 0]));
    let to = call(numbers::OPENAT, json!([HERE, "/workspace/copy", 0o102, 0o600]));
    let pipe = call(numbers::PIPE2, json!([{"buffer": 8}, 0]));
    let (from, input) = (json!({"of": 0}), json!({"word": [1, 0, 4]}));
    let out = json!({"word": [1, 0, 0]});
    let sockets = call(numbers::SOCKETPAIR, json!([1, 1, 0, {"buffer": 8}]));
    let map = |access: i64, flags: i64| {
        call(numbers::MMAP, json!([0, 4096, access, flags, {"of": 0}, 0]))
    };
    let vector = json!([["xxxxxxxx", 8]]);
    let attempts = vec![
        vec![file(0), pipe.clone(), call(numbers::SPLICE, json!([from, 0, input, 0, 64, 0]))],
        vec![file(0), pipe.clone(), call(numbers::TEE, json!([out, input, 64, 0]))],
        vec![file(0), pipe, call(numbers::VMSPLICE, json!([input, vector, 1, 8]))],
        vec![file(0), sockets, call(numbers::SENDFILE, json!([{"word": [1, 0, 0]}, from, 0, 64]))],
        vec![file(0), to, call(numbers::COPY_FILE_RANGE, json!([from, 0, {"of": 1}, 0, 64, 0]))],
        vec![file(1)],
        vec![file(0o1001)],
        vec![file(0), call(numbers::PWRITE64, json!([{"of": 0}, "xxxxxxxx", 8, 0]))],
        vec![file(0), map(3, 1)],
        vec![json!(["write", "/proc/self/fd/0", "x"]), json!(["write", "/worker", "x"])],
    ];
    for &profile in PROFILES {
        for acts in &attempts {
            let mut spec = bench.spec_for(profile, acts);
            spec.rootfs.clone_from(&rootfs);
            let report = bench.acts_in(&spec, b"");
            // From a file into a file of one's own is a copy, and lets its source alone.
            let copied = acts.len() == 3 && acts[2][1] == json!(copy_number());
            let refused =
                report.reason == Some(ExitReason::Filter) || report.last_error().is_some();
            assert!(refused || copied, "{acts:?} under {profile}: {report:?}");
            let mut next = bench.spec_for(profile, &[json!(["print", "as ever"])]);
            next.rootfs.clone_from(&rootfs);
            assert_eq!(bench.run(&next, b"").expect("a jail").stdout, b"as ever{\"value\":7}\n");
            let program = fs::read(rootfs.join("worker")).expect("the program");
            assert!(program == PROBE, "{acts:?} under {profile} changed the program");
        }
    }
    assert_eq!(store.verify().expect("looked at").differences, []);
    // The control: a single byte shows, in the next turn as well as in the store.
    let program = rootfs.join("worker");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("this user's");
    let mut bytes = PROBE.to_vec();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&program, bytes).expect("written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o555)).expect("this user's");
    assert_ne!(store.verify().expect("looked at").differences, [], "the control shows nothing");
}

fn copy_number() -> u32 {
    numbers::COPY_FILE_RANGE.number(Machine::NATIVE).expect("one")
}

fn a20_calls() {
    let bench = Bench::new();
    // TIOCSTI, TIOCLINUX, TIOCSCTTY, TIOCNOTTY, TIOCSPGRP, and TIOCSTI with a bit that the kernel
    // ignores.
    for command in [0x5412, 0x541c, 0x540e, 0x5422, 0x5410, (1_i64 << 32) | 0x5412] {
        let act = |descriptor: i64| [call(numbers::IOCTL, json!([descriptor, command, "x"]))];
        // Of a pipe the kernel says the same as the filter; of nothing it does not.
        let control = bench.outside(&act(-1));
        assert_eq!(control.last_error(), Some(EBADF), "{control:?}");
        for descriptor in -1..3 {
            for &profile in PROFILES {
                assert_forbidden_inside(&bench, profile, "an ioctl", ENOTTY, &act(descriptor));
            }
        }
    }
    // What may be asked is answered by the kernel.
    let asked = [call(numbers::IOCTL, json!([-1, 0x541b, {"buffer": 4}]))];
    assert_eq!(bench.acts(Profile::General, &asked).last_error(), Some(EBADF));
}

/// The same as when there is no terminal, in a host that has one.
fn a20_terminal() {
    let program = std::env::current_exe().expect("this program");
    let inner = format!("{} --exact {}", program.display(), inside::SESSION);
    let output = Command::new("script")
        .args(["-qec", &inner, "/dev/null"])
        .env(inside::HAS_TERMINAL, "1")
        .stdin(std::process::Stdio::null())
        .output()
        .expect("script");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}
