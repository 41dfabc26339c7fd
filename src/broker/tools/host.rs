//! A tool written in Rust, and what every tool knows and may fail with.

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use turnjail_protocol::ToolSpec;

use crate::Principal;

/// What a host tool knows about the turn it serves: told by the host, never by the guest.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ToolContext {
    /// The channel, for example `discord:1234`.
    pub channel: String,
    /// The space the channel belongs to, when it has one.
    pub space: Option<String>,
    /// Whose turn it is.
    pub speaker: Principal,
    /// Bytes of a result that the worker keeps, measured as JSON; more is cut there.
    pub tool_result_bytes: usize,
    /// Cancelled when the call ends for any reason: the turn is over, the worker hung up, time is up. The
    /// call's future is dropped then as well; this is for work it has started elsewhere.
    pub cancel: CancellationToken,
}

impl ToolContext {
    /// The context as commands and callbacks get it.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "channel": self.channel,
            "space": self.space,
            "speaker": {
                "id": self.speaker.id,
                "name": self.speaker.name,
                "principalId": self.speaker.principal_id,
            },
            "toolResultBytes": self.tool_result_bytes,
        })
    }
}

/// Why a tool gave no result. The guest never sees the text; the host's log does.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToolError {
    /// The tool failed.
    #[error("{0}")]
    Failed(String),
    /// The input is not one the tool takes.
    #[error("input refused: {0}")]
    Input(String),
}

impl ToolError {
    /// A failure with one sentence for the host's log.
    pub fn failed(problem: impl Into<String>) -> Self {
        Self::Failed(problem.into())
    }
}

/// A tool written in Rust.
#[async_trait]
pub trait HostTool: Send + Sync {
    /// What the model is told about the tool. It must always say the same.
    fn spec(&self) -> &ToolSpec;

    /// Whether the broker checks an input against the specification's schema before calling.
    fn validate(&self) -> bool {
        false
    }

    /// Runs the tool. Its result goes to the guest: at most 1 MiB as JSON. The future is dropped when the
    /// turn ends, the worker hangs up, or the time for the call runs out.
    async fn call(
        &self,
        input: Map<String, Value>,
        context: &ToolContext,
    ) -> Result<String, ToolError>;
}
