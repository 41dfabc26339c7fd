//! What the writable directories may hold.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use turnjail_driver::{ContainerDriver as _, ContainerSpec, DriverError, ExitReason, Limits};
use turnjail_jail::{Bounds, JailDriver, JailOptions, JailSpec, Profile};
use turnjail_protocol::errand::{Errand, ErrandOutcome};
use turnjail_tests::jails::Bench;

use crate::share::{PROFILES, run, small};

const MIB: u64 = 1 << 20;

const BOUNDS: Bounds = Bounds { bytes: 32 * MIB, entries: 500, reserve: 0 };

fn bounded(bench: &Bench, profile: Profile, acts: &[Value], bounds: Bounds) -> JailSpec {
    let mut spec = small(bench, profile, acts);
    spec.bounds = Some(bounds);
    spec
}

/// An empty workspace again.
fn clear(bench: &Bench) {
    let workspace = bench.path("workspace");
    fs::remove_dir_all(&workspace).expect("removed");
    fs::create_dir(&workspace).expect("made");
    fs::set_permissions(&workspace, fs::Permissions::from_mode(0o700)).expect("chmod");
}

/// The first process of a pid namespace ignores the signal and gets the error; any other dies of it.
pub fn one_file() {
    let bench = Bench::new();
    for profile in PROFILES {
        clear(&bench);
        let acts = [json!(["fill", "/workspace/file", 64]), bench.sleep()];
        let ended = run(&bench, &bounded(&bench, profile, &acts, BOUNDS));
        assert_eq!(ended.reason, ExitReason::Disk, "{profile}: {ended:?}");
        let size = fs::metadata(bench.path("workspace").join("file")).expect("the file").len();
        assert_eq!(size, BOUNDS.bytes, "{profile}");
    }
}

/// Each is small. Guests may hide theirs: permissions are none of the walk's concern.
pub fn many_files() {
    let bench = Bench::new();
    for profile in PROFILES {
        for (entries, bytes) in [(BOUNDS.entries, 0), (0, MIB)] {
            clear(&bench);
            let bounds = Bounds { entries, bytes, reserve: 0 };
            let large = (0..8).map(|n| json!(["fill", format!("/workspace/large-{n}"), 1]));
            // No file is larger than the bound for all, so that it is the sum that is seen.
            let mut acts: Vec<Value> = if bytes > 0 { large.collect() } else { vec![] };
            acts.insert(0, json!(["files", "/workspace", 600]));
            acts.push(bench.sleep());
            let ended = run(&bench, &bounded(&bench, profile, &acts, bounds));
            assert_eq!(ended.reason, ExitReason::Disk, "{profile} {bounds:?}: {ended:?}");
        }
    }
}

/// More than the file system has: nothing can start on it, and what runs is ended.
pub fn reserve() {
    let bench = Bench::new();
    let bounds = Bounds { bytes: 0, entries: 0, reserve: u64::MAX };
    let spec = bounded(&bench, Profile::Sealed, &[json!(["print", "x"])], bounds);
    let error = bench.run(&spec, b"").expect_err("refused");
    assert_eq!(error.code(), "disk-reserve", "{error}");
    assert!(error.to_string().contains("workspace"), "{error}");
    let none = Bounds { reserve: 1, ..bounds };
    let spec = bounded(&bench, Profile::Sealed, &[json!(["print", "x"])], none);
    assert_eq!(run(&bench, &spec).reason, ExitReason::Ok);
    reserve_of_a_running_turn(&bench);
}

/// Far within what its workspace may hold. The sizes leave room for what others write and remove meanwhile.
fn reserve_of_a_running_turn(bench: &Bench) {
    for profile in PROFILES {
        for (mib, reason) in [(400, ExitReason::Disk), (1, ExitReason::Ok)] {
            clear(bench);
            let mut acts = vec![json!(["fill", "/workspace/file", mib])];
            // Not a sleep, which nothing else would end.
            acts.extend((reason == ExitReason::Disk).then(|| json!(["spin", 60_000])));
            let space = rustix::fs::statvfs(bench.path("workspace")).expect("a file system");
            let free = space.f_bavail * space.f_frsize;
            assert!(free > 600 * MIB, "only {free} bytes are free for this test");
            let large = Bounds { bytes: 100 * free, entries: 1_000_000, reserve: free - 192 * MIB };
            let mut spec = bounded(bench, profile, &acts, large);
            // Where the workspace is in memory it counts as the jail's.
            spec.limits.memory_mb = 1024;
            spec.limits.time_ms = 20_000;
            let ended = run(bench, &spec);
            assert_eq!(ended.reason, reason, "{mib} MiB, {free} free, {profile}: {ended:?}");
        }
    }
}

