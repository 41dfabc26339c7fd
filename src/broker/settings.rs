//! What the operator decides about the broker, checked whole by [`Broker::start`](crate::Broker::start).

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::credential::Credential;
use crate::mcp::McpServer;
use crate::tools::Tool;

/// Everything a broker may do, fixed before the first turn. Make one with [`BrokerSettings::new`] and set
/// the fields that differ from their defaults.
#[derive(Clone)]
#[non_exhaustive]
pub struct BrokerSettings {
    /// The model every call uses, whatever the guest asks for.
    pub model: String,
    /// Where model calls go: an absolute URL without credentials or fragment; `https` unless
    /// [`allow_http`](Self::allow_http).
    pub model_url: String,
    /// Where the model's credential comes from.
    pub credential: Credential,
    /// The header that carries the model's credential.
    pub credential_header: CredentialHeader,
    /// The name of the field that limits a model's output.
    pub output_limit_field: OutputLimitField,
    /// Output tokens one model call may produce: 1 to 32,768 (4,096).
    pub max_output_tokens: u32,
    /// More fields of every model request, such as a temperature. Naming `messages`, `tools`, `model`,
    /// `stream`, `n`, `max_tokens` or `max_completion_tokens` is refused.
    pub extra_fields: Map<String, Value>,
    /// More headers of every model request; their values are kept out of logs and `Debug`.
    pub extra_headers: Vec<(String, String)>,
    /// How long one call to an upstream may take, retries included: 1 to 600 s (60 s).
    pub model_timeout: Duration,
    /// How often a failed model call is tried again: 0 to 10 (2).
    pub retries: u32,
    /// Calls of every kind one turn may make: 1 to 1,000 (48).
    pub max_calls: u32,
    /// Host tools, in the order in which the model sees them.
    pub tools: Vec<Tool>,
    /// MCP servers; the worker names them by their place here.
    pub mcp: Vec<McpServer>,
    /// Take `http` URLs too: for tests and for a model server on the same machine.
    pub allow_http: bool,
    /// More certificate authorities, as PEM, beside the platform's.
    pub ca_file: Option<PathBuf>,
    /// A forward proxy, `http://host:port`, for every URL that is not loopback. Proxies from environment
    /// variables are never used.
    pub proxy: Option<String>,
}

impl BrokerSettings {
    /// Settings with every default: no tools, no MCP servers.
    pub fn new(
        model: impl Into<String>,
        model_url: impl Into<String>,
        credential: Credential,
    ) -> Self {
        Self {
            model: model.into(),
            model_url: model_url.into(),
            credential,
            credential_header: CredentialHeader::default(),
            output_limit_field: OutputLimitField::default(),
            max_output_tokens: 4096,
            extra_fields: Map::new(),
            extra_headers: Vec::new(),
            model_timeout: Duration::from_secs(60),
            retries: 2,
            max_calls: 48,
            tools: Vec::new(),
            mcp: Vec::new(),
            allow_http: false,
            ca_file: None,
            proxy: None,
        }
    }
}

impl fmt::Debug for BrokerSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header_names: Vec<&str> = self.extra_headers.iter().map(|(name, _)| &**name).collect();
        f.debug_struct("BrokerSettings")
            .field("model", &self.model)
            .field("model_url", &self.model_url)
            .field("credential", &self.credential)
            .field("credential_header", &self.credential_header)
            .field("output_limit_field", &self.output_limit_field)
            .field("max_output_tokens", &self.max_output_tokens)
            .field("extra_fields", &self.extra_fields)
            .field("extra_headers", &header_names)
            .field("model_timeout", &self.model_timeout)
            .field("retries", &self.retries)
            .field("max_calls", &self.max_calls)
            .field("tools", &self.tools)
            .field("mcp", &self.mcp)
            .field("allow_http", &self.allow_http)
            .field("ca_file", &self.ca_file)
            .field("proxy", &self.proxy)
            .finish()
    }
}

/// How an endpoint wants its credential.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum CredentialHeader {
    /// `authorization: Bearer <credential>`.
    #[default]
    Bearer,
    /// The credential alone in a header of this name, for example `api-key`.
    Named(String),
}

/// The field of a model request that limits its output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OutputLimitField {
    /// `max_tokens`, which most servers take.
    #[default]
    MaxTokens,
    /// `max_completion_tokens`, which some endpoints insist on.
    MaxCompletionTokens,
}

impl OutputLimitField {
    /// The field's name in the request.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::MaxTokens => "max_tokens",
            Self::MaxCompletionTokens => "max_completion_tokens",
        }
    }
}

impl FromStr for OutputLimitField {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::MaxTokens, Self::MaxCompletionTokens]
            .into_iter()
            .find(|field| field.as_str() == text)
            .ok_or_else(|| format!("`{text}` is neither max_tokens nor max_completion_tokens"))
    }
}
