//! What a general image finds: its init, and /proc and /dev of its own.

use serde_json::{Value, json};
use turnjail_driver::ExitReason;
use turnjail_jail::{Profile, Status};
use turnjail_tests::acts::call;
use turnjail_tests::jails::Bench;
use turnjail_warden::seccomp::numbers;

pub fn endings() {
    let bench = Bench::new();
    for (act, reason, status) in [
        (json!(["exit", 0]), ExitReason::Ok, Status::Code(0)),
        (json!(["exit", 7]), ExitReason::WorkerFailed, Status::Code(7)),
        (json!(["crash"]), ExitReason::WorkerFailed, Status::Signal(11)),
        (json!(["int80", 20]), ExitReason::Filter, Status::Signal(31)),
    ] {
        let spec = bench.spec_for(Profile::General, std::slice::from_ref(&act));
        let ended = bench.run(&spec, b"").expect("a jail");
        assert_eq!((ended.reason, ended.exit.status), (reason, status), "{act}");
    }
}

fn names(list: &[Value]) -> Vec<&str> {
    list.iter().filter_map(Value::as_str).collect()
}

pub fn places() {
    let bench = Bench::new();
    let acts = ["/proc", "/dev", "/dev/shm"].map(|path| json!(["list", path]));
    let report = bench.acts(Profile::General, &acts);
    // The probe alone: not even its init, which is hidden, and nothing of the system's.
    assert_eq!(names(report.list(0)), ["2", "self", "thread-self"]);
    let devices = ["fd", "full", "null", "random", "shm"];
    let links = ["stderr", "stdin", "stdout", "urandom", "zero"];
    assert_eq!(names(report.list(1)), [devices, links].concat());
    assert_eq!(names(report.list(2)), [""; 0]);
    for (path, worked) in [("/dev/null", true), ("/dev/shm/x", true), ("/dev/x", false)] {
        let report = bench.acts(Profile::General, &[json!(["write", path, "x"])]);
        assert_eq!(report.worked(), worked, "{path}: {report:?}");
    }
}

/// An image's own /proc and /dev are never looked at: a link there stops the start.
pub fn traps() {
    for name in ["proc", "dev", "tmp", "workspace"] {
        let bench = Bench::new();
        let place = bench.path("root").join(name);
        std::fs::remove_dir(&place).expect("an empty directory");
        std::os::unix::fs::symlink("/etc", &place).expect("a link");
        let error = bench.run(&bench.spec(Profile::General, &[]), b"").expect_err(name);
        assert_eq!(error.code(), "mount-point", "{name}: {error}");
    }
}

/// The kernel counts inotify instances for the host's user, too: a jail gets few of them.
pub fn watchers() {
    const EMFILE: i64 = 24;
    let bench = Bench::new();
    let acts = vec![call(numbers::INOTIFY_INIT1, json!([0])); 20];
    let outside = bench.outside(&acts);
    assert!(outside.worked(), "the host has too few itself: {outside:?}");
    let report = bench.acts(Profile::General, &acts);
    let made = report.lines.iter().filter(|line| line["errno"].is_null()).count();
    assert_eq!((made, report.last_error()), (16, Some(EMFILE)), "{report:?}");
}

/// What stands in the image where a jail has mounts is not what would be executed.
pub fn covered() {
    let bench = Bench::new();
    let root = bench.path("root");
    std::fs::copy(root.join("worker"), root.join("workspace/worker")).expect("a program");
    std::fs::copy(root.join("worker"), bench.path("workspace").join("worker")).expect("a program");
    let mut spec = bench.spec(Profile::General, &["exit"]);
    "/workspace/worker".clone_into(&mut spec.command[0]);
    let error = bench.run(&spec, b"").expect_err("refused");
    assert_eq!(error.code(), "policy");
    assert!(error.to_string().contains("/workspace/worker"), "{error}");
}
