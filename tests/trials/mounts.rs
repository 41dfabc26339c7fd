//! R07: workspaces on mounts that have flags of their own, and with a mount below them that may not be
//! written.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use turnjail_jail::{JailSpec, Profile, Target};
use turnjail_tests::acts::Report;
use turnjail_tests::jails::{Bench, PROBE, private_dir};
use turnjail_tests::unique_word;

use crate::hosts;

/// The flags of the mount outside, for the host that is started below it.
const FLAGS: &str = "TURNJAIL_TRIAL_FLAGS";

const EACCES: i64 = 13;
const EROFS: i64 = 30;

/// Older ways of mounting, which know less of what is mounted below.
const OLDER: &str = "open_tree,move_mount,mount_setattr";

pub fn r07() {
    for flags in ["nosuid,nodev,noatime", "nosuid,noexec,nodiratime", "ro,nosuid,noatime"] {
        for (way, without) in [("prepared", ""), ("direct", ""), ("direct", OLDER)] {
            let home = private_dir();
            // A file of git's in a directory that is mounted read-only over itself, and a program.
            let setup = format!(
                "cd {}; mkdir ws; mount -t tmpfs -o mode=700,size=32m none ws; mkdir ws/.git; \
                 echo x > ws/.git/config; cp worker ws/program; mount --bind ws/.git ws/.git; \
                 mount -o remount,bind,ro ws/.git; mount -o remount,bind,{flags} ws",
                home.path().display()
            );
            fs::write(home.path().join("worker"), PROBE).expect("a program");
            fs::set_permissions(
                home.path().join("worker"),
                std::os::unix::fs::PermissionsExt::from_mode(0o755),
            )
            .expect("its mode");
            let mut command = hosts::host_after(&setup, "mounted", home.path());
            command.env(FLAGS, flags).env("TURNJAIL_TEST_WAY", way);
            if !without.is_empty() {
                command.env(turnjail_tests::without::VARIABLE, without);
            }
            hosts::assert_good(&mut command, &format!("{flags}, {way} without {without:?}"));
        }
    }
}

/// The host below such a mount.
pub fn host() {
    let place = std::env::temp_dir().join("ws");
    let asked = std::env::var(FLAGS).expect("flags");
    let bench = Bench::new();
    // Taken away, or those of an older kernel.
    let old = !bench.client().facts().mechanisms.detached_mounts;
    let taken = std::env::var_os(turnjail_tests::without::VARIABLE).is_some();
    assert!(old || !taken, "the newer calls are there all the same");
    let outside = flags_of(Path::new("/proc/self/mountinfo"), &place.to_string_lossy());
    for flag in asked.split(',') {
        assert!(outside.contains(flag), "the control is not {flag}: {outside:?}");
    }
    for profile in [Profile::Sealed, Profile::General] {
        let write = |path: &str| [json!(["write", path, "x"])];
        let spec = on(&bench, &place, profile, &write("/workspace/new"));
        if old {
            // What is mounted below would be left behind, and with it its wall.
            let error = bench.run(&spec, b"").expect_err("what is below cannot be taken along");
            assert_eq!(error.code(), "mount-below", "{error}");
            assert!(error.to_string().contains("ws") && error.remedy().is_some(), "{error}");
            continue;
        }
        let report = bench.acts_in(&spec, b"");
        let writable = outside.contains("rw");
        assert_eq!(report.worked(), writable, "{profile}: {report:?}");
        assert!(writable || report.last_error() == Some(EROFS), "{profile}: {report:?}");
        let report =
            bench.acts_in(&on(&bench, &place, profile, &write("/workspace/.git/config")), b"");
        assert_eq!(report.last_error(), Some(EROFS), "{profile}: {report:?}");
        let inside = seen(&bench, &place, profile);
        let lost: Vec<_> = outside.iter().filter(|flag| !accounted(flag, &inside)).collect();
        assert!(lost.is_empty(), "{profile} lost {lost:?}: {outside:?} became {inside:?}");
        for flag in ["nosuid", "nodev"] {
            assert!(inside.contains(flag), "{profile}: {inside:?}");
        }
    }
    if !old {
        executes(&bench, &place, outside.contains("noexec"));
    }
}

/// A program in the workspace of a general image runs where the mount lets it.
fn executes(bench: &Bench, place: &Path, noexec: bool) {
    let act = json!(["run", "/workspace/program", json!(["print", "ran"]).to_string()]);
    let report: Report = bench.acts_in(&on(bench, place, Profile::General, &[act]), b"");
    if noexec {
        assert!(report.text(0).contains(&format!("error {EACCES}")), "{report:?}");
    } else {
        assert!(report.text(0).starts_with("ran"), "{report:?}");
    }
}

/// `rw` may become `ro`, and of access times the mount may say more.
fn accounted(flag: &str, inside: &BTreeSet<String>) -> bool {
    inside.contains(flag) || flag == "rw"
}

fn on(bench: &Bench, place: &Path, profile: Profile, acts: &[Value]) -> JailSpec {
    let mut spec = bench.spec_for(profile, acts);
    for mount in &mut spec.mounts {
        if mount.target == Target::Workspace {
            place.clone_into(&mut mount.source);
        }
    }
    spec
}

/// The flags of /workspace as the kernel tells them of a jailed program.
fn seen(bench: &Bench, place: &Path, profile: Profile) -> BTreeSet<String> {
    let never = bench.path("channel").join("never");
    if !never.exists() {
        nix::unistd::mkfifo(&never, nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
    }
    let word = unique_word(format_args!("mounted-{profile}"));
    let acts = [json!(["wait", "/channel/never"]), json!(["print", word])];
    let spec = on(bench, place, profile, &acts);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| bench.run(&spec, b""));
        let (found, process) = loop {
            // The first process of a general jail has another command line.
            if let Some(process) = find(&word) {
                let found = flags_of(&process.join("mountinfo"), "/workspace");
                if !found.is_empty() {
                    break (found, process);
                }
            }
            assert!(!running.is_finished(), "it did not wait: {:?}", running.join());
        };
        // Opening the other end wakes it.
        drop(fs::OpenOptions::new().write(true).open(&never).expect("somebody waits"));
        running.join().expect("a host").expect("a jail");
        drop(process);
        found
    })
}

fn find(word: &str) -> Option<PathBuf> {
    fs::read_dir("/proc").ok()?.flatten().map(|entry| entry.path()).find(|process| {
        let line = fs::read(process.join("cmdline")).unwrap_or_default();
        line.starts_with(b"/worker\0") && String::from_utf8_lossy(&line).contains(word)
    })
}

/// The flags of the last mount at a place.
fn flags_of(table: &Path, place: &str) -> BTreeSet<String> {
    let table = fs::read_to_string(table).unwrap_or_default();
    let mut lines = table.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let at = lines.rfind(|fields| fields.get(4) == Some(&place));
    let flags = at.and_then(|fields| fields.get(5).map(|flags| (*flags).to_owned()));
    flags.unwrap_or_default().split(',').filter(|f| !f.is_empty()).map(str::to_owned).collect()
}
