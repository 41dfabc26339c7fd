//! The sealed list is what the worker needs: nothing is missing, and nothing is there for nothing.
//!
//! The worker runs every recorded turn, and turns with the file tools, in a sealed jail, where a call
//! too many would be its death; and under strace, which shows what it called. Neither is there more than
//! is made in what a jail that was prepared ahead may call before it runs the worker.

mod set_up;
mod trace;
mod turns;

use std::collections::BTreeSet;
use std::fs;
use std::process::ExitCode;

use serde_json::json;
use turnjail_driver::ExitReason;
use turnjail_jail::{Isolation, Profile};
use turnjail_tests::acts::call;
use turnjail_tests::jails::Bench;
use turnjail_tests::script::Broker;
use turnjail_tests::{Fact, Test, harness, program as worker};
use turnjail_warden::seccomp::rule::Rule;
use turnjail_warden::seccomp::{machine::Machine, numbers, sealed};
use turnjail_warden::wire::Status;

fn main() -> ExitCode {
    // This program again, as a host that is traced.
    if std::env::args().any(|argument| argument == set_up::AS_HOST) {
        return set_up::host();
    }
    harness(&[
        Test::new("the_worker_makes_every_turn_under_the_filter", every_turn),
        Test::with("every_listed_call_is_used_or_reserved", &[Fact::Strace], every_call),
        Test::with(
            "every_call_of_the_set_up_of_a_prepared_jail_is_made",
            &[Fact::Jail, Fact::Landlock, Fact::Pool, Fact::Strace],
            set_up::every_call,
        ),
        Test::with("a_stop_needs_no_further_call", &[Fact::Strace], stopped),
        Test::new("aborting_in_a_jail_is_no_attack", aborting),
        Test::new("reserved_calls_do_what_they_are_reserved_for", reserved),
    ])
}

fn every_turn() {
    let bench = Bench::new();
    let mut spec = bench.spec(Profile::Sealed, &[]);
    worker().parent().expect("a root filesystem").clone_into(&mut spec.rootfs);
    for turn in turns::all() {
        spec.isolation = Isolation { clears: turn.clears, ..Isolation::SEALED };
        let workspace = bench.path("workspace");
        turn.lay_out(&workspace);
        let broker = Broker::listen(&bench.path("run").join("broker.sock"), turn.answers.clone());
        let ended = bench.run(&spec, &turn.stdin).expect("a jail");
        broker.stop();
        let name = &turn.name;
        assert_ne!(ended.reason, ExitReason::Filter, "{name}");
        assert_eq!(ended.exit.status, Status::Code(turn.exit_code), "{name}");
        turn.open_again(&workspace);
        fs::remove_dir_all(&workspace).expect("the workspace");
        fs::create_dir(&workspace).expect("the workspace");
    }
}

/// The names of the rules that apply to this machine.
fn names(rules: &[Rule]) -> BTreeSet<String> {
    let here = rules.iter().filter(|rule| rule.number(Machine::NATIVE).is_some());
    here.map(|rule| rule.call.name.to_owned()).collect()
}

fn every_call() {
    let mut seen = BTreeSet::new();
    let clearing = names(sealed::CLEARING);
    for turn in turns::all() {
        let (ended, calls) = trace::turn(&turn);
        assert_eq!(ended.code, Some(turn.exit_code), "{}", turn.name);
        assert!(
            turn.clears || calls.is_disjoint(&clearing),
            "{} needs a jail of errands",
            turn.name
        );
        seen.extend(calls);
    }
    let (worker, glibc) = (&names(sealed::WORKER) | &clearing, names(sealed::GLIBC));
    let of_this_build = if seen.contains("set_robust_list") { &worker | &glibc } else { worker };
    assert_eq!(&seen - &of_this_build, BTreeSet::new(), "called, and not listed");
    assert_eq!(&of_this_build - &seen, BTreeSet::new(), "listed, and never called");
    let reserved = names(sealed::RESERVED);
    assert_eq!(&reserved & &seen, BTreeSet::new(), "reserved, and called");
    // Each of these has its test: here, and with another C library in the warden's own tests.
    let tested: BTreeSet<String> =
        [MEMORY, VERSION, ABORT].concat().iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(reserved, tested);
}

const MEMORY: &[&str] = &["madvise", "mremap", "munmap"];
const VERSION: &[&str] = &["uname"];
const ABORT: &[&str] = &["getpid", "gettid", "rt_sigaction", "rt_sigprocmask", "tgkill", "tkill"];

fn stopped() {
    let before = trace::invalid_turn(false);
    assert_eq!(before.code, Some(1));
    let after = trace::invalid_turn(true);
    assert_eq!(after.code, Some(1), "it went on after the stop");
    assert_eq!(before.calls, after.calls);
}

fn aborting() {
    let bench = Bench::new();
    let control = bench.outside(&[json!(["abort"])]);
    assert_eq!(control.end, Status::Signal(6));
    // The first process of a namespace ignores the signals that it sends itself, so the library ends it
    // by a fault.
    let report = bench.acts(Profile::Sealed, &[json!(["abort"])]);
    assert_eq!(report.reason, Some(ExitReason::WorkerFailed), "{report:?}");
    assert!(matches!(report.end, Status::Signal(4 | 6 | 11)), "{report:?}");
}

fn reserved() {
    let bench = Bench::new();
    let memory = call(numbers::MMAP, json!([0, 8192, 3, 0x4022, -1, 0]));
    let give_back = call(numbers::MADVISE, json!([{"of": 0}, 8192, 4]));
    let shrink = call(numbers::MREMAP, json!([{"of": 0}, 8192, 4096, 0]));
    let remove = call(numbers::MUNMAP, json!([{"of": 0}, 4096]));
    let version = call(numbers::UNAME, json!([{"buffer": 390}]));
    let acts = [memory, give_back, shrink, remove, version];
    let report = bench.acts(Profile::Sealed, &acts);
    assert!(report.worked(), "{report:?}");
    assert!(report.buffer(4, 0).starts_with(b"Linux\0"));
}
