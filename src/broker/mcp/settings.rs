//! What the operator declares about an MCP server.

#[cfg(feature = "mcp-client")]
use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};

use crate::credential::Credential;
use crate::settings::CredentialHeader;

/// An MCP server and the tools of it that guests may call.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct McpServer {
    /// The name in the route `/mcp/<name>`: `[a-z][a-z0-9_]{0,47}`.
    pub name: String,
    /// How to talk to it.
    pub transport: McpTransport,
    /// The tools guests may call; at least one.
    pub tools: Vec<McpTool>,
    /// Who shares a session or a child process.
    pub scope: McpScope,
    /// The credential an HTTP server wants, if any. A child process gets what it needs by its environment.
    pub credential: Credential,
    /// The header that carries the credential.
    pub credential_header: CredentialHeader,
}

impl McpServer {
    /// A server with every default: a session per channel, no credential.
    pub fn new(name: impl Into<String>, transport: McpTransport, tools: Vec<McpTool>) -> Self {
        Self {
            name: name.into(),
            transport,
            tools,
            scope: McpScope::default(),
            credential: Credential::None,
            credential_header: CredentialHeader::default(),
        }
    }
}

/// How to talk to an MCP server.
#[derive(Clone)]
#[non_exhaustive]
pub enum McpTransport {
    /// A stateless endpoint that answers each POST with plain JSON; no session, no handshake.
    Json {
        /// A URL under the same rules as the model's.
        url: String,
    },
    /// Streamable HTTP with sessions and event streams.
    #[cfg(feature = "mcp-client")]
    StreamableHttp {
        /// A URL under the same rules as the model's.
        url: String,
    },
    /// A program on the host that speaks over its standard input and output. It gets up to two seconds to
    /// end once its input is closed, then its process group is killed. A host that is killed itself (`SIGKILL`) closes
    /// the input and can do no more: a server that does not end then, as the protocol asks, goes on.
    #[cfg(feature = "mcp-client")]
    Stdio {
        /// The program and its arguments, without a shell.
        argv: Vec<String>,
        /// The environment beside `PATH`; nothing else is inherited. Values are kept out of logs and `Debug`.
        env: BTreeMap<String, String>,
    },
}

impl fmt::Debug for McpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json { url } => f.debug_struct("Json").field("url", url).finish(),
            #[cfg(feature = "mcp-client")]
            Self::StreamableHttp { url } => {
                f.debug_struct("StreamableHttp").field("url", url).finish()
            }
            #[cfg(feature = "mcp-client")]
            Self::Stdio { argv, env } => f
                .debug_struct("Stdio")
                .field("program", &argv.first())
                .field("env", &env.keys().collect::<Vec<_>>())
                .finish(),
        }
    }
}

/// Who shares a session or a child process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum McpScope {
    /// One for each channel, so that one guest's state never meets another's. Idle ones end after 5 minutes;
    /// at most 64 live.
    #[default]
    Channel,
    /// One for the whole host.
    Host,
}

/// A tool of an MCP server.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct McpTool {
    /// The name guests use: `[a-z][a-z0-9_]{0,47}`.
    pub name: String,
    /// The server's own name for it.
    pub remote: String,
    /// Description and parameters as the operator declares them; `None` has the host fetch and pin the
    /// server's at start-up.
    pub declared: Option<(String, Map<String, Value>)>,
    /// Check arguments against the schema first.
    pub validate: bool,
}

impl McpTool {
    /// A tool whose description and schema the host takes from the server at start-up. Guests know it by
    /// the server's name in lower case, with hyphens and dots as underscores.
    pub fn named(remote: impl Into<String>) -> Self {
        let remote = remote.into();
        let name = remote.to_ascii_lowercase().replace(['-', '.'], "_");
        Self { name, remote, declared: None, validate: false }
    }

    /// Like [`named`](Self::named), with the name guests use chosen by the operator.
    pub fn aliased(name: impl Into<String>, remote: impl Into<String>) -> Self {
        Self { name: name.into(), remote: remote.into(), declared: None, validate: false }
    }

    /// Sets description and parameters, so that nothing is fetched for this tool.
    #[must_use]
    pub fn declare(
        mut self,
        description: impl Into<String>,
        parameters: Map<String, Value>,
    ) -> Self {
        self.declared = Some((description.into(), parameters));
        self
    }
}
