//! A01 to A12: how the jail is built.

use std::fs::{self, File};
use std::os::fd::AsFd as _;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixDatagram;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use serde_json::{Value, json};
use turnjail_jail::Profile;
use turnjail_tests::Test;
use turnjail_tests::acts::call;
use turnjail_tests::jails::{Bench, PROBE};
use turnjail_warden::seccomp::numbers::{self, Call};

use crate::support::{
    HERE, PROFILES, assert_forbidden, assert_forbidden_inside, assert_refused, contains, held,
};

pub const TESTS: &[Test] = &[
    Test::new("a01_the_runtime_cannot_be_overwritten", a01_runtime),
    Test::new("a01_a_program_through_a_magic_link_is_refused", a01_entry),
    Test::new("a02_a_working_directory_stays_inside", a02),
    Test::new("a03_descriptors_are_three_pipes", a03),
    Test::new("a05_no_kernel_files", a05),
    Test::new("a08_mounts_cannot_be_changed", a08_calls),
    Test::new("a08_what_is_read_only_stays_so", a08_writes),
    Test::new("a09_no_further_namespaces", a09_calls),
    Test::new("a09_nor_without_the_filter", a09_limits),
    Test::new("a10_no_way_through_proc_or_other_processes", a10),
    Test::new("a12_no_other_identity", a12),
    Test::new("a12_a_general_program_sees_no_privilege", a12_seen),
];

const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;
const ENOSYS: i32 = 38;
const EPERM: i32 = 1;

const WRITE: i64 = 1;

fn open(path: &str, flags: i64) -> Value {
    call(numbers::OPENAT, json!([HERE, path, flags, 0]))
}

fn a01_runtime() {
    let bench = Bench::new();
    let copy = bench.path("copy");
    fs::write(&copy, PROBE).expect("a copy");
    for &profile in PROFILES {
        let control = [open(&copy.to_string_lossy(), WRITE)];
        let program = [open("/worker", WRITE)];
        assert_refused(&bench, profile, "its program", &[EACCES, EROFS], &control, &program);
        for path in ["/proc/self/exe", "/proc/1/exe", "/proc/self/root/worker"] {
            let write = [open(path, WRITE)];
            assert_refused(&bench, profile, path, &[ENOENT, EACCES, EROFS], &control, &write);
        }
    }
    let program = fs::read(bench.path("root").join("worker")).expect("the program");
    assert!(program == PROBE, "the program was changed");
}

fn a01_entry() {
    let bench = Bench::new();
    let root = bench.path("root");
    symlink("/proc/self/exe", root.join("magic")).expect("a link");
    symlink("worker", root.join("plain")).expect("a link");
    fs::write(root.join("script"), "#!/proc/self/exe\n").expect("a script");
    let mode = fs::metadata(root.join("worker")).expect("the program").permissions();
    fs::set_permissions(root.join("script"), mode).expect("its mode");
    for &profile in PROFILES {
        let run = |program: &str| {
            let mut spec = bench.spec_for(profile, &[json!(["print", "ran"])]);
            program.clone_into(&mut spec.command[0]);
            bench.run(&spec, b"")
        };
        let control = run("/plain").expect("a link within the image is followed");
        assert!(control.stdout.starts_with(b"ran"), "{control:?}");
        for program in ["/magic", "/script"] {
            assert!(run(program).is_err(), "{program} was started");
        }
    }
}

fn a02() {
    let bench = Bench::new();
    let root = bench.path("root");
    let up = "../".repeat(20) + "etc";
    symlink(&up, root.join("up")).expect("a link");
    symlink("/etc", root.join("absolute")).expect("a link");
    fs::write(root.join("file"), "").expect("a file");
    assert!(fs::read_dir(root.join("up")).is_ok(), "the control leads nowhere");
    let outside: Vec<String> = ["up", "absolute", "missing", "file", "workspace/../../../../etc"]
        .iter()
        .map(|name| format!("/{name}"))
        .chain((0..64).map(|number| format!("/proc/self/fd/{number}")))
        .chain(["..".to_owned(), up, "/../../../etc".to_owned()])
        .collect();
    for &profile in PROFILES {
        for directory in &outside {
            let acts =
                [json!(["status", "."]), json!(["status", "../../../.."]), json!(["status", "/"])];
            let mut spec = bench.spec_for(profile, &acts);
            directory.clone_into(&mut spec.working_dir);
            // Refusing to start is right too.
            if bench.run(&spec, b"").is_err() {
                continue;
            }
            let report = bench.acts_in(&spec, b"");
            let place = |act: usize| [&report.list(act)[1], &report.list(act)[2]];
            assert_eq!(place(0), place(2), "{directory} led to somewhere else than the root");
            assert_eq!(place(1), place(2), "{directory}");
        }
        let mut spec = bench.spec_for(profile, &[json!(["status", "."])]);
        "/workspace".clone_into(&mut spec.working_dir);
        let inode = nix::sys::stat::stat(&bench.path("workspace")).expect("it is there").st_ino;
        assert_eq!(bench.acts_in(&spec, b"").list(0)[2], inode);
    }
}

