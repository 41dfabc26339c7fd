//! A30 to A32: more than one's share. How such programs end is in `jail/endings.rs`.

use std::fs;

use serde_json::json;
use turnjail_jail::Profile;
use turnjail_tests::acts::call;
use turnjail_tests::jails::Bench;
use turnjail_tests::{Fact, Test, unique_word};
use turnjail_warden::seccomp::numbers;

use crate::support::{Process, assert_forbidden_inside};

pub const TESTS: &[Test] = &[
    Test::new("a30_a_sealed_program_has_no_processes_and_threads", a30),
    Test::with("a30_a_general_program_has_its_limit_of_processes", PROCESSES, a30_general),
    Test::with("a30_every_kind_of_bomb_has_the_same_limit", PROCESSES, a30_kinds),
    Test::new("a31_tmp_has_a_limit_of_files", a31),
];

const PROCESSES: &[Fact] = &[Fact::Jail, Fact::Processes];

const EPERM: i32 = 1;
const EAGAIN: i64 = 11;
const ENOSPC: i64 = 28;

fn a30() {
    let bench = Bench::new();
    // A process, vfork's, a thread's flags.
    let forks = bench.outside(&[json!(["forks", 3])]);
    assert!(forks.worked(), "the control makes none: {forks:?}");
    for flags in [17, 0x4111, 0x3d_0f00] {
        let act = [call(numbers::CLONE, json!([flags, 0, 0, 0, 0]))];
        assert_forbidden_inside(&bench, Profile::Sealed, "clone", EPERM, &act);
    }
    let report = bench.acts(Profile::Sealed, &[json!(["forks", 1])]);
    assert!(report.filtered_at(0), "{report:?}");
}

fn a30_general() {
    let bench = Bench::new();
    assert!(bench.outside(&[json!(["forks", 200])]).worked(), "the host has too few as well");
    let mut spec = bench.spec_for(Profile::General, &[json!(["forks", 1000])]);
    spec.limits.pids = 16;
    // Two at once: each has its own count.
    let (one, another) = std::thread::scope(|scope| {
        let one = scope.spawn(|| bench.acts_in(&spec, b""));
        let another = scope.spawn(|| bench.acts_in(&spec, b""));
        (one.join().expect("a jail"), another.join().expect("a jail"))
    });
    for report in [one, another] {
        assert_eq!(report.last_error(), Some(EAGAIN), "{report:?}");
        let made = report.lines[0]["made"].as_u64().expect("how many");
        assert!((8..16).contains(&made), "{report:?}");
    }
}

/// The same limit for a chain of vfork, for dead children that nobody waits for, and for threads; beside
/// one that has used up all of it another jail has as much as ever.
fn a30_kinds() {
    let bench = Bench::new();
    for kind in ["chain", "zombies", "threads"] {
        let control = bench.outside(&[json!([kind, 200])]);
        assert!(control.worked(), "{kind}: the host has too few as well: {control:?}");
        let word = unique_word(format_args!("bomb-{kind}"));
        let acts = [json!([kind, 1000]), json!(["sleep", 300]), json!(["print", word])];
        let mut bomb = bench.spec_for(Profile::General, &acts);
        bomb.limits.pids = 16;
        let mut modest = bench.spec_for(Profile::General, &[json!(["forks", 10])]);
        modest.limits.pids = 16;
        let (bombed, other) = std::thread::scope(|scope| {
            let bombed = scope.spawn(|| bench.acts_in(&bomb, b""));
            (0..5).for_each(|_| assert!(bench.acts_in(&modest, b"").worked(), "beside {kind}"));
            (bombed.join().expect("a jail"), bench.acts_in(&modest, b""))
        });
        assert!(other.worked(), "after {kind}: {other:?}");
        let line = bombed.lines.first().unwrap_or_else(|| panic!("{kind}: {bombed:?}"));
        assert_eq!(line["errno"], EAGAIN, "{kind}: {bombed:?}");
        let made = line["made"].as_u64().expect("how many");
        assert!((8..16).contains(&made), "{kind}: {bombed:?}");
        assert!(Process::find_by(&word, |_| true).is_none(), "{kind}: something is left");
        let sealed = bench.acts(Profile::Sealed, &[json!([kind, 1])]);
        assert!(sealed.lines.is_empty() || sealed.last_error().is_some(), "{kind}: {sealed:?}");
        assert!(!sealed.worked(), "{kind}: {sealed:?}");
    }
}

fn a31() {
    let bench = Bench::new();
    let many = 20_000;
    let outside = bench.path("many");
    fs::create_dir(&outside).expect("a directory");
    assert!(bench.outside(&[json!(["files", outside, many])]).worked());
    for (profile, place) in [
        (Profile::Sealed, "/tmp/home"),
        (Profile::General, "/tmp/home"),
        (Profile::General, "/dev/shm"),
    ] {
        let report = bench.acts(profile, &[json!(["files", place, many])]);
        assert_eq!(report.last_error(), Some(ENOSPC), "{place}: {report:?}");
        assert!(report.lines[0]["made"].as_u64().is_some_and(|made| made < 16_384), "{report:?}");
    }
}
