//! The demonstration: one conversation in real jails, with everything it needs brought along.
//!
//! The built-in image, a model server on loopback ([`model`]), a host tool ([`dice`]) and directories
//! of its own ([`place`]), which are gone afterwards. Runtime, broker, jail and worker are those that
//! every other command uses.

mod dice;
mod model;
mod place;

use std::sync::Arc;

use async_trait::async_trait;
use turnjail_broker::{
    BrokerSettings, Credential, CredentialError, CredentialRequest, CredentialSource, Secret, Tool,
};
use turnjail_jail::{JailDriver, JailOptions};
use turnjail_protocol::Files;
use turnjail_protocol::limits::{MAX_FILE_BYTES, MAX_TOTAL_BYTES};
use turnjail_runtime::{
    Event, EventReceiver, SandboxOptions, SandboxRuntime, Speaker, TurnRequest, event_channel,
};

use crate::error::{CliError, Exit};
use dice::Dice;
use model::DemoModel;
pub use place::Place;

/// One thing that the guest says, and how the demonstration knows that it went well.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    /// What is said.
    pub says: &'static str,
    /// What the reply must contain.
    pub expects: &'static str,
    /// What it shows, in a few words.
    pub shows: &'static str,
}

/// The conversation.
pub const SCRIPT: [Step; 4] = [
    Step {
        says: "Please remember that my favourite colour is teal.",
        expects: "is teal",
        shows: "memory, written in the jail",
    },
    Step {
        says: "What is my favourite colour?",
        expects: "is teal. You told me so.",
        shows: "the same memory in another jail",
    },
    Step {
        says: "Roll two dice for me.",
        expects: "You rolled ",
        shows: "a tool of the host's, through the broker",
    },
    Step {
        says: "Write \"buy milk\" to notes/today.txt and read it back.",
        expects: "now says: buy milk",
        shows: "a file of the channel's workspace",
    },
];

/// A runtime with everything a conversation needs.
pub struct Demo {
    /// The runtime, in the demonstration's own directories.
    pub runtime: SandboxRuntime,
    /// Serves while this lives.
    _model: DemoModel,
}

impl Demo {
    /// Starts the model and the runtime. `jail` says what must be in force; its store is not used.
    pub async fn start(place: &Place, jail: JailOptions) -> Result<Self, CliError> {
        let model = DemoModel::start().await.map_err(|error| {
            CliError::new(
                Exit::Failed,
                "demo-model",
                format_args!("the demonstration's model cannot listen on 127.0.0.1: {error}"),
                "allow this user to listen on loopback",
            )
        })?;
        let driver = JailDriver::start(JailOptions { store: place.images(), ..jail }).await;
        let driver = driver.map_err(|error| crate::cli::failure::driver(&error))?;
        let runtime = SandboxRuntime::new(options(place, &model), Arc::new(driver)).await;
        let runtime = runtime.map_err(|error| crate::cli::failure::setup(&error))?;
        if let Err(error) = runtime.verify_image().await {
            runtime.dispose().await;
            return Err(crate::cli::failure::setup(&error));
        }
        Ok(Self { runtime, _model: model })
    }
}

/// What the guest of the demonstration says next.
pub fn request(text: &str) -> TurnRequest {
    let speaker = Speaker { id: "ann".into(), name: "Ann".into(), principal_id: "demo:ann".into() };
    TurnRequest { channel: "demo:table".into(), space: None, speaker, text: text.into() }
}

fn options(place: &Place, model: &DemoModel) -> SandboxOptions {
    let credential = Credential::Source(Arc::new(DemoKey(model.key())));
    let mut broker = BrokerSettings::new(model::NAME, model.url(), credential);
    broker.allow_http = true;
    broker.tools = vec![Tool::Host(Arc::new(Dice::new()))];
    let image = turnjail_images::BUILTIN;
    let files = Files { max_file_bytes: MAX_FILE_BYTES, max_total_bytes: MAX_TOTAL_BYTES };
    SandboxOptions::new(image, place.run(), place.workspaces(), broker).files(files)
}

/// The key of the demonstration's model, known to this process alone.
struct DemoKey(Arc<str>);

#[async_trait]
impl CredentialSource for DemoKey {
    async fn credential(
        &self,
        _: CredentialRequest<'_>,
    ) -> Result<Option<Secret>, CredentialError> {
        Ok(Some(Secret::new(&*self.0)))
    }
}

/// Collects the events of a turn while it runs.
pub struct Watcher {
    receiver: EventReceiver,
}

impl Watcher {
    /// A watcher and the end that a turn tells its events to.
    pub fn new() -> (Self, turnjail_runtime::EventSender) {
        let (sender, receiver) = event_channel();
        (Self { receiver }, sender)
    }

    /// What happened; to be asked when the turn is over.
    pub fn events(mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.receiver.try_recv()).collect()
    }
}