fn a03() {
    let own = tempfile::tempdir().expect("a directory");
    let key = own.path().join("key");
    fs::write(&key, "secret").expect("a file");
    let (socket, _other) = UnixDatagram::pair().expect("sockets");
    let (directory, key) = (File::open(own.path()).expect("it"), File::open(key).expect("it"));
    for descriptor in [socket.as_fd(), directory.as_fd(), key.as_fd()] {
        fcntl(descriptor, FcntlArg::F_SETFD(FdFlag::empty())).expect("inheritable");
    }
    // After them: the warden is started with what this process lets through.
    let bench = Bench::new();
    let acts = [json!(["descriptors"])];
    assert!(bench.outside(&acts).list(0).len() >= 6, "the control does not inherit them");
    for &profile in PROFILES {
        let report = bench.acts(profile, &acts);
        let numbers: Vec<&Value> = report.list(0).iter().map(|one| &one[0]).collect();
        assert_eq!(numbers, [0, 1, 2]);
        for one in report.list(0) {
            const FIFO: u64 = 0o010_000;
            assert_eq!(one[1].as_u64().expect("a mode") & 0o170_000, FIFO, "{one}");
        }
    }
}

fn a05() {
    let bench = Bench::new();
    let control = [json!(["read", "/proc/sys/kernel/core_pattern"]), json!(["list", "/sys"])];
    assert!(bench.outside(&control).worked(), "the host has none either");
    let paths = [
        "/proc/sys/kernel/core_pattern",
        "/proc/sysrq-trigger",
        "/proc/kcore",
        "/proc/kmsg",
        "/proc/keys",
        "/proc/timer_list",
        "/proc/bus",
        "/proc/irq",
        "/proc/acpi",
        "/proc/scsi",
        "/sys",
        "/sys/fs/cgroup",
    ];
    let acts: Vec<Value> =
        paths.iter().flat_map(|path| [open(path, 0), open(path, WRITE)]).collect();
    for &profile in PROFILES {
        let report = bench.acts(profile, &acts);
        assert_eq!(report.lines.len(), acts.len(), "{report:?}");
        for (line, act) in report.lines.iter().zip(&acts) {
            assert_eq!(line["errno"], ENOENT, "{act} under {profile}");
        }
    }
    // A general jail has entries of its own processes. None of them can be written.
    let control = bench.outside(&[open("/proc/self/oom_score_adj", WRITE)]);
    assert!(control.worked(), "the host cannot write its own either: {control:?}");
    for name in ["attr/current", "oom_score_adj", "uid_map", "setgroups", "mem", "clear_refs"] {
        let path = format!("/proc/self/{name}");
        let report = bench.acts(Profile::General, &[open(&path, WRITE)]);
        let refused = [EACCES, EROFS].map(|errno| Some(errno.into()));
        assert!(refused.contains(&report.last_error()), "{name}: {report:?}");
    }
}

/// New user and mount namespaces, in which mounting is nobody's privilege.
fn own_namespaces() -> Value {
    call(numbers::UNSHARE, json!([0x1002_0000]))
}

