//! A runtime with real jails in directories of its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;
use turnjail_broker::{BrokerSettings, Credential};
use turnjail_images::BUILTIN;
use turnjail_jail::{JailDriver, JailOptions};
use turnjail_runtime::{SandboxOptions, SandboxRuntime, Speaker, TurnRequest};
use turnjail_tests::jails::private_dir;

use turnjail_tests::model::Model;

pub struct Stage {
    directory: TempDir,
    pub model: Model,
    pub runtime: SandboxRuntime,
    pub driver: Arc<JailDriver>,
}

impl Stage {
    /// Starts everything; `change` sets what differs from the defaults.
    pub async fn start(
        model: Model,
        broker: impl FnOnce(&mut BrokerSettings),
        options: impl FnOnce(SandboxOptions) -> SandboxOptions,
    ) -> Self {
        let directory = private_dir();
        let mut settings = BrokerSettings::new("model-1", model.url(), Credential::None);
        settings.allow_http = true;
        broker(&mut settings);
        let (run, work) = (directory.path().join("run"), directory.path().join("work"));
        let options = options(SandboxOptions::new(BUILTIN, run, work, settings));
        let store = directory.path().join("images");
        let driver = JailDriver::start(JailOptions::new(store)).await.expect("a driver");
        let driver = Arc::new(driver);
        let ours = Arc::clone(&driver);
        let runtime = SandboxRuntime::new(options, ours).await.expect("a runtime");
        runtime.verify_image().await.expect("the built-in image");
        Self { directory, model, runtime, driver }
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The directory of a workspace or a channel's state.
    pub fn kept(&self, name: &str) -> PathBuf {
        self.path().join("work").join(name)
    }

    /// What of turns stands in the run root.
    pub fn run_directories(&self) -> usize {
        std::fs::read_dir(self.path().join("run"))
            .expect("the run root")
            .filter(|entry| {
                let name = entry.as_ref().expect("an entry").file_name();
                name.to_string_lossy().starts_with("turn-")
            })
            .count()
    }

    /// Says something in a channel and gives the reply.
    pub async fn say(&self, channel: &str, text: &str) -> String {
        let turn = self.runtime.run_turn(request(None, channel, text));
        let result = turn.await.unwrap_or_else(|error| panic!("{text}: {error}"));
        assert!(result.reply.ok, "{text}: {}", result.reply.text);
        assert_eq!(self.run_directories(), 0);
        result.reply.text
    }
}

pub fn request(space: Option<&str>, channel: &str, text: &str) -> TurnRequest {
    TurnRequest {
        channel: channel.to_owned(),
        space: space.map(str::to_owned),
        speaker: Speaker {
            id: "ann".to_owned(),
            name: "Ann".to_owned(),
            principal_id: "principal-of-ann".to_owned(),
        },
        text: text.to_owned(),
    }
}

pub fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Runtime::new().expect("a runtime").block_on(test);
}
