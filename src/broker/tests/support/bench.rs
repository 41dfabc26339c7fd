//! A broker and a turn of it, in a directory of their own.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use turnjail_broker::{
    Broker, BrokerSettings, Credential, EventReceiver, HostTool, Principal, Tool, ToolContext,
    ToolError, TurnBroker, TurnContext, event_channel,
};
use turnjail_protocol::ToolSpec;

use super::client::{Answered, call};
use super::upstream::Upstream;

/// Settings that lead to an upstream, without a credential and without retries.
pub fn settings(upstream: &Upstream) -> BrokerSettings {
    let mut settings =
        BrokerSettings::new("m", upstream.url("/v1/chat/completions"), Credential::None);
    settings.allow_http = true;
    settings.retries = 0;
    settings
}

/// A request that the model endpoint takes.
pub fn hello() -> Value {
    json!({ "messages": [{ "role": "user", "content": "Hello" }] })
}

/// An open turn.
pub struct Turn {
    pub socket: PathBuf,
    pub events: EventReceiver,
    pub cancel: CancellationToken,
    pub broker: TurnBroker,
    directory: TempDir,
}

impl Turn {
    pub async fn open(broker: &Broker) -> Self {
        Self::open_in(broker, "fake:one").await
    }

    pub async fn open_in(broker: &Broker, channel: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("broker.sock");
        let (sender, events) = event_channel();
        let cancel = CancellationToken::new();
        let context = TurnContext {
            channel: channel.into(),
            space: Some("fake:space".into()),
            speaker: Principal { id: "7".into(), name: "Ada".into(), principal_id: "owner".into() },
            tool_result_bytes: 4096,
            cancel: cancel.clone(),
            events: sender,
        };
        let broker = broker.open(context, &socket).await.unwrap();
        Self { socket, events, cancel, broker, directory }
    }

    /// A broker from settings and a turn of it.
    pub async fn with(settings: BrokerSettings) -> Self {
        Self::open(&Broker::start(settings).await.unwrap()).await
    }

    pub async fn call(&self, path: &str, body: &Value) -> Answered {
        call(&self.socket, path, body).await
    }

    /// Whether anything is left in the turn's directory.
    pub fn is_clean(&self) -> bool {
        self.directory.path().read_dir().unwrap().next().is_none()
    }
}

type Run = dyn Fn(
        Map<String, Value>,
        ToolContext,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<String, ToolError>> + Send>>
    + Send
    + Sync;

/// A tool that does what a test says.
pub struct FnTool {
    spec: ToolSpec,
    validate: bool,
    run: Box<Run>,
}

/// A tool that does what a test says.
pub fn tool<F>(
    name: &str,
    run: impl Fn(Map<String, Value>, ToolContext) -> F + Send + Sync + 'static,
) -> Tool
where
    F: Future<Output = Result<String, ToolError>> + Send + 'static,
{
    let run: Box<Run> = Box::new(move |input, context| Box::pin(run(input, context)));
    Tool::Host(Arc::new(FnTool {
        spec: ToolSpec::new(name, "d", Map::new()),
        validate: false,
        run,
    }))
}

/// The same with a schema that inputs are checked against.
pub fn strict_tool(name: &str, parameters: Value) -> Tool {
    let Value::Object(parameters) = parameters else { panic!("an object") };
    let run: Box<Run> =
        Box::new(|input, _| Box::pin(async move { Ok(Value::Object(input).to_string()) }));
    Tool::Host(Arc::new(FnTool { spec: ToolSpec::new(name, "d", parameters), validate: true, run }))
}

#[async_trait]
impl HostTool for FnTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn validate(&self) -> bool {
        self.validate
    }

    async fn call(
        &self,
        input: Map<String, Value>,
        context: &ToolContext,
    ) -> Result<String, ToolError> {
        (self.run)(input, context.clone()).await
    }
}