fn a08_calls() {
    let bench = Bench::new();
    let mount = call(numbers::MOUNT, json!(["tmpfs", "/tmp", "tmpfs", 0, 0]));
    // Recursive, since what is mounted below it on the host is locked.
    let bind = call(numbers::MOUNT, json!(["/tmp", "/tmp", 0, 4096 | 0x4000, 0]));
    let remount = call(numbers::MOUNT, json!([0, "/tmp", 0, 4096 | 32, 0]));
    let unmount = call(numbers::UMOUNT2, json!(["/tmp", 0]));
    let new = call(numbers::FSOPEN, json!(["tmpfs", 0]));
    let tree = call(numbers::OPEN_TREE, json!([HERE, "/tmp", 0x8_8001]));
    let attributes = call(numbers::MOUNT_SETATTR, json!([HERE, "/tmp", 0, [1, 0, 0, 0], 32]));
    let root = call(numbers::CHROOT, json!(["/"]));
    let acts: &[(&str, &[&Value])] = &[
        ("mount", &[&mount]),
        ("bind", &[&bind]),
        ("remount", &[&mount, &remount]),
        ("umount", &[&mount, &unmount]),
        ("fsopen", &[&new]),
        ("open_tree", &[&tree]),
        ("mount_setattr", &[&mount, &attributes]),
        ("chroot", &[&root]),
    ];
    for (what, acts) in acts {
        let first = own_namespaces();
        let control: Vec<Value> =
            [&first].into_iter().chain(acts.iter().copied()).cloned().collect();
        let report = bench.outside(&control);
        assert!(report.worked(), "{what} fails anyway: {report:?}");
        let act = [acts[acts.len() - 1].clone()];
        for &profile in PROFILES {
            assert_forbidden_inside(&bench, profile, what, EPERM, &act);
        }
    }
    let others: &[Call] = &[numbers::PIVOT_ROOT, numbers::MOVE_MOUNT, numbers::FSMOUNT];
    for call in others {
        for &profile in PROFILES {
            let act = [turnjail_tests::acts::call(*call, json!([]))];
            assert_forbidden_inside(&bench, profile, call.name, EPERM, &act);
        }
    }
}

fn a08_writes() {
    let bench = Bench::new();
    for (outside, inside) in
        [("root/new", "/new"), ("run/new", "/broker/new"), ("root/tmp/x", "/etc")]
    {
        let control = [json!(["write", bench.path(outside), "x"])];
        let act = [json!(["write", inside, "x"])];
        for &profile in PROFILES {
            assert_refused(&bench, profile, inside, &[EROFS, EACCES], &control, &act);
            // The mount alone, without landlock in front of it.
            let mut spec = bench.spec_for(profile, &act);
            spec.landlock = false;
            assert_eq!(bench.acts_in(&spec, b"").last_error(), Some(EROFS.into()), "{inside}");
        }
    }
    for &profile in PROFILES {
        let act = [json!(["write", "/workspace/new", "x"])];
        assert!(bench.acts(profile, &act).worked(), "the workspace cannot be written");
    }
}

fn a09_calls() {
    let bench = Bench::new();
    for flag in [0x1000_0000, 0x1002_0000, 0x5000_0000, 0x3000_0000, 0x1c00_0000_i64] {
        let unshare = [call(numbers::UNSHARE, json!([flag]))];
        // The child of the call ends as the probe itself does: after its last act.
        let clone = [call(numbers::CLONE, json!([flag | 0x11, 0, 0, 0, 0]))];
        let clone3 = [call(numbers::CLONE3, json!([[flag, 0, 0, 0, 17, 0, 0, 0], 64]))];
        for &profile in PROFILES {
            assert_forbidden(&bench, profile, "unshare", EPERM, &unshare);
            assert_forbidden_inside(&bench, profile, "clone", EPERM, &clone);
            assert_forbidden_inside(&bench, profile, "clone3", ENOSYS, &clone3);
        }
    }
    // That it works where it may is seen in a09_limits, which enters the jail's.
    for &profile in PROFILES {
        let act = [call(numbers::SETNS, json!([0, 0x1000_0000]))];
        assert_forbidden_inside(&bench, profile, "setns", EPERM, &act);
    }
}

/// A process of the host enters the jail's user namespace, where it has every capability and no filter,
/// and still can make no namespace.
fn a09_limits() {
    let bench = Bench::new();
    let unshare = |flag: i64| call(numbers::UNSHARE, json!([flag]));
    assert!(bench.outside(&[unshare(0x1000_0000)]).worked(), "the host makes none either");
    for &profile in PROFILES {
        held(&bench, profile, &[], |process| {
            let namespace = process.dir.join("ns/user");
            for flag in [0x1000_0000, 0x2_0000, 0x4000_0000, 0x2000_0000, 0x800_0000, 0x400_0000] {
                let enter = call(numbers::SETNS, json!([{"of": 0}, 0x1000_0000]));
                let acts = [open(&namespace.to_string_lossy(), 0), enter, unshare(flag)];
                let report = bench.outside(&acts);
                assert_eq!(report.value(1), 0, "it was not entered: {report:?}");
                assert_eq!(report.last_error(), Some(ENOSPC.into()), "{flag:x}: {report:?}");
            }
        });
    }
}

