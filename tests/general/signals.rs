//! The init between the host and a general image's program.

use std::fs;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use turnjail_driver::ExitReason;
use turnjail_jail::{Ended, JailSpec, Profile, Status, run};
use turnjail_tests::jails::Bench;
use turnjail_tests::unique_word;

/// A jail whose program sleeps, and the word by which that can be found.
fn sleeper(bench: &Bench) -> (JailSpec, String) {
    let word = unique_word("general-sleeper");
    let mut spec = bench.spec_for(Profile::General, &[json!(["sleep", 60_000])]);
    // An argument that the probe never comes to.
    spec.command.push(json!(["print", word]).to_string());
    spec.limits.time_ms = 120_000;
    (spec, word)
}

/// The processes of this machine whose command line has this word.
fn processes(word: &str) -> Vec<i32> {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    let has_word = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.windows(word.len()).any(|part| part == word.as_bytes())
    };
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(has_word).collect()
}

/// The parent of a process.
fn parent(pid: i32) -> i32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:")).expect("PPid");
    line.trim().parse().expect("a number")
}

/// Runs a sleeper and signals its init once it sleeps.
fn signalled(bench: &Bench, signal: Signal) -> Ended {
    let (spec, word) = sleeper(bench);
    let never = CancellationToken::new();
    let started = || {
        let word = word.clone();
        std::thread::spawn(move || {
            let deadline = Instant::now() + Duration::from_secs(10);
            let program = loop {
                match processes(&word)[..] {
                    [program] => break program,
                    _ => assert!(Instant::now() < deadline, "no sleeper"),
                }
                std::thread::sleep(Duration::from_millis(5));
            };
            kill(Pid::from_raw(parent(program)), signal).expect("a signal");
        });
    };
    let run = run(bench.client(), &spec, b"", &never, started);
    bench.runtime().block_on(run).expect("a jail")
}

pub fn handed_on() {
    let bench = Bench::new();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGUSR1] {
        let ended = signalled(&bench, signal);
        assert_eq!(ended.exit.status, Status::Signal(signal as i32), "{signal}");
        assert_eq!(ended.reason, ExitReason::WorkerFailed);
    }
}

/// The program outlives its orphans, and finds none of them as a zombie.
pub fn orphans() {
    let bench = Bench::new();
    let acts = [json!(["orphan", 1]), json!(["sleep", 300]), json!(["list", "/proc"])];
    let report = bench.acts(Profile::General, &acts);
    let left: Vec<_> = report.list(2).iter().filter_map(|name| name.as_str()).collect();
    assert_eq!(left, ["2", "self", "thread-self"], "{report:?}");
}

/// What the program sends to its init comes back to the program itself; it cannot stop being reaped.
pub fn no_target() {
    use turnjail_tests::acts::call;
    use turnjail_warden::seccomp::numbers as calls;
    let bench = Bench::new();
    let send = |signal: i32| call(calls::KILL, json!([1, signal]));
    let report =
        bench.acts(Profile::General, &[send(9), json!(["sleep", 100]), json!(["arguments"])]);
    assert!(report.lines.len() == 3, "a first process cannot be killed from inside: {report:?}");
    let report = bench.acts(Profile::General, &[send(15), json!(["sleep", 10_000])]);
    assert_eq!(report.end, Status::Signal(15), "{report:?}");
}
