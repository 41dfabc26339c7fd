//! Host tools: what a guest's turn may do on the host, each declared by the operator.

mod callback;
mod command;

pub use callback::{CallbackTarget, CallbackTool};
pub use command::CommandTool;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Map, Value};
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
    /// Cancelled when the turn ends or the worker hangs up; the call's future is dropped then as well.
    pub cancel: CancellationToken,
}

/// Why a tool gave no result. The guest never sees the text; the host's log does.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToolError {
    /// The tool failed.
    #[error("{0}")]
    Failed(String),
    /// The input does not fit the tool's schema.
    #[error("input refused: {0}")]
    Input(String),
    /// The time for the call ran out.
    #[error("no result within the time for the call")]
    Timeout,
    /// The result is over its size.
    #[error("the result is over {limit} bytes")]
    TooLarge {
        /// The most bytes allowed.
        limit: usize,
    },
    /// The tool could not be reached.
    #[error("{0}")]
    Unreachable(String),
    /// No credential could be had.
    #[error("{0}")]
    Credential(String),
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
    /// What the model is told about the tool.
    fn spec(&self) -> &ToolSpec;

    /// Whether the broker checks an input against the specification's schema before calling.
    fn validate(&self) -> bool {
        false
    }

    /// Runs the tool. Its result goes to the guest. The future is dropped when the turn ends.
    async fn call(
        &self,
        input: Map<String, Value>,
        context: &ToolContext,
    ) -> Result<String, ToolError>;
}

/// A host tool of any kind.
#[derive(Clone)]
#[non_exhaustive]
pub enum Tool {
    /// Rust code in the host process.
    Host(Arc<dyn HostTool>),
    /// A program started for each call.
    Command(CommandTool),
    /// An HTTP endpoint of the operator's.
    Callback(CallbackTool),
}

impl Tool {
    /// What the model is told about the tool.
    pub fn spec(&self) -> &ToolSpec {
        match self {
            Self::Host(tool) => tool.spec(),
            Self::Command(tool) => &tool.spec,
            Self::Callback(tool) => &tool.spec,
        }
    }

    /// Whether the broker checks an input against the specification's schema before calling.
    pub fn validate(&self) -> bool {
        match self {
            Self::Host(tool) => tool.validate(),
            Self::Command(tool) => tool.validate,
            Self::Callback(tool) => tool.validate,
        }
    }
}

impl<T: HostTool + 'static> From<Arc<T>> for Tool {
    fn from(tool: Arc<T>) -> Self {
        Self::Host(tool)
    }
}

impl From<CommandTool> for Tool {
    fn from(tool: CommandTool) -> Self {
        Self::Command(tool)
    }
}

impl From<CallbackTool> for Tool {
    fn from(tool: CallbackTool) -> Self {
        Self::Callback(tool)
    }
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(tool) => f.debug_tuple("Host").field(&tool.spec().name).finish(),
            Self::Command(tool) => tool.fmt(f),
            Self::Callback(tool) => tool.fmt(f),
        }
    }
}
