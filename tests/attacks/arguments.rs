//! A07, A10, A12 and A17 in forms of their own: what reaches the host by the arguments of calls that every
//! program needs, by the doors of /proc, by nodes that were forgotten, by capabilities of files.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Instant;

use serde_json::{Value, json};
use tempfile::TempDir;
use turnjail_jail::Profile;
use turnjail_tests::acts::{call, control};
use turnjail_tests::jails::{Bench, PROBE};
use turnjail_tests::{Fact, Test};
use turnjail_warden::seccomp::numbers;

use crate::support::{HERE, PROFILES, assert_forbidden, assert_forbidden_inside};

pub const TESTS: &[Test] = &[
    Test::new("a07_no_other_devices_are_there", a07),
    Test::new("a10_every_door_of_proc_leads_to_the_jail_itself", a10),
    Test::with("a12_capabilities_of_a_file_are_nothing", &[Fact::Jail, Fact::Root], a12),
    Test::new("a17_arguments_that_reach_the_host_are_refused", a17),
];

const EPERM: i32 = 1;
const ENOENT: i64 = 2;
const EACCES: i64 = 13;
const EINVAL: i32 = 22;
const ENOPROTOOPT: i32 = 92;
const EOPNOTSUPP: i32 = 95;

fn a07() {
    let bench = Bench::new();
    let names = [
        "tty",
        "console",
        "ptmx",
        "pts",
        "mem",
        "kmem",
        "port",
        "kvm",
        "fuse",
        "dri",
        "net/tun",
        "vda",
        "sda",
        "loop0",
        "loop-control",
        "mapper",
        "kmsg",
        "vhost-vsock",
        "userfaultfd",
        "mqueue",
    ];
    let acts: Vec<Value> =
        names.iter().map(|name| json!(["status", format!("/dev/{name}")])).collect();
    let outside = bench.outside(&acts);
    assert!(outside.lines.iter().any(|line| line["list"].is_array()), "the host has none either");
    for &profile in PROFILES {
        let report = bench.acts(profile, &acts);
        // Under the sealed profile there is nothing in /dev at all.
        for (line, name) in report.lines.iter().zip(names) {
            assert_eq!(line["errno"], ENOENT, "{name} under {profile}");
        }
        assert_eq!(report.lines.len(), names.len(), "{report:?}");
    }
}

/// Device and inode.
fn place(line: &Value) -> [&Value; 2] {
    [&line["list"][1], &line["list"][2]]
}

fn a10() {
    let bench = Bench::new();
    // A trailing slash, so that the link itself is not what is looked at.
    let doors = [
        "/",
        "/proc/self/root/",
        "/proc/thread-self/root/",
        "/proc/self/cwd/",
        "/proc/self/root/../",
        "/proc/self/cwd/../../",
        "/proc/self/task/2/root/",
        "/proc/2/root/",
    ];
    let acts: Vec<Value> = doors.iter().map(|door| json!(["status", door])).collect();
    let control = bench.outside(&acts[..2]);
    let report = bench.acts(Profile::General, &acts);
    assert_ne!(place(control.line(1)), place(report.line(0)), "the host's root is the jail's");
    for (line, door) in report.lines.iter().zip(doors) {
        assert_eq!(place(line), place(report.line(0)), "{door}: {line}");
    }
    // Its own processes, and the first of them only by its number.
    let report = bench.acts(Profile::General, &[json!(["list", "/proc"])]);
    let numbers = report.list(0).iter().filter_map(|name| name.as_str()?.parse::<u32>().ok());
    assert!(numbers.clone().all(|number| number <= 2), "{report:?}");
    for name in ["root/", "cwd/", "ns/", "fd/", "map_files/", "task/1/root/"] {
        let report = bench.acts(Profile::General, &[json!(["list", format!("/proc/1/{name}")])]);
        let refused = [ENOENT, EACCES, EPERM.into()].map(Some);
        assert!(refused.contains(&report.last_error()), "{name}: {report:?}");
    }
    // By a descriptor of a directory, again and again upwards.
    let open = call(numbers::OPENAT, json!([HERE, "/proc/self/root", 0o200_000, 0]));
    let mut acts = vec![open];
    acts.extend((0..8).map(|at| call(numbers::OPENAT, json!([{"of": at}, "..", 0o200_000, 0]))));
    acts.push(call(numbers::FCHDIR, json!([{"of": 8}])));
    acts.extend([json!(["directory"]), json!(["status", "."]), json!(["status", "/"])]);
    let report = bench.acts(Profile::General, &acts);
    assert_eq!(report.text(10), "/", "{report:?}");
    assert_eq!(place(report.line(11)), place(report.line(12)), "{report:?}");
    for path in doors.iter().filter(|door| door.starts_with("/proc")) {
        let report = bench.acts(Profile::Sealed, &[json!(["status", path])]);
        assert_eq!(report.last_error(), Some(ENOENT), "{path}: {report:?}");
    }
}

