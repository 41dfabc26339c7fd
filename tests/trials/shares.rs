//! R14, R15 and R25: limits that count what they should, and nothing else.

use std::process::{Child, Command, Stdio};

use serde_json::json;
use turnjail_driver::ExitReason;
use turnjail_jail::Profile;
use turnjail_tests::jails::Bench;

use crate::count;

const EAGAIN: i64 = 11;
const ENOMEM: i64 = 12;
const ENOSPC: i64 = 28;

struct Idle(Vec<Child>);

impl Drop for Idle {
    fn drop(&mut self) {
        for child in &mut self.0 {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

/// Beside hundreds of idle processes of the same user ten turns start, each with room for 64; one of them
/// makes all that it can.
pub fn r14() {
    let idle = |_| {
        let mut sleep = Command::new("sleep");
        sleep.arg("600").stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("a process")
    };
    let _busy = Idle((0..count(200, 400)).map(idle).collect());
    let bench = Bench::new();
    let mut bomb = bench.spec_for(Profile::General, &[json!(["forks", 10_000])]);
    bomb.limits.pids = 64;
    let mut modest = bench.spec_for(Profile::General, &[json!(["forks", 40])]);
    modest.limits.pids = 64;
    std::thread::scope(|scope| {
        let bombed = scope.spawn(|| bench.acts_in(&bomb, b""));
        let others: Vec<_> = (0..9).map(|_| scope.spawn(|| bench.acts_in(&modest, b""))).collect();
        for other in others {
            let report = other.join().expect("a jail");
            assert!(report.worked(), "another turn was refused a process: {report:?}");
        }
        // This user, too, can go on.
        assert!(Command::new("true").status().expect("a process").success());
        let report = bombed.join().expect("a jail");
        assert_eq!(report.last_error(), Some(EAGAIN), "{report:?}");
        let made = report.lines[0]["made"].as_u64().expect("how many");
        assert!((48..=64).contains(&made), "{made} of 64");
    });
}

/// A general image may reserve what it never touches; the sealed worker, which does not, may not. That
/// real runtimes run is shown in `tests/general`.
pub fn r15() {
    let bench = Bench::new();
    let reserve = [json!(["reserve", 16 * 1024])];
    assert!(bench.outside(&reserve).worked(), "this machine reserves none");
    let mut spec = bench.spec_for(Profile::General, &reserve);
    spec.limits.memory_mb = 1024;
    let report = bench.acts_in(&spec, b"");
    assert!(report.worked(), "a reservation counts: {report:?}");
    let mut sealed = bench.spec_for(Profile::Sealed, &reserve);
    sealed.limits.memory_mb = 1024;
    assert_eq!(bench.acts_in(&sealed, b"").last_error(), Some(ENOMEM));
    // What is touched counts, near the limit.
    let mut touched = bench.spec_for(Profile::Sealed, &[json!(["touch", 3 * 1024])]);
    touched.limits.memory_mb = 1024;
    // An emulated processor takes more than ten seconds for it.
    touched.limits.time_ms = 300_000;
    let report = bench.acts_in(&touched, b"");
    assert!(report.met_memory_limit(900..1024, &bench), "{report:?}");
    // Of a general image the whole jail counts, whoever it is that touches: a watch, or a cgroup.
    let mut spec = bench.spec_for(Profile::General, &[json!(["touch", 3 * 1024])]);
    spec.limits.memory_mb = 1024;
    let ended = bench.run(&spec, b"").expect("a jail");
    assert_eq!(ended.reason, ExitReason::Memory, "{}", ended.cause());
    assert!(ended.cause().contains("memory limit"), "{}", ended.cause());
    // Each process asked by itself: its private memory, by the kernel.
    spec.isolation.data_limit = true;
    let report = bench.acts_in(&spec, b"");
    let made = report.lines.first().map_or(0, |line| line["made"].as_u64().unwrap_or(0));
    let refused = report.last_error() == Some(ENOMEM) && (900..1024).contains(&made);
    assert!(refused || report.reason == Some(ExitReason::Memory), "{report:?}");
    assert!(bench.outside(&[json!(["touch", 1100])]).worked(), "this machine has no such memory");
}

/// Zeros until it is full, then a million empty files.
pub fn r25() {
    let bench = Bench::new();
    for (profile, place, mib) in [
        (Profile::Sealed, "/tmp", 64),
        (Profile::General, "/tmp", 64),
        (Profile::General, "/dev/shm", 16),
    ] {
        let fill = json!(["fill", format!("{place}/zeros"), 1024]);
        let files = json!(["files", place, 1_000_000]);
        let report = bench.acts(profile, &[fill, files]);
        assert_eq!(report.reason, Some(ExitReason::Ok), "{place}: {report:?}");
        for line in &report.lines {
            assert_eq!(line["errno"], ENOSPC, "{place}: {line}");
        }
        let made = report.lines[0]["made"].as_u64().expect("how much");
        assert!((mib - 1..=mib).contains(&made), "{made} MiB of {mib} in {place}");
        let files = report.lines[1]["made"].as_u64().expect("how many");
        assert!(files < 17_000, "{files} files in {place}");
    }
}
