//! A host tool that is an HTTP endpoint: a POST of input and context, answered with a text.

use std::path::PathBuf;

use turnjail_protocol::ToolSpec;

use crate::credential::Credential;

/// Where a callback goes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallbackTarget {
    /// A URL under the same rules as the model's.
    Url(String),
    /// An HTTP server on a Unix socket of the host.
    Unix {
        /// The socket.
        socket: PathBuf,
        /// The path of the request, starting with `/`.
        path: String,
    },
}

/// An HTTP endpoint that gets `{"input": ..., "context": ...}` and answers `{"text": ...}`.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CallbackTool {
    /// What the model is told about the tool.
    pub spec: ToolSpec,
    /// Where it is.
    pub target: CallbackTarget,
    /// The bearer it wants, if any.
    pub credential: Credential,
    /// Check the input against the specification's schema first.
    pub validate: bool,
}

impl CallbackTool {
    /// A callback with every default: no credential.
    pub fn new(spec: ToolSpec, target: CallbackTarget) -> Self {
        Self { spec, target, credential: Credential::None, validate: false }
    }
}
