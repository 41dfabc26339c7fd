//! R03 and R17: hosts that die, at any moment, and what is left of them.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use turnjail_driver::ExitReason;
use turnjail_jail::Profile;
use turnjail_tests::jails::{Bench, private_dir};

use crate::count;
use crate::hosts::{self, AS_HOST, program};

/// This program as a host: one turn that goes on, or short ones until somebody ends it.
pub fn host(part: &str) -> ExitCode {
    let bench = Bench::new();
    let (acts, rounds) = match part {
        "long" => (vec![json!(["sleep", 60_000])], 1),
        "short" => (vec![json!(["exit", 0])], 1),
        "many" => (vec![json!(["exit", 0])], 1_000),
        _ => return ExitCode::from(2),
    };
    println!("ready");
    for _ in 0..rounds {
        let ended = bench.run(&bench.spec_for(Profile::General, &acts), b"");
        if !ended.is_ok_and(|ended| ended.reason == ExitReason::Ok) {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Every process that was started from below this directory: jailed programs have its root, wardens
/// nothing of their own, so they are found by their parent.
fn left_of(home: &Path) -> Vec<String> {
    let home = home.to_string_lossy().into_owned();
    let mut left = Vec::new();
    for entry in fs::read_dir("/proc").expect("/proc").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let mounts = fs::read_to_string(entry.path().join("mountinfo")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        if line.contains(&home) || mounts.contains(&home) {
            left.push(format!("{name} {line:?}"));
        }
    }
    left
}

/// Waits until nothing is left; two seconds and then some for a slow machine.
fn assert_gone(home: &Path, what: &str) {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let left = left_of(home);
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < end, "{what}: left are {left:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// User namespaces that live, as far as this user sees.
fn namespaces() -> usize {
    let mut all = std::collections::BTreeSet::new();
    for entry in fs::read_dir("/proc").expect("/proc").flatten() {
        if let Ok(namespace) = fs::read_link(entry.path().join("ns/user")) {
            all.insert(namespace);
        }
    }
    all.len()
}

/// With room for a dozen namespaces, below a first process that never waits for anybody, two hundred
/// hosts run a turn each, and half of them are killed in the middle of it.
pub fn r03() {
    let home = private_dir();
    let turns = count(40, 200);
    let before = namespaces();
    // The shell is PID 1 of its namespace and reaps only what it started itself.
    let script = format!(
        "echo 12 > /proc/sys/user/max_user_namespaces; n=0; while [ $n -lt {turns} ]; do \
         n=$((n + 1)); if [ $((n % 2)) = 0 ]; then \"$@\" short \"$TMPDIR\" || exit 1; else \
         \"$@\" long \"$TMPDIR\" & sleep 0.2; kill -9 $!; wait $! 2>/dev/null; fi; done; exit 0"
    );
    let mut outer = Command::new("unshare");
    outer.args(["--user", "--map-current-user", "--keep-caps", "--mount", "--pid", "--fork"]);
    // No capability of the outer namespace is left to the hosts: they are kept for the limit alone.
    outer.args(["--mount-proc", "sh", "-c", &script, "sh", "setpriv", "--inh-caps=-all"]);
    outer.args(["--ambient-caps=-all", "--"]).arg(program()).arg(AS_HOST);
    outer.env("TMPDIR", home.path()).stdin(Stdio::null()).stdout(Stdio::null());
    let output = outer.output().expect("an outer namespace");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "a turn did not start: {errors}");
    assert_gone(home.path(), "after the last host");
    let end = Instant::now() + Duration::from_secs(10);
    // Other tests make some at the same time; those of this one would stay for ever.
    while namespaces() > before + 8 {
        assert!(Instant::now() < end, "{} namespaces, before there were {before}", namespaces());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Mounts that this process sees.
fn mounts() -> usize {
    fs::read_to_string("/proc/self/mountinfo").expect("mountinfo").lines().count()
}

/// The control: a jailed program is found for as long as its host lives.
fn found_while_it_runs() {
    let home = private_dir();
    let mut host = hosts::host("long", home.path()).spawn().expect("a host");
    let end = Instant::now() + Duration::from_secs(10);
    while !left_of(home.path()).iter().any(|process| process.contains("/worker")) {
        assert!(Instant::now() < end, "no jailed program is found");
        std::thread::sleep(Duration::from_millis(10));
    }
    host.kill().expect("killed");
    host.wait().expect("reaped");
    assert_gone(home.path(), "the control");
}

/// SIGKILL after no time or up to 30 ms of one turn after another; every other time the host is stopped
/// first, so that it cannot even see an end.
pub fn r17() {
    let before = mounts();
    found_while_it_runs();
    let rounds = count(40, 1_000);
    for round in 0..rounds {
        let home = private_dir();
        let mut host =
            hosts::host("many", home.path()).stdout(Stdio::piped()).spawn().expect("a host");
        let mut ready = [0; 6];
        let mut stdout = host.stdout.take().expect("its output");
        std::io::Read::read_exact(&mut stdout, &mut ready).expect("it is ready");
        // A low-discrepancy sequence: every part of the time is hit, the same in every run.
        let micros = u64::from(round) * 18_541 % 30_000;
        std::thread::sleep(Duration::from_micros(micros));
        let pid = Pid::from_raw(host.id() as i32);
        if round % 2 == 1 {
            kill(pid, Signal::SIGSTOP).expect("stopped");
        }
        kill(pid, Signal::SIGKILL).expect("killed");
        host.wait().expect("reaped");
        assert_gone(home.path(), &format!("round {round}, killed after {micros} us"));
    }
    assert_eq!(mounts(), before, "a mount of a jail is in the host's table");
}