static ROOT: OnceLock<PathBuf> = OnceLock::new();

/// Makes a root filesystem with a program that has file capabilities, when this is root; it goes with the
/// answer.
pub fn prepare() -> Option<TempDir> {
    use std::os::unix::fs::{PermissionsExt as _, chown};
    nix::unistd::geteuid().is_root().then_some(())?;
    let (uid, gid) = turnjail_tests::ordinary();
    let dir = tempfile::Builder::new().prefix("turnjail-filecap-").tempdir_in("/tmp").ok()?;
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).ok()?;
    for name in ["broker", "channel", "dev", "proc", "tmp", "workspace", ""] {
        let path = dir.path().join(name);
        fs::create_dir_all(&path).ok()?;
        chown(&path, Some(uid), Some(gid)).ok()?;
    }
    let path = dir.path().join("capable");
    fs::write(&path, PROBE).ok()?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).ok()?;
    // Revision 2, effective; CAP_DAC_OVERRIDE and CAP_NET_RAW.
    let held = json!({"hex": "0100000202200000000000000000000000000000"});
    let name = "security.capability";
    let act = call(numbers::SETXATTR, json!([path, name, held, 20, 0]));
    let mut command = Command::new(&path);
    command.arg(act.to_string());
    assert!(control(command).worked(), "root can give a file no capabilities");
    ROOT.set(dir.path().to_owned()).ok()?;
    Some(dir)
}

fn a12() {
    let root = ROOT.get().expect("made by root");
    let version = json!({"hex": "2205082000000000"});
    let ask = [call(numbers::CAPGET, json!([version, {"buffer": 24}]))];
    let mut command = Command::new(root.join("capable"));
    command.arg(ask[0].to_string());
    let outside = control(command);
    assert_ne!(outside.buffer(0, 1), [0; 24], "the control has none outside either");
    let bench = Bench::new();
    let mut spec = bench.spec_for(Profile::General, &ask);
    spec.rootfs.clone_from(root);
    "/capable".clone_into(&mut spec.command[0]);
    assert_eq!(bench.acts_in(&spec, b"").buffer(0, 1), [0; 24], "it has capabilities");
    // Nor by a program that executes it.
    let run = json!(["run", "/capable", ask[0].to_string()]);
    let mut spec = bench.spec_for(Profile::General, &[run]);
    spec.rootfs.clone_from(root);
    "/capable".clone_into(&mut spec.command[0]);
    let report = bench.acts_in(&spec, b"");
    let line: Value = serde_json::from_str(report.text(0)).expect("a line of the probe's");
    assert_eq!(line["buffers"][1], "0".repeat(48), "{report:?}");
}

