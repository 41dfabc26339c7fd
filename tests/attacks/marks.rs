//! A24 to A37: what stays behind, or reaches the host through its file system.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use turnjail_jail::Profile;
use turnjail_tests::acts::call;
use turnjail_tests::jails::Bench;
use turnjail_tests::{Test, unique_word};
use turnjail_warden::seccomp::numbers;

use crate::support::{HERE, PROFILES, Process, assert_control, assert_forbidden_inside};

pub const TESTS: &[Test] = &[
    Test::new("a24_no_daemon_survives_its_jail", a24),
    Test::new("a27_no_set_id_file_is_left", a27),
    Test::new("a27_nor_by_older_calls_unnamed_files_or_spare_bits", a27_more),
    Test::new("a35_no_links_are_planted", a35),
    Test::new("a37_no_special_files_are_planted", a37),
];

const EPERM: i32 = 1;
const ENOENT: i64 = 2;
const EBADF: i64 = 9;
const ENOSYS: i32 = 38;
const EOPNOTSUPP: i32 = 95;

/// The act with a path in the workspace, as it is named outside and inside.
fn both(bench: &Bench, act: impl Fn(&str) -> Vec<Value>) -> (Vec<Value>, Vec<Value>) {
    (act(&bench.path("workspace").to_string_lossy()), act("/workspace"))
}

/// Whether the act works outside, and is refused inside; and nothing in the workspace has a set-id bit
/// after the second.
fn assert_no_mark(
    bench: &Bench,
    profile: Profile,
    what: &str,
    errno: i32,
    act: impl Fn(&str) -> Vec<Value>,
) {
    let (outside, inside) = both(bench, act);
    clean(bench);
    assert_control(what, &bench.outside(&outside));
    clean(bench);
    assert_forbidden_inside(bench, profile, what, errno, &inside);
    for entry in fs::read_dir(bench.path("workspace")).expect("the workspace") {
        let entry = entry.expect("an entry");
        let mode = entry.metadata().expect("it is there").permissions().mode();
        assert_eq!(mode & 0o6000, 0, "{what} left {} with mode {mode:o}", entry.path().display());
    }
}

/// An ordinary file and nothing else.
fn clean(bench: &Bench) {
    let workspace = bench.path("workspace");
    for entry in fs::read_dir(&workspace).expect("the workspace") {
        let path = entry.expect("an entry").path();
        let _ = if path.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) };
    }
    fs::write(workspace.join("file"), "x").expect("a file");
}

fn a24() {
    let bench = Bench::new();
    let acts = |word: &str| [json!(["orphan", 60_000]), json!(["print", word])];
    let word = unique_word("orphan-outside");
    let control = bench.outside(&acts(&word));
    assert_eq!(control.value(0), 0, "{control:?}");
    let left = Process::find_by(&word, |_| true).expect("the control leaves none either");
    let pid = nix::unistd::Pid::from_raw(left.pid());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("it is there");
    let word = unique_word("orphan-inside");
    let start = Instant::now();
    let report = bench.acts(Profile::General, &acts(&word));
    assert_eq!(report.value(0), 0, "{report:?}");
    assert!(start.elapsed() < Duration::from_secs(2), "its end was waited for");
    assert!(Process::find_by(&word, |_| true).is_none(), "it survived");
    let sealed = bench.acts(Profile::Sealed, &acts(&word));
    assert!(sealed.filtered_at(0), "{sealed:?}");
}

fn a27() {
    let bench = Bench::new();
    for &profile in PROFILES {
        set_id_bits(&bench, profile);
    }
}

