//! Workspaces between turns: measured, forgotten and mended by a worker in a real jail.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::ExitCode;
use std::sync::Arc;

use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use turnjail_driver::{
    ContainerDriver, ContainerSpec, DriverError, ExitReason, Outcome, Progress, Receipt, Timing,
    Usage,
};
use turnjail_jail::{JailDriver, JailOptions};
use turnjail_protocol::Reply;
use turnjail_protocol::errand::ErrandOutcome;
use turnjail_runtime::{TurnDirectories, TurnError, Workspaces, channel_workspace};
use turnjail_tests::jails::private_dir;
use turnjail_tests::{Test, harness};

fn main() -> ExitCode {
    harness(&[
        Test::new("a_workspace_is_measured", measured),
        Test::new("a_workspace_is_removed_and_nothing_outside_it", removed),
        Test::new("what_is_broken_is_put_aside", mended),
        Test::new("a_workspace_in_use_is_left_alone", in_use),
        Test::new("directories_closed_to_their_owner_are_removed", closed),
        Test::new("what_cannot_be_removed_is_said", stuck),
    ])
}

struct Place {
    dir: tempfile::TempDir,
    runtime: Runtime,
    directories: TurnDirectories,
}

impl Place {
    fn new() -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let workspace = channel_workspace("test:1");
        let directories = TurnDirectories { workspace, state: None };
        Self { dir: private_dir(), runtime, directories }
    }

    fn open(&self) -> Workspaces {
        self.runtime.block_on(async {
            let path = |name: &str| self.dir.path().join(name);
            let driver = JailDriver::start(JailOptions::new(path("images"))).await.expect("jails");
            let (run, root) = (path("run"), path("workspaces"));
            let image = turnjail_images::BUILTIN;
            Workspaces::open(&run, &root, image, Arc::new(driver)).await.expect("workspaces")
        })
    }

    /// The channel's workspace, made as a turn makes it.
    fn workspace(&self, workspaces: &Workspaces) -> std::path::PathBuf {
        let path = workspaces.path(&self.directories.workspace);
        fs::create_dir(&path).expect("a directory");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("chmod");
        path
    }
}

fn measured() {
    let place = Place::new();
    let workspaces = place.open();
    let path = place.workspace(&workspaces);
    fs::create_dir(path.join("files")).expect("a directory");
    fs::write(path.join("files/note"), "12345").expect("a file");
    symlink("/", path.join("link")).expect("a link");
    let list = place.runtime.block_on(workspaces.list()).expect("a list");
    let [info] = &list[..] else { panic!("{list:?}") };
    let size = info.size.expect("a size");
    assert_eq!((size.entries, size.bytes, size.cut), (3, 5, false));
}

fn removed() {
    let place = Place::new();
    let outside = place.dir.path().join("outside");
    fs::create_dir(&outside).expect("a directory");
    fs::write(outside.join("kept"), "x").expect("a file");
    let workspaces = place.open();
    let path = place.workspace(&workspaces);
    symlink(&outside, path.join("link")).expect("a link");
    let deep = (0..100).fold(path.clone(), |path, _| path.join("d"));
    fs::create_dir_all(deep).expect("directories");
    let remove = || place.runtime.block_on(workspaces.remove(&place.directories));
    assert!(remove().expect("removed"));
    assert!(!path.exists() && outside.join("kept").exists());
    assert!(!remove().expect("nothing left to remove"));
}

fn mended() {
    let place = Place::new();
    let workspaces = place.open();
    let path = place.workspace(&workspaces);
    fs::write(path.join("history.json"), "{").expect("a file");
    fs::write(path.join("memory.json"), "[]").expect("a file");
    let repair = || place.runtime.block_on(workspaces.repair(&place.directories)).expect("mended");
    let aside = repair();
    let [name] = &aside[..] else { panic!("{aside:?}") };
    assert!(name.contains("history.json.broken-"), "{name}");
    assert_eq!(fs::read_to_string(workspaces.path(name)).expect("kept"), "{");
    assert!(path.join("memory.json").exists() && !path.join("history.json").exists());
    assert!(repair().is_empty());
    // What is no file at all, such as a planted link, is removed.
    symlink("/etc/passwd", path.join("history.json")).expect("a link");
    assert_eq!(repair().len(), 1);
    assert!(fs::symlink_metadata(path.join("history.json")).is_err());
}

fn in_use() {
    let place = Place::new();
    let workspaces = place.open();
    let path = place.workspace(&workspaces);
    let lock = place.dir.path().join("workspaces/.turnjail-locks");
    let lock = fs::File::create(lock.join(&place.directories.workspace)).expect("the lock");
    let held = nix::fcntl::Flock::lock(lock, nix::fcntl::FlockArg::LockExclusiveNonblock);
    let held = held.map_err(|(_, errno)| errno).expect("locked");
    let error = place.runtime.block_on(workspaces.remove(&place.directories)).expect_err("in use");
    assert!(matches!(error, TurnError::WorkspaceBusy { .. }), "{error:?}");
    assert!(path.exists());
    let list = place.runtime.block_on(workspaces.list()).expect("a list");
    assert_eq!(list.first().map(|info| info.size), Some(None));
    drop(held);
}

/// A program of a general image can close directories even to their owner.
fn closed() {
    let place = Place::new();
    let workspaces = place.open();
    let path = place.workspace(&workspaces);
    let inner = path.join("closed/inner");
    fs::create_dir_all(&inner).expect("directories");
    fs::write(inner.join("file"), "x").expect("a file");
    for closed in [&inner, &path.join("closed"), &path] {
        fs::set_permissions(closed, fs::Permissions::from_mode(0o000)).expect("chmod");
    }
    assert!(place.runtime.block_on(workspaces.remove(&place.directories)).expect("removed"));
    assert!(!path.exists());
}

/// A driver whose worker could not remove everything.
struct Stuck;

#[async_trait::async_trait]
impl ContainerDriver for Stuck {
    fn name(&self) -> &'static str {
        "stuck"
    }

    async fn run(
        &self,
        spec: &ContainerSpec,
        _turn: &[u8],
        _cancel: &CancellationToken,
        _progress: &dyn Progress,
    ) -> Result<Outcome, DriverError> {
        let outcome = ErrandOutcome::Cleared { removed: 2, left: 1 };
        let receipt = Receipt {
            driver: self.name(),
            image: spec.image.clone(),
            image_digest: None,
            profile: None,
            loopback: None,
            walls: Vec::new(),
            limits: Vec::new(),
            exit: ExitReason::Ok,
            timing: Timing::default(),
            usage: Usage::default(),
        };
        Ok(Outcome { reply: Reply { ok: true, text: outcome.to_json() }, receipt })
    }
}

fn stuck() {
    let place = Place::new();
    let path = |name: &str| place.dir.path().join(name);
    let (run, root) = (path("run"), path("workspaces"));
    let open = Workspaces::open(&run, &root, "image", Arc::new(Stuck));
    let workspaces = place.runtime.block_on(open).expect("workspaces");
    let path = place.workspace(&workspaces);
    let error = place.runtime.block_on(workspaces.remove(&place.directories)).expect_err("stuck");
    let text = error.to_string();
    assert!(text.contains(&place.directories.workspace) && text.contains('1'), "{text}");
    assert!(path.exists(), "what holds something stays");
}
