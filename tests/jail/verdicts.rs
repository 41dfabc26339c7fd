//! What is said about this host and about a run is what is true.

use std::path::PathBuf;

use tokio_util::sync::CancellationToken;
use turnjail_driver::{ContainerDriver as _, ContainerSpec, DriverError, Limits, WallState};
use turnjail_jail::doctor::{Report, State};
use turnjail_jail::{Isolation, JailDriver, JailOptions, Policy, Profile};
use turnjail_tests::jails::Bench;
use turnjail_warden::canary::{Attempt, SUCCEEDED};
use turnjail_warden::wire::Status;

fn options(bench: &Bench) -> JailOptions {
    JailOptions::new(bench.path("store"))
}

pub fn doctor() {
    let bench = Bench::new();
    let places = [("images", bench.path("store"))];
    let options = options(&bench);
    let doctor = turnjail_jail::doctor::doctor(&options, &places);
    let Report { checks, inside } = bench.runtime().block_on(doctor);
    assert!(inside.is_some_and(|inside| inside.seccomp == "2"), "a worker was looked at");
    for check in &checks {
        assert_ne!(check.state, State::Failed, "{check:?}");
        assert!(check.state == State::Ok || check.consequence.is_some(), "{check:?}");
    }
    for name in ["kernel", "building blocks", "warden", "landlock", "jail", "walls", "inside"] {
        assert!(checks.iter().any(|check| check.name == name), "no check of {name}: {checks:?}");
    }
}

/// The verdicts themselves: an act that worked, or an answer that shows that it reached the kernel, is
/// never taken for a refusal.
pub fn canary() {
    const EINVAL: i32 = 22;
    const SIGSEGV: i32 = 11;
    let by_landlock = [Attempt::ListRoot, Attempt::SocketFile];
    let by_filter = [Attempt::Socket, Attempt::Unshare, Attempt::Mount, Attempt::Trace];
    let loopback = Isolation { loopback: true, ..Isolation::GENERAL };
    for isolation in [Isolation::SEALED, Isolation::GENERAL, loopback] {
        for &attempt in turnjail_jail::canary::attempts(isolation) {
            let refused = |status, landlock| attempt.refused(isolation.profile, status, landlock);
            assert!(!refused(Status::Code(SUCCEEDED), true), "{attempt:?}");
            let without = refused(Status::Code(SUCCEEDED), false);
            assert_eq!(without, by_landlock.contains(&attempt), "{attempt:?}");
            assert!(!refused(Status::Code(EINVAL), true), "{attempt:?}");
            assert!(!refused(Status::Code(0), true), "{attempt:?}");
            assert!(!refused(Status::Signal(SIGSEGV), true), "{attempt:?}");
            let fatal = isolation == Isolation::SEALED && by_filter.contains(&attempt);
            assert_eq!(refused(Status::Signal(31), true), fatal, "{attempt:?}");
        }
    }
}

/// A jail whose landlock is switched off is found out.
pub fn breach() {
    let bench = Bench::new();
    let mut spec = bench.spec(Profile::Sealed, &[]);
    let prove = |spec: &turnjail_jail::JailSpec| {
        let proof = turnjail_jail::canary::prove(bench.client(), spec, Attempt::ListRoot);
        bench.runtime().block_on(proof)
    };
    prove(&spec).expect("with landlock the root cannot be listed");
    spec.landlock = false;
    let error = prove(&spec).expect_err("without it the root can be");
    assert_eq!(error.code(), "breach", "{error}");
    assert!(error.to_string().contains("landlock"), "{error}");
}

pub fn policies() {
    let bench = Bench::new();
    let required = JailOptions { limits: Policy::Required, ..options(&bench) };
    let started = bench.runtime().block_on(JailDriver::start(required));
    if bench.client().limiter().has_cpu_share() {
        started.expect("cgroups are there");
        return;
    }
    let error = started.expect_err("no cgroups");
    assert!(matches!(error, DriverError::Start { code: "policy", .. }), "{error:?}");
    assert!(error.remedy().is_some_and(|remedy| remedy.contains("best-effort")), "{error:?}");
}

pub fn receipt() {
    let bench = Bench::new();
    let driver = bench.runtime().block_on(JailDriver::start(options(&bench))).expect("a driver");
    let (uid, gid) = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
    let dir = |name: &str| -> PathBuf { bench.path(name) };
    let spec = ContainerSpec {
        name: "roundtable-sandbox-0123456789abcdef-01234567".to_owned(),
        image: "turnjail-worker".to_owned(),
        run_dir: dir("run"),
        workspace_dir: dir("workspace"),
        channel_dir: None,
        uid,
        gid,
        limits: Limits::default(),
    };
    // Not a turn: the real worker says so in its own way.
    let never = CancellationToken::new();
    let run = driver.run(&spec, b"{}", &never, &());
    let error = bench.runtime().block_on(run).expect_err("an invalid turn");
    let DriverError::Worker { worker_code, receipt, .. } = error else { panic!("{error:?}") };
    assert_eq!(worker_code.as_deref(), Some("invalid_turn"));
    assert_eq!(receipt.profile, Some(Profile::Sealed.as_str()));
    assert!(receipt.image_digest.is_some_and(|digest| digest.starts_with("sha256:")));
    let share = receipt.limits.iter().find(|limit| limit.name == "cpu share").expect("a line");
    assert_eq!(share.by.is_some(), driver.limiter().has_cpu_share(), "{share:?}");
    let facts = driver.facts();
    let landlock = receipt.walls.iter().find(|wall| wall.name == "file access").expect("a wall");
    assert_eq!(landlock.state == WallState::Absent, facts.landlock_abi == 0);
}