fn a17() {
    let bench = Bench::new();
    fs::write(bench.path("workspace").join("file"), "x").expect("a file");
    let workspace = bench.path("workspace").to_string_lossy().into_owned();
    let outside = format!("{workspace}/file");
    let open =
        |path: String, flags: i64| call(numbers::OPENAT, json!([HERE, path.as_str(), flags, 0]));
    // A lease, a change notice, an owner, a signal, and the same with a bit that the kernel ignores. The
    // owner by its structure is nobody, which every process may name.
    for (what, name, flags, command, argument) in [
        ("a lease", "/file", 2, 1024, json!(1)),
        ("a change notice", "", 0o200_000, 1026, json!(1)),
        ("an owner", "/file", 2, 8, json!(1)),
        ("an owner by its structure", "/file", 2, 15, json!([1])),
        ("a signal", "/file", 2, 10, json!(10)),
        ("a lease, high bits", "/file", 2, (1_i64 << 32) | 1024, json!(1)),
    ] {
        let acts = |workspace: &str| {
            let fcntl = call(numbers::FCNTL, json!([{"of": 0}, command, argument]));
            [open(format!("{workspace}{name}"), flags), fcntl]
        };
        let here = bench.outside(&acts(&workspace));
        // Not every process may be an owner.
        assert!(here.worked() || what == "an owner", "{what} fails anyway: {here:?}");
        for &profile in PROFILES {
            assert_forbidden_inside(&bench, profile, what, EINVAL, &acts("/workspace"));
        }
    }
    // The host's own opening waits for nobody.
    let began = Instant::now();
    fs::OpenOptions::new().write(true).open(&outside).expect("it opens");
    assert!(began.elapsed().as_secs() < 20, "a lease was held");
    let pipe = call(numbers::FCNTL, json!([1, 1031, 1 << 20]));
    let prctl =
        |option: i64, argument: i64| call(numbers::PRCTL, json!([option, argument, 0, 0, 0]));
    for &profile in PROFILES {
        assert_forbidden(&bench, profile, "a pipe's size", EINVAL, std::slice::from_ref(&pipe));
        let readable = call(numbers::PERSONALITY, json!([0x40_0000]));
        assert_forbidden(&bench, profile, "executable memory", EPERM, &[readable]);
        let growing = call(numbers::MMAP, json!([0, 4096, 3, 0x122, -1, 0]));
        assert_forbidden(&bench, profile, "memory that grows down", EPERM, &[growing]);
        // These would change this test's own user, or need what nobody has: without a control.
        for (what, act) in [
            ("a group's priority", call(numbers::SETPRIORITY, json!([1, 0, 19]))),
            ("a user's priority", call(numbers::SETPRIORITY, json!([2, 0, 19]))),
            ("an input priority", call(numbers::IOPRIO_SET, json!([1, 0, 0x6000]))),
            ("limits of another", call(numbers::PRLIMIT64, json!([1, 7, 0, {"buffer": 16}]))),
            ("a filter of its own", prctl(22, 1)),
            ("the layout of memory", prctl(35, 1)),
            ("another's system calls", prctl(59, 1)),
            ("a tracer", prctl(0x5961_6d61, -1)),
            ("secure bits", prctl(28, 0)),
            ("an ambient capability", prctl(47, 2)),
        ] {
            assert_forbidden_inside(&bench, profile, what, EPERM, &[act]);
        }
    }
    let pair = call(numbers::SOCKETPAIR, json!([1, 1, 0, {"buffer": 8}]));
    let socket = json!({"word": [0, 0, 0]});
    for (what, errno, act) in [
        ("urgent data", EOPNOTSUPP, call(numbers::SENDTO, json!([socket, "x", 1, 1, 0, 0]))),
        (
            "urgent data, high bits",
            EOPNOTSUPP,
            call(numbers::SENDTO, json!([socket, "x", 1, (1_i64 << 32) | 1, 0, 0])),
        ),
        (
            "urgent data in line",
            ENOPROTOOPT,
            call(numbers::SETSOCKOPT, json!([socket, 1, 10, [1], 4])),
        ),
    ] {
        let acts = [pair.clone(), act];
        assert_forbidden(&bench, Profile::General, what, errno, &acts);
    }
    // One instruction that accepts everything.
    let program = json!([1, {"hex": "06000000ffffffff"}]);
    let attach = call(numbers::SETSOCKOPT, json!([socket, 1, 26, program, 16]));
    assert_forbidden(
        &bench,
        Profile::General,
        "a program at a socket",
        ENOPROTOOPT,
        &[pair, attach],
    );
}
