//! What the program's own process has: limits, a tracer, capabilities, groups.

use std::ffi::OsString;
use std::path::Path;

use libtest_mimic::Trial;

use super::environment::{Account, Fact, program};
use super::judge::Around;
use super::{Test, harness};
use crate::tests;

pub const TESTS: &[Test] = tests![&[Fact::Jail, Fact::Unshare];
    a_limit_of_open_files,
    a_limit_of_file_sizes,
    a_limit_of_addresses,
];

pub const ROOT_TESTS: &[Test] = tests![&[Fact::Root, Fact::Unshare];
    root_without_capabilities_is_told_to_be_somebody_else,
    capabilities_of_an_ordinary_user_stop_the_start,
    a_group_that_amounts_to_root_degrades_or_stops_the_start,
];

/// Under strace, which the facts of this harness do not know. Where it is demanded the test says what fails.
pub fn traced() -> Trial {
    let strace = turnjail_tests::Fact::Strace;
    let trial = harness::trial(&Test {
        name: "a_trace_of_the_program",
        needs: &[Fact::Jail],
        check: a_trace_of_the_program,
    });
    let words = std::env::var("TURNJAIL_REQUIRE").unwrap_or_default();
    if strace.is_here() || words.split(',').any(|word| word.trim() == strace.name()) {
        return trial;
    }
    eprintln!("skipped: a_trace_of_the_program (needs {})", strace.name());
    trial.with_ignored_flag(true)
}

fn prlimit(limit: &str) -> Around {
    Around::of(Path::new("prlimit"), vec![limit.into()])
}

fn a_limit_of_open_files() {
    prlimit("--nofile=200").must_degrade("open-files", "ulimit -n");
    let account = Account::new();
    account.ask("http://127.0.0.1:9/", "");
    for most in [16, 24, 64, 70] {
        let run = prlimit(&format!("--nofile={most}")).run(&account, &["turn", "hi"]);
        assert_ne!(run.code, 0, "{most}: {run:?}");
        assert!(!run.err.contains("panicked") && run.err.contains("remedy: "), "{most}: {run:?}");
    }
}

/// Going over it is a signal by default, which would say nothing.
fn a_limit_of_file_sizes() {
    prlimit("--fsize=4096").must_fail("file-size", "ulimit -f unlimited");
    prlimit("--fsize=536870912").must_degrade("file-size", "ulimit -f");
}

/// Of the host's own process; a jail has its own limit.
fn a_limit_of_addresses() {
    prlimit("--as=1073741824").must_degrade("address-space", "ulimit -v unlimited");
}

fn a_trace_of_the_program() {
    let words = ["-f", "-qq", "-o", "/dev/null"].map(OsString::from).to_vec();
    Around::of(Path::new("strace"), words).must_degrade("traced", "without it");
}

fn root_without_capabilities_is_told_to_be_somebody_else() {
    let account = Account::new();
    let mut command = account.command_as_is(Path::new("setpriv"), &["--bounding-set=-all"]);
    command.args(["--inh-caps=-all", "--"]).arg(program()).arg("demo");
    let run = super::environment::finish(command);
    run.assert_refused(4, "root cannot become");
    assert!(run.err.contains("as an ordinary user"), "{run:?}");
}

fn capabilities_of_an_ordinary_user_stop_the_start() {
    let account = Account::new();
    account.ask("http://127.0.0.1:9/", "");
    let kept = |arguments: &[&str]| {
        let words = ["--reuid=1000", "--regid=1000", "--clear-groups", "--inh-caps=+net_raw"];
        let mut command = account.command_as_is(Path::new("setpriv"), &words);
        command.args(["--ambient-caps=+net_raw", "--"]).arg(program()).args(arguments);
        super::environment::finish(command)
    };
    let doctor = kept(&["doctor"]);
    assert!(doctor.out.contains("holds capabilities"), "{doctor:?}");
    assert_eq!(doctor.code, 5, "{doctor:?}");
    kept(&["turn", "hi"]).assert_refused(5, "holds capabilities");
}

fn a_group_that_amounts_to_root_degrades_or_stops_the_start() {
    let group = nix::unistd::Group::from_name("disk").unwrap().expect("the group of disks");
    let account = Account::new();
    let inside = |groups: &str, arguments: &[&str]| {
        let words = ["--reuid=1000", "--regid=1000", groups, "--inh-caps=-all", "--"];
        let mut command = account.command_as_is(Path::new("setpriv"), &words);
        command.arg(program()).args(arguments);
        super::environment::finish(command)
    };
    let member = format!("--groups={}", group.gid);
    account.ask("http://127.0.0.1:9/", "");
    let doctor = inside(&member, &["doctor", "--json"]);
    assert_eq!(doctor.code, 0, "{doctor:?}");
    let found = doctor.json();
    let checks = found["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["code"] == "groups").expect("its check");
    assert_eq!(check["state"], "degraded", "{check:#}");
    assert!(check["evidence"].as_str().unwrap().ends_with(": disk"), "{check:#}");
    inside(&member, &["turn", "hi"]).assert_refused(1, "model");

    account.ask("http://127.0.0.1:9/", "[jail]\ngroups = \"refuse\"\n");
    let doctor = inside(&member, &["doctor", "--json"]);
    assert_eq!(doctor.code, 5, "{doctor:?}");
    let found = doctor.json();
    let checks = found["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["name"] == "supplementary groups").unwrap();
    assert_eq!(
        (&check["code"], &check["state"]),
        (&"policy".into(), &"failed".into()),
        "{check:#}"
    );
    let turn = inside(&member, &["turn", "hi"]);
    turn.assert_refused(5, "amount to root or to devices: disk");
    assert!(turn.err.contains(check["remedy"].as_str().unwrap()), "{check:#} {turn:?}");
    // Whoever is in none is let in.
    inside("--clear-groups", &["turn", "hi"]).assert_refused(1, "model");
}
