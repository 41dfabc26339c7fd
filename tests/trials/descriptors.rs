//! R18: descriptors that a host has let slip, with numbers that loops do not get to.

use std::fs::File;
use std::os::fd::{AsFd, RawFd};
use std::os::unix::net::UnixStream;

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::json;
use turnjail_jail::Profile;
use turnjail_tests::jails::{Bench, private_dir};

use crate::hosts;

/// With close_range, and where the kernel or a filter has none.
pub fn r18() {
    for without in ["", "close_range", "close_range=EPERM"] {
        for way in ["prepared", "direct"] {
            let home = private_dir();
            let mut command = hosts::host("slipped", home.path());
            command.env("TURNJAIL_TEST_WAY", way);
            if !without.is_empty() {
                command.env(turnjail_tests::without::VARIABLE, without);
            }
            hosts::assert_good(&mut command, &format!("{way}, without {without:?}"));
        }
    }
}

/// A copy of a descriptor that is not closed at exec, at this number.
fn let_slip(descriptor: impl AsFd, number: RawFd) -> RawFd {
    fcntl(descriptor.as_fd(), FcntlArg::F_DUPFD(number)).expect("a copy")
}

/// A secret file at a low number, a directory of the host at 900, a connected socket at 3000 or as high as
/// can be; then the limit is lowered below them, so that no loop up to it would find them.
pub fn host() {
    let dir = private_dir();
    std::fs::write(dir.path().join("secret"), "secret").expect("a file");
    let secret = File::open(dir.path().join("secret")).expect("it");
    let directory = File::open(dir.path()).expect("it");
    let (socket, _other) = UnixStream::pair().expect("sockets");
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("the limit");
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("raised");
    let highest = i32::try_from(hard - 1).unwrap_or(3_000).min(3_000);
    assert!(highest > 900, "this machine's limit is too low to have lost any: {hard}");
    let slipped = [let_slip(&secret, 7), let_slip(&directory, 900), let_slip(&socket, highest)];
    setrlimit(Resource::RLIMIT_NOFILE, 256, 256).expect("lowered");
    let bench = Bench::new();
    let acts = [json!(["descriptors"]), json!(["list", "/proc/self/fd/900/.."])];
    let control = bench.outside(&acts);
    let has = |number: RawFd| control.list(0).iter().any(|one| one[0] == number);
    assert!(slipped.iter().all(|&number| has(number)), "the control has none: {control:?}");
    assert!(!control.list(1).is_empty(), "the control's leads nowhere: {control:?}");
    for profile in [Profile::Sealed, Profile::General] {
        let report = bench.acts(profile, &acts);
        let numbers: Vec<_> = report.list(0).iter().map(|one| &one[0]).collect();
        assert_eq!(numbers, [0, 1, 2], "{profile}");
        assert!(report.last_error().is_some(), "{profile}: {report:?}");
        for number in slipped {
            let mut spec =
                bench.spec_for(profile, &[json!(["status", "."]), json!(["status", "/"])]);
            spec.working_dir = format!("/proc/self/fd/{number}");
            // Refusing to start is right too.
            if bench.run(&spec, b"").is_ok() {
                let report = bench.acts_in(&spec, b"");
                assert_eq!(report.list(0)[2], report.list(1)[2], "{number} led out of {profile}");
            }
        }
    }
    // Nobody between the host and a jail holds them either.
    let lost = slipped.map(|number| format!("/proc/self/fd/{number}"));
    let lost = lost.map(|link| std::fs::read_link(link).expect("what it leads to"));
    for process in between(bench.client().keeper().as_raw_nonzero().get()) {
        let held = std::fs::read_dir(format!("/proc/{process}/fd")).expect("its descriptors");
        for entry in held.flatten() {
            let leads = std::fs::read_link(entry.path()).unwrap_or_default();
            assert!(!lost.contains(&leads), "process {process} holds {}", leads.display());
        }
    }
}

/// The keeper, and its child, the warden.
fn between(keeper: i32) -> Vec<i32> {
    let children = std::fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children"));
    let children = children.expect("the children of a process");
    let children = children.split_whitespace().filter_map(|pid| pid.parse().ok());
    let all: Vec<i32> = std::iter::once(keeper).chain(children).collect();
    assert!(all.len() > 1, "no warden was found");
    all
}