fn set_id_bits(bench: &Bench, profile: Profile) {
    for mode in [0o4755, 0o2755, 0o6777_i64] {
        let open = |workspace: &str| {
            call(numbers::OPENAT, json!([HERE, format!("{workspace}/file"), 0, 0]))
        };
        assert_no_mark(bench, profile, "fchmodat", EPERM, |workspace| {
            vec![call(numbers::FCHMODAT, json!([HERE, format!("{workspace}/file"), mode]))]
        });
        assert_no_mark(bench, profile, "fchmod", EPERM, |workspace| {
            vec![open(workspace), call(numbers::FCHMOD, json!([{"of": 0}, mode]))]
        });
        assert_no_mark(bench, profile, "fchmodat2", ENOSYS, |workspace| {
            vec![call(numbers::FCHMODAT2, json!([HERE, format!("{workspace}/file"), mode, 0]))]
        });
        assert_no_mark(bench, profile, "openat", EPERM, |workspace| {
            vec![call(numbers::OPENAT, json!([HERE, format!("{workspace}/new"), 0o101, mode]))]
        });
        assert_no_mark(bench, profile, "openat2", ENOSYS, |workspace| {
            let how = json!([0o101, mode, 0]);
            vec![call(numbers::OPENAT2, json!([HERE, format!("{workspace}/new"), how, 24]))]
        });
        assert_no_mark(bench, profile, "mkdirat", EPERM, |workspace| {
            vec![call(numbers::MKDIRAT, json!([HERE, format!("{workspace}/new"), mode]))]
        });
        assert_no_mark(bench, profile, "mknodat", EPERM, |workspace| {
            let mode = 0o100_000 | mode;
            vec![call(numbers::MKNODAT, json!([HERE, format!("{workspace}/new"), mode, 0]))]
        });
    }
    attributes(bench, profile);
}

/// Not every file system of a host has attributes, and one without says what the filter says; of a file that
/// is not there the kernel says something else.
fn attributes(bench: &Bench, profile: Profile) {
    let at = |workspace: &str, file: &str, name: &str| {
        let path = format!("{workspace}/{file}");
        let opened = call(numbers::OPENAT, json!([HERE, path, 0, 0]));
        let before = if file == "none" { vec![] } else { vec![opened] };
        let descriptor = if file == "none" { json!(-1) } else { json!({"of": 0}) };
        let (of_path, of_file) =
            (json!([path, name, "x", 1, 0]), json!([descriptor, name, "x", 1, 0]));
        [
            vec![call(numbers::SETXATTR, of_path.clone())],
            vec![call(numbers::LSETXATTR, of_path.clone())],
            [before.clone(), vec![call(numbers::FSETXATTR, of_file.clone())]].concat(),
            vec![call(numbers::REMOVEXATTR, of_path.clone())],
            vec![call(numbers::LREMOVEXATTR, of_path)],
            [before, vec![call(numbers::FREMOVEXATTR, of_file)]].concat(),
        ]
    };
    let workspace = bench.path("workspace").to_string_lossy().into_owned();
    // Capabilities and the like are root's to give; the first is for everybody.
    let acts = at(&workspace, "file", "user.x");
    for act in &acts {
        // So that there is one to be removed.
        bench.outside(&acts[0]);
        let control = bench.outside(act);
        if control.last_error() == Some(EOPNOTSUPP.into()) {
            eprintln!("no control of an attribute: this file system has none");
        } else {
            assert_control("an attribute", &control);
        }
    }
    for name in ["user.x", "security.capability", "system.posix_acl_access", "trusted.x"] {
        for acts in at(&workspace, "none", name) {
            let control = bench.outside(&acts).last_error();
            assert!(matches!(control, Some(ENOENT | EBADF)), "{name}: {control:?}");
        }
        for file in ["file", "none"] {
            for acts in at("/workspace", file, name) {
                assert_forbidden_inside(bench, profile, name, EOPNOTSUPP, &acts);
            }
        }
    }
}

