//! A08 to A12: mounts, namespaces, other processes and privileges.

use serde_json::{Value, json};
use turnjail_jail::Profile;
use turnjail_tests::Test;
use turnjail_tests::acts::call;
use turnjail_tests::jails::Bench;
use turnjail_warden::seccomp::numbers::{self, Call};

use crate::support::{
    HERE, PROFILES, assert_control, assert_forbidden, assert_forbidden_inside, assert_refused,
    contains, held,
};

pub const TESTS: &[Test] = &[
    Test::new("a08_mounts_cannot_be_changed", a08_calls),
    Test::new("a08_what_is_read_only_stays_so", a08_writes),
    Test::new("a09_no_further_namespaces", a09_calls),
    Test::new("a09_nor_without_the_filter", a09_limits),
    Test::new("a10_no_way_through_proc_or_other_processes", a10),
    Test::new("a12_no_other_identity", a12),
    Test::new("a12_a_general_program_sees_no_privilege", a12_seen),
];

const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;
const ENOSYS: i32 = 38;

fn open(path: &str, flags: i64) -> Value {
    call(numbers::OPENAT, json!([HERE, path, flags, 0]))
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
        let clone = |flags: i64| call(numbers::CLONE, json!([flags | 0x11, 0, 0, 0, 0]));
        let clone3 = |flags: i64| call(numbers::CLONE3, json!([[flags, 0, 0, 0, 17, 0, 0, 0], 64]));
        // That of a control is waited for (CLONE_VFORK), and leaves nobody (an ignored signal).
        for (what, act) in [("clone", clone(flag | 0x4000)), ("clone3", clone3(flag | 0x4000))] {
            assert_control(what, &bench.outside(&[json!(["ignore"]), act]));
        }
        let (clone, clone3) = ([clone(flag)], [clone3(flag)]);
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
        // On itself, which any process may do.
        let own = call(numbers::GETPID, json!([]));
        let (from, to) = (json!(["x", 1]), json!([{"buffer": 1}, 1]));
        for (what, act) in [
            (
                "process_vm_readv",
                call(numbers::PROCESS_VM_READV, json!([{"of": 0}, to, 1, from, 1, 0])),
            ),
            ("kcmp", call(numbers::KCMP, json!([{"of": 0}, {"of": 0}, 0, 0, 0]))),
        ] {
            assert_forbidden(&bench, profile, what, EPERM, &[own.clone(), act]);
        }
        let stolen = |from: Value| call(numbers::PIDFD_GETFD, json!([from, 0, 0]));
        assert_forbidden_inside(&bench, profile, "pidfd_getfd", EPERM, &[stolen(json!(-1))]);
        if profile == Profile::General {
            let opened = call(numbers::PIDFD_OPEN, json!([{"of": 0}, 0]));
            let acts = [own, opened, stolen(json!({"of": 1}))];
            assert_forbidden(&bench, profile, "pidfd_getfd", EPERM, &acts);
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
