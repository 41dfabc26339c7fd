//! R11: paths that are there at one moment and gone at the next, or that can only be passed through.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::json;
use turnjail_driver::ExitReason;
use turnjail_jail::Profile;
use turnjail_tests::jails::{Bench, private_dir};

use crate::count;

/// A lock file of git's comes and goes in the workspace while turns start.
pub fn r11_vanishing() {
    let bench = Bench::new();
    let git = bench.path("workspace").join(".git");
    fs::create_dir(&git).expect("a directory");
    let (stop, changes) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let lock = git.join("config.lock");
            while !stop.load(Ordering::Relaxed) {
                fs::write(&lock, "x").expect("made");
                fs::remove_file(&lock).expect("removed");
                changes.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut spec = bench.spec_for(Profile::Sealed, &[json!(["exit", 0])]);
        spec.bounds = Some(turnjail_jail::Bounds { bytes: 1 << 30, entries: 1_000, reserve: 0 });
        for turn in 0..count(60, 300) {
            let ended = bench.run(&spec, b"").unwrap_or_else(|e| panic!("turn {turn}: {e}"));
            assert_eq!(ended.reason, ExitReason::Ok, "turn {turn}: {}", ended.cause());
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(changes.load(Ordering::Relaxed) > 60, "hardly anything came and went");
    // A place that must be there and is not is named.
    fs::remove_dir(bench.path("channel")).expect("removed");
    let error = bench.run(&bench.spec(Profile::Sealed, &[]), b"").expect_err("it is missing");
    assert!(error.to_string().contains("channel") && error.remedy().is_some(), "{error}");
}

/// The workspace lies below a directory that may be passed and not listed.
pub fn r11_passed() {
    let dir = private_dir();
    let above = dir.path().join("above");
    let workspace = above.join("workspace");
    fs::create_dir_all(&workspace).expect("directories");
    let mode = |mode| fs::set_permissions(&above, fs::Permissions::from_mode(mode)).expect("chmod");
    mode(0o111);
    assert!(fs::read_dir(&above).is_err(), "the control lists it");
    let bench = Bench::new();
    let mut spec = bench.spec_for(Profile::Sealed, &[json!(["write", "/workspace/file", "x"])]);
    for mount in &mut spec.mounts {
        if mount.target == turnjail_jail::Target::Workspace {
            mount.source.clone_from(&workspace);
        }
    }
    let ended = bench.run(&spec, b"");
    mode(0o700);
    assert_eq!(ended.expect("a jail").reason, ExitReason::Ok);
    assert_eq!(fs::read_to_string(workspace.join("file")).expect("written"), "x");
}