fn a10() {
    let bench = Bench::new();
    for &profile in PROFILES {
        for name in ["root", "cwd", "exe", "environ", "mem", "maps", "fd", "map_files", "task"] {
            let act = [open(&format!("/proc/1/{name}"), 0)];
            let control = [open("/proc/self/environ", 0), open("/proc/self/root", 0)];
            assert_refused(&bench, profile, name, &[ENOENT, EACCES], &control, &act);
        }
        let trace = [call(numbers::PTRACE, json!([0, 0, 0, 0]))];
        assert_forbidden(&bench, profile, "ptrace", EPERM, &trace);
        let user = bench.path("workspace").to_string_lossy().into_owned();
        for (what, act) in [
            (
                "process_vm_readv",
                call(numbers::PROCESS_VM_READV, json!([1, [0, 0], 1, [0, 0], 1, 0])),
            ),
            ("kcmp", call(numbers::KCMP, json!([1, 1, 0, 0, 0]))),
            ("pidfd_getfd", call(numbers::PIDFD_GETFD, json!([0, 0, 0]))),
        ] {
            assert_forbidden_inside(&bench, profile, what, EPERM, &[act]);
        }
        // What the jail's own entries say, as the host sees them.
        held(&bench, profile, &[], |process| {
            let environ = process.file("environ");
            assert!(!environ.contains("CARGO"), "a variable of the host's: {environ}");
            assert!(!contains(environ.as_bytes(), user.as_bytes()), "{environ}");
        });
    }
    assert!(std::env::vars().count() > 2, "the control has no environment");
}

fn a12() {
    let bench = Bench::new();
    let uid = nix::unistd::geteuid().as_raw();
    for &profile in PROFILES {
        for (what, act) in [
            ("setuid", call(numbers::SETUID, json!([uid]))),
            ("setresuid", call(numbers::SETRESUID, json!([uid, uid, uid]))),
            ("setfsuid", call(numbers::SETFSUID, json!([uid]))),
        ] {
            assert_forbidden(&bench, profile, what, EPERM, &[act]);
        }
        for (what, act) in [
            ("setuid(0)", call(numbers::SETUID, json!([0]))),
            ("setresuid(0)", call(numbers::SETRESUID, json!([0, 0, 0]))),
            ("setgroups", call(numbers::SETGROUPS, json!([0, 0]))),
            ("capset", call(numbers::CAPSET, json!([[0x2008_0522], [0, 0, 0]]))),
        ] {
            assert_forbidden_inside(&bench, profile, what, EPERM, &[act]);
        }
    }
}

const PR_GET_SECCOMP: i64 = 21;
const PR_CAPBSET_READ: i64 = 23;
const PR_GET_SECUREBITS: i64 = 27;
const PR_GET_NO_NEW_PRIVS: i64 = 39;
const PR_CAP_AMBIENT: i64 = 47;

fn a12_seen() {
    let prctl =
        |option: i64, one: i64, other: i64| call(numbers::PRCTL, json!([option, one, other, 0, 0]));
    let version = json!({"hex": "2205082000000000"});
    let mut acts = vec![
        call(numbers::CAPGET, json!([version, {"buffer": 24}])),
        prctl(PR_GET_SECUREBITS, 0, 0),
        prctl(PR_GET_NO_NEW_PRIVS, 0, 0),
        prctl(PR_GET_SECCOMP, 0, 0),
    ];
    let first = acts.len();
    acts.extend((0..64).map(|capability| prctl(PR_CAPBSET_READ, capability, 0)));
    acts.extend((0..64).map(|capability| prctl(PR_CAP_AMBIENT, 1, capability)));
    let bench = Bench::new();
    let control = bench.outside(&acts);
    assert_eq!((control.value(2), control.value(first)), (0, 1), "the control has none either");
    let report = bench.acts(Profile::General, &acts);
    assert_eq!(report.buffer(0, 1), [0; 24], "a capability");
    assert_eq!((report.value(1), report.value(2), report.value(3)), (0xef, 1, 2));
    for line in &report.lines[first..] {
        // Beyond the last capability of the kernel the question is wrong.
        assert!(line["value"] == 0 || line["errno"] == 22, "{line}");
    }
}
