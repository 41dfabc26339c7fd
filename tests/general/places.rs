//! What a general image finds: its init, and /proc and /dev of its own.

use serde_json::{Value, json};
use turnjail_driver::ExitReason;
use turnjail_jail::{Profile, Status};
use turnjail_tests::jails::Bench;

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
