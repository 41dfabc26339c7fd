//! What a prepared jail calls between its two filters, as strace sees it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, ExitCode, Stdio};

use serde_json::json;
use turnjail_driver::ExitReason;
use turnjail_jail::Profile;
use turnjail_tests::jails::{Bench, private_dir};
use turnjail_tests::{ways, without};
use turnjail_warden::seccomp::stages::SET_UP;
use turnjail_warden::wire::{Bounds, Way};

/// Tells this program to be a host.
pub const AS_HOST: &str = "--as-traced-host";

/// A host whose one jail has something to do for every call: a linked working directory, and a workspace
/// that is looked at.
pub fn host() -> ExitCode {
    without::take_away();
    let bench = Bench::new();
    let mut spec = bench.spec_for(Profile::Sealed, &[json!(["exit", 0])]);
    symlink("workspace", bench.path("root").join("work")).expect("a link");
    "/work".clone_into(&mut spec.working_dir);
    spec.bounds = Some(Bounds { bytes: 1 << 30, entries: 1_000, reserve: 1 });
    let ended = bench.run(&spec, b"").expect("a jail");
    assert_eq!(ended.reason, ExitReason::Ok, "{}", ended.cause());
    ExitCode::SUCCESS
}

/// Of what the first filter lets through for the rest of the set-up, nothing is left over; without openat2,
/// links are read.
pub fn every_call() {
    let plain = traced(None);
    let names: BTreeSet<String> = SET_UP.iter().map(|call| call.name.to_owned()).collect();
    let only_without = BTreeSet::from(["readlinkat".to_owned()]);
    assert_eq!(&names - &plain, only_without);
    let without = traced(Some("openat2"));
    assert_eq!(&names - &without, BTreeSet::new());
}

/// What the jail calls from its first filter to its second, that call among them.
fn traced(without: Option<&str>) -> BTreeSet<String> {
    let home = private_dir();
    let output = home.path().join("calls");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-o"]).arg(&output);
    strace.arg(std::env::current_exe().expect("this program")).arg(AS_HOST);
    let (name, value) = ways::environment_of(Way::Prepared);
    strace.env("TMPDIR", home.path()).env(name, value);
    if let Some(calls) = without {
        strace.env(without::VARIABLE, calls);
    }
    let ended = strace.stdin(Stdio::null()).output().expect("strace");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let text = fs::read_to_string(&output).expect("a trace");
    let mut processes: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in text.lines() {
        let Some((process, rest)) = line.split_once(' ') else { continue };
        let Some((name, _)) = rest.trim_start().split_once('(') else { continue };
        processes.entry(process).or_default().push(name);
    }
    let jail = processes.values().find_map(|calls| {
        let filters: Vec<usize> = (0..calls.len()).filter(|&at| calls[at] == "seccomp").collect();
        let &[first, second] = filters.as_slice() else { return None };
        (calls.get(second + 1) == Some(&"execve")).then(|| &calls[first + 1..=second])
    });
    let calls = jail.unwrap_or_else(|| panic!("no prepared jail:\n{text}"));
    calls.iter().map(|&name| name.to_owned()).collect()
}
