//! Host tools: what a guest's turn may do on the host, each declared by the operator.

mod callback;
mod checked;
mod command;
mod host;

pub use callback::{CallbackTarget, CallbackTool};
pub(crate) use checked::{CheckedTool, check_spec};
pub use command::CommandTool;
pub use host::{HostTool, ToolContext, ToolError};

use std::fmt;
use std::sync::Arc;

use turnjail_protocol::ToolSpec;

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

impl From<Arc<dyn HostTool>> for Tool {
    fn from(tool: Arc<dyn HostTool>) -> Self {
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
