//! Whole turns as a contender: a runtime, its broker, a model that answers at once, and a driver.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use turnjail_broker::{BrokerSettings, Credential};
use turnjail_driver::ContainerDriver;
use turnjail_jail::{JailDriver, JailOptions};
use turnjail_runtime::{SandboxOptions, SandboxRuntime, Speaker, TurnRequest};

use crate::{Contender, Scratch, upstream};

/// A runtime that answers turns.
pub struct Turns {
    name: &'static str,
    runtime: Runtime,
    sandbox: Arc<SandboxRuntime>,
}

impl Turns {
    /// Starts one below a directory of its own. `start` makes the driver, given a directory for images.
    pub fn new(
        name: &'static str,
        scratch: &Scratch,
        directory: &str,
        start: impl AsyncFnOnce(PathBuf) -> Arc<dyn ContainerDriver>,
    ) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let mut broker = BrokerSettings::new("model", upstream::start(), Credential::None);
        broker.allow_http = true;
        scratch.private(directory);
        let path = |name: &str| {
            let path = Path::new(directory).join(name);
            scratch.private(path.to_str().expect("a name"))
        };
        let options =
            SandboxOptions::new("turnjail-worker", path("turns"), path("workspaces"), broker);
        let store = path("store");
        let sandbox = runtime.block_on(async {
            SandboxRuntime::new(options, start(store).await).await.expect("a runtime")
        });
        Self { name, runtime, sandbox: Arc::new(sandbox) }
    }

    /// What its futures run in.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// What answers.
    pub fn sandbox(&self) -> Arc<SandboxRuntime> {
        Arc::clone(&self.sandbox)
    }
}

/// The namespace driver as it is.
pub async fn jails(store: PathBuf) -> Arc<dyn ContainerDriver> {
    Arc::new(JailDriver::start(JailOptions::new(store)).await.expect("jails"))
}

/// A message in a channel of this number.
pub fn request(channel: usize) -> TurnRequest {
    let speaker =
        Speaker { id: "a".to_owned(), name: "A".to_owned(), principal_id: "bench:a".to_owned() };
    let channel = format!("bench:{channel}");
    TurnRequest { channel, space: None, speaker, text: "Hello!".to_owned() }
}

impl Contender for Turns {
    fn name(&self) -> &'static str {
        self.name
    }

    fn start(&mut self) -> Duration {
        self.sandbox.start_fresh("bench:0");
        let start = Instant::now();
        let result = self.runtime.block_on(self.sandbox.run_turn(request(0)));
        let time = start.elapsed();
        assert!(result.expect("a reply").reply.ok);
        time
    }
}
