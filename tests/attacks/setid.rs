//! A12 with a real set-id program: one that makes whoever executes it root, outside of a jail.
//!
//! Only root can make one, so it is made before this program drops to an ordinary user, in a root
//! filesystem that is that user's otherwise.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::json;
use tempfile::TempDir;
use turnjail_tests::acts::call;
use turnjail_tests::jails::{Bench, PROBE};
use turnjail_tests::{Fact, Test};
use turnjail_warden::seccomp::numbers;

use crate::support::PROFILES;

pub const TESTS: &[Test] =
    &[Test::with("a12_a_set_id_program_makes_nobody_root", &[Fact::Jail, Fact::Root], a12)];

static ROOT: OnceLock<PathBuf> = OnceLock::new();

/// Makes the root filesystem, when this is root; it goes with the answer.
pub fn prepare() -> Option<TempDir> {
    nix::unistd::geteuid().is_root().then_some(())?;
    let (uid, gid) = turnjail_tests::ordinary();
    let dir = tempfile::Builder::new().prefix("turnjail-setid-").tempdir_in("/tmp").ok()?;
    let own = |path: &Path, mode: u32| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
        chown(path, Some(uid), Some(gid)).expect("chown");
    };
    for name in ["broker", "channel", "dev", "proc", "tmp", "workspace"] {
        fs::create_dir(dir.path().join(name)).expect("a directory");
        own(&dir.path().join(name), 0o755);
    }
    for (name, mode) in [("worker", 0o555), ("root", 0o4755)] {
        let path = dir.path().join(name);
        fs::write(&path, PROBE).expect("the probe");
        if mode == 0o555 {
            own(&path, mode);
        } else {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("chmod");
        }
    }
    own(dir.path(), 0o755);
    ROOT.set(dir.path().to_owned()).ok()?;
    Some(dir)
}

fn a12() {
    let root = ROOT.get().expect("made by root");
    let ask = call(numbers::GETEUID, json!([])).to_string();
    let control = Command::new(root.join("root")).arg(&ask).output().expect("the control");
    let said = String::from_utf8_lossy(&control.stdout).into_owned();
    assert!(said.contains("\"value\":0"), "it makes nobody root outside either: {said}");
    let bench = Bench::new();
    for &profile in PROFILES {
        // Under the sealed profile landlock lets nothing else start, so it is the program itself there.
        let mut spec = bench.spec(profile, &[&ask]);
        spec.rootfs.clone_from(root);
        "/root".clone_into(&mut spec.command[0]);
        let ended = bench.run(&spec, b"").expect("a jail");
        let said = String::from_utf8_lossy(&ended.stdout).into_owned();
        let uid = nix::unistd::geteuid();
        let forbidden = ended.reason == turnjail_driver::ExitReason::Filter;
        assert!(forbidden || said.contains(&format!("\"value\":{uid}")), "{profile}: {said}");
    }
}
