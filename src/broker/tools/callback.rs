//! A host tool that is an HTTP endpoint: a POST of input and context, answered with a text.

use std::path::PathBuf;

use serde_json::{Map, Value, json};
use turnjail_protocol::ToolSpec;

use super::ToolContext;
use crate::call::{Call, Failure};
use crate::credential::{Credential, Slot};
use crate::error::SetupError;
use crate::events::CallOutcome;
use crate::settings::{BrokerSettings, CredentialHeader};
use crate::upstream::Endpoint;

/// Where a callback goes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallbackTarget {
    /// A URL under the same rules as the model's.
    Url(String),
    /// An HTTP server on a Unix socket of the host.
    Unix {
        /// The socket's absolute path.
        socket: PathBuf,
        /// The path of the request, starting with `/`.
        path: String,
    },
}

/// An HTTP endpoint that gets `{"input": ..., "context": ...}` and answers `{"text": ...}`. It has
/// `model_timeout` to do so.
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

/// A callback whose declaration has been checked.
pub(super) struct Callback {
    pub endpoint: Endpoint,
    pub credential: Option<Slot>,
}

impl Callback {
    pub fn check(
        setting: &str,
        tool: &CallbackTool,
        settings: &BrokerSettings,
    ) -> Result<Self, SetupError> {
        let endpoint = match &tool.target {
            CallbackTarget::Url(url) => Endpoint::url(&format!("{setting}.url"), url, settings)?,
            CallbackTarget::Unix { socket, path } => {
                Endpoint::unix(&format!("{setting}.socket"), socket, path)?
            }
        };
        let setting = format!("{setting}.credential");
        let credential = Slot::check(&setting, &tool.credential, &CredentialHeader::Bearer)?;
        Ok(Self { endpoint, credential })
    }

    pub async fn run(
        &self,
        input: Map<String, Value>,
        context: &ToolContext,
        call: &Call<'_>,
    ) -> Result<String, Failure> {
        let body = json!({ "input": input, "context": context.to_json() });
        let answer = call.post_once(&self.endpoint, self.credential.as_ref(), &body).await?;
        match answer {
            Value::Object(mut answer) => match answer.remove("text") {
                Some(Value::String(text)) => Ok(text),
                _ => Err(no_text()),
            },
            _ => Err(no_text()),
        }
    }
}

fn no_text() -> Failure {
    Failure::failed(CallOutcome::Upstream, "the callback's answer has no text")
}
