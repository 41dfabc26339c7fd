//! What every test needs: an ordinary user, two roots, options, and a way to run async code.

pub mod driver;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::unistd::{Gid, Uid, getuid, setgroups, setresgid, setresuid};
use tempfile::TempDir;
use turnjail_broker::{BrokerSettings, Credential};
use turnjail_driver::ContainerDriver;
use turnjail_runtime::{SandboxOptions, SandboxRuntime, Speaker, TurnRequest};

pub use driver::{Scripted, Verdict};

/// A test by name.
pub type Test = (&'static str, fn());

/// Lists functions as tests under `module::function`.
macro_rules! tests {
    ($($test:ident),* $(,)?) => {
        pub fn tests() -> Vec<crate::common::Test> {
            vec![$((
                concat!(module_path!(), "::", stringify!($test)),
                $test as fn(),
            )),*]
        }
    };
}
pub(crate) use tests;

/// Neither root nor an id that the kernel uses for "nobody".
const ORDINARY: u32 = 60_001;

/// Becomes an ordinary user if this is root. Only while there is one thread.
pub fn drop_root() {
    if !getuid().is_root() {
        return;
    }
    let (uid, gid) = (Uid::from_raw(ORDINARY), Gid::from_raw(ORDINARY));
    setgroups(&[]).expect("drop groups");
    setresgid(gid, gid, gid).expect("drop the group");
    setresuid(uid, uid, uid).expect("drop the user");
}

/// Thousands of scripted panics would bury a real one.
pub fn silence_panics_on_purpose() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let on_purpose =
            panic.payload().downcast_ref::<&str>().is_some_and(|text| text.contains("on purpose"));
        if !on_purpose {
            report(panic);
        }
    }));
}

/// Two fresh roots.
pub struct Place {
    directory: TempDir,
}

impl Place {
    pub fn new() -> Self {
        Self { directory: tempfile::Builder::new().prefix("tj-").tempdir().unwrap() }
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn run_root(&self) -> PathBuf {
        self.path().join("run")
    }

    pub fn workspace_root(&self) -> PathBuf {
        self.path().join("work")
    }

    pub fn options(&self) -> SandboxOptions {
        SandboxOptions::new("worker:1", self.run_root(), self.workspace_root(), broker())
    }

    pub async fn runtime(&self, driver: &Arc<Scripted>) -> SandboxRuntime {
        start(self.options(), driver).await
    }

    /// What turns have left in the run root.
    pub fn run_directories(&self) -> Vec<String> {
        names(&self.run_root())
    }

    /// The workspaces and states.
    pub fn workspaces(&self) -> Vec<String> {
        names(&self.workspace_root())
    }
}

/// Names in a directory but the host's own hidden ones, sorted.
fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort();
    names
}

/// A model that nobody serves: scripted workers make no calls.
pub fn broker() -> BrokerSettings {
    let mut settings =
        BrokerSettings::new("model-1", "http://127.0.0.1:9/v1/chat/completions", Credential::None);
    settings.allow_http = true;
    settings
}

pub async fn start(options: SandboxOptions, driver: &Arc<Scripted>) -> SandboxRuntime {
    let driver: Arc<dyn ContainerDriver> = driver.clone();
    SandboxRuntime::new(options, driver).await.unwrap()
}

pub fn request(channel: &str, text: &str) -> TurnRequest {
    TurnRequest {
        channel: channel.to_owned(),
        space: None,
        speaker: Speaker {
            id: "ann".to_owned(),
            name: "Ann".to_owned(),
            principal_id: "principal:ann".to_owned(),
        },
        text: text.to_owned(),
    }
}

pub fn in_space(space: &str, channel: &str, text: &str) -> TurnRequest {
    TurnRequest { space: Some(space.to_owned()), ..request(channel, text) }
}

/// Runs with time that stands still unless everybody waits for it.
pub fn paused(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(test);
}

/// Runs on two threads in real time.
pub fn threaded(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(test);
}

/// Waits for something that must come true soon.
pub async fn eventually(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..2_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("not within 10 s: {what}");
}