/// The calls of older programs, files without a name, and bits that the kernel does not look at.
fn a27_more() {
    const UNNAMED: i64 = 0o20_200_002;
    let bench = Bench::new();
    let open = |workspace: &str, flags: i64, mode: i64| {
        call(numbers::OPENAT, json!([HERE, format!("{workspace}/new"), flags, mode]))
    };
    let unnamed =
        |workspace: &str, mode: i64| call(numbers::OPENAT, json!([HERE, workspace, UNNAMED, mode]));
    for mode in [0o4755, 0o2755, 0o6777_i64] {
        for &profile in PROFILES {
            assert_no_mark(&bench, profile, "high bits of a mode", EPERM, |workspace| {
                vec![open(workspace, 0o101, mode | (1 << 32))]
            });
            assert_no_mark(&bench, profile, "high bits of flags", EPERM, |workspace| {
                vec![open(workspace, 0o101 | (1 << 32), mode)]
            });
            assert_no_mark(&bench, profile, "a file without a name", EPERM, |workspace| {
                vec![unnamed(workspace, mode)]
            });
        }
        assert_no_mark(&bench, Profile::General, "one that gets it later", EPERM, |workspace| {
            vec![unnamed(workspace, 0o600), call(numbers::FCHMOD, json!([{"of": 0}, mode]))]
        });
        assert_no_mark(&bench, Profile::General, "one with a name by then", EPERM, |workspace| {
            let new = format!("{workspace}/new");
            let name = call(numbers::LINKAT, json!([HERE, "/proc/self/fd/3", HERE, new, 0x400]));
            let mark = call(numbers::FCHMODAT, json!([HERE, new, mode]));
            vec![unnamed(workspace, 0o600), name, mark]
        });
        assert_no_mark(&bench, Profile::General, "without a mask", EPERM, |workspace| {
            vec![call(numbers::UMASK, json!([0])), open(workspace, 0o101, mode)]
        });
        assert_no_mark(&bench, Profile::General, "a copy", EPERM, |workspace| {
            // What a link leads to, and what stands behind another name.
            let (file, new) = (format!("{workspace}/file"), format!("{workspace}/new"));
            let link = call(numbers::SYMLINKAT, json!([file, HERE, new]));
            vec![link, call(numbers::FCHMODAT, json!([HERE, new, mode]))]
        });
        older(&bench, mode);
    }
}

/// Where there are the calls without directories.
fn older(bench: &Bench, mode: i64) {
    let machine = turnjail_warden::seccomp::machine::Machine::NATIVE;
    for (what, one, kind) in [
        ("creat", numbers::CREAT, 0),
        ("mkdir", numbers::MKDIR, 0),
        ("mknod", numbers::MKNOD, 0o100_000),
        ("chmod", numbers::CHMOD, 0),
    ] {
        if one.number(machine).is_none() {
            continue;
        }
        for &profile in PROFILES {
            assert_no_mark(bench, profile, what, EPERM, |workspace| {
                let name = if what == "chmod" { "file" } else { "new" };
                vec![call(one, json!([format!("{workspace}/{name}"), kind | mode, 0]))]
            });
        }
    }
    if numbers::OPEN.number(machine).is_some() {
        for &profile in PROFILES {
            assert_no_mark(bench, profile, "open", EPERM, |workspace| {
                vec![call(numbers::OPEN, json!([format!("{workspace}/new"), 0o101, mode]))]
            });
        }
    }
}

fn a35() {
    let bench = Bench::new();
    assert_no_mark(&bench, Profile::Sealed, "symlinkat", EPERM, |workspace| {
        vec![call(numbers::SYMLINKAT, json!(["/etc/passwd", HERE, format!("{workspace}/link")]))]
    });
    assert_no_mark(&bench, Profile::Sealed, "linkat", EPERM, |workspace| {
        let (file, link) = (format!("{workspace}/file"), format!("{workspace}/link"));
        vec![call(numbers::LINKAT, json!([HERE, file, HERE, link, 0]))]
    });
    assert_no_mark(&bench, Profile::Sealed, "an exchange", EPERM, |workspace| {
        let (file, new) = (format!("{workspace}/file"), format!("{workspace}/new"));
        let make = json!(["write", new, "x"]);
        vec![make, call(numbers::RENAMEAT2, json!([HERE, file, HERE, new, 2]))]
    });
}

fn a37() {
    let bench = Bench::new();
    for &profile in PROFILES {
        special_files(&bench, profile);
    }
}

fn special_files(bench: &Bench, profile: Profile) {
    for (what, mode) in [("a file", 0o100_600), ("a FIFO", 0o10_600), ("a socket", 0o140_600_i64)] {
        assert_no_mark(bench, profile, what, EPERM, |workspace| {
            vec![call(numbers::MKNODAT, json!([HERE, format!("{workspace}/new"), mode, 0]))]
        });
    }
    for mode in [0o20_600, 0o60_600_i64] {
        let device = call(numbers::MKNODAT, json!([HERE, "/workspace/new", mode, 0x0103]));
        assert_forbidden_inside(bench, profile, "a device", EPERM, &[device]);
    }
}