/// A program that may write no more fails in its own way, and is not to blame for it.
pub fn failure() {
    let bench = Bench::new();
    for profile in PROFILES {
        clear(&bench);
        let acts = [json!(["files", "/workspace", 600]), json!(["exit", 1])];
        let ended = run(&bench, &bounded(&bench, profile, &acts, BOUNDS));
        assert_eq!(ended.reason, ExitReason::Disk, "{profile}: {ended:?}");
        clear(&bench);
        let ended = run(&bench, &bounded(&bench, profile, &acts[1..], BOUNDS));
        assert_eq!(ended.reason, ExitReason::WorkerFailed, "{profile}: {ended:?}");
    }
}

pub fn refused() {
    let bench = Bench::new();
    let full = |what: &str| {
        for profile in PROFILES {
            let acts = [json!(["write", "/workspace/ran", "x"])];
            let error = bench.run(&bounded(&bench, profile, &acts, BOUNDS), b"").expect_err(what);
            assert_eq!(error.code(), "workspace-full", "{what}: {error}");
            let path = bench.path("workspace").display().to_string();
            assert!(error.to_string().contains(&path), "{what}: {error}");
            let remedy = error.remedy().unwrap_or_default();
            assert!(remedy.contains("turnjail workspace"), "{what}: {remedy}");
            assert!(!bench.path("workspace").join("ran").exists(), "{what}: it ran");
        }
        clear(&bench);
    };
    let workspace = bench.path("workspace");
    fs::write(workspace.join("large"), vec![1; 33 << 20]).expect("a file");
    full("a large file");
    // What its permissions hide is counted as well.
    let hidden = workspace.join("hidden");
    fs::create_dir(&hidden).expect("a directory");
    fs::write(hidden.join("large"), vec![1; 33 << 20]).expect("a file");
    fs::set_permissions(&hidden, fs::Permissions::from_mode(0o000)).expect("chmod");
    let acts = [json!(["write", "/workspace/ran", "x"])];
    let spec = bounded(&bench, Profile::Sealed, &acts, BOUNDS);
    let error = bench.run(&spec, b"").expect_err("a hidden file");
    assert_eq!(error.code(), "workspace-full", "{error}");
    fs::set_permissions(&hidden, fs::Permissions::from_mode(0o700)).expect("chmod");
    clear(&bench);
    (0..501).for_each(|n| fs::write(workspace.join(n.to_string()), "").expect("a file"));
    full("many files");
    let deep = (0..200).fold(workspace.clone(), |path, _| path.join("d"));
    fs::create_dir_all(deep).expect("directories");
    full("a deep chain");
    let acts = [json!(["write", "/workspace/ran", "x"])];
    let ended = run(&bench, &bounded(&bench, Profile::Sealed, &acts, BOUNDS));
    assert_eq!(ended.reason, ExitReason::Ok, "emptied, it runs again: {ended:?}");
}

pub fn errands() {
    let bench = Bench::new();
    let mut options = JailOptions::new(bench.path("store"));
    options.bounds = BOUNDS;
    let driver = bench.runtime().block_on(JailDriver::start(options)).expect("a driver");
    let spec = ContainerSpec {
        name: "roundtable-sandbox-0123456789abcdef-01234567".to_owned(),
        image: "turnjail-worker".to_owned(),
        run_dir: bench.path("run"),
        workspace_dir: bench.path("workspace"),
        channel_dir: None,
        uid: nix::unistd::geteuid().as_raw(),
        gid: nix::unistd::getegid().as_raw(),
        limits: Limits::default(),
    };
    (0..600).for_each(|n| fs::write(spec.workspace_dir.join(n.to_string()), "").expect("a file"));
    let never = CancellationToken::new();
    let done =
        |input: &str| bench.runtime().block_on(driver.run(&spec, input.as_bytes(), &never, &()));
    let error = done("{}").expect_err("a turn is refused");
    assert!(matches!(error, DriverError::Workspace { code: "workspace-full", .. }), "{error:?}");
    let measured = done(&Errand::Measure.to_json()).expect("an errand").reply.text;
    let measured = ErrandOutcome::parse(Errand::Measure, &measured);
    assert_eq!(measured, Some(ErrandOutcome::Measured { entries: 600, bytes: 0, cut: false }));
    done(&Errand::Clear.to_json()).expect("an errand");
    let error = done("{}").expect_err("not a turn");
    assert!(matches!(error, DriverError::Worker { .. }), "it runs again: {error:?}");
}
