//! A declared MCP server and the tools of it that may be called.

use std::collections::HashSet;
#[cfg(feature = "mcp-client")]
use std::sync::Arc;

use serde_json::{Map, Value, json};
use turnjail_protocol::{McpSpec, ToolSpec};

#[cfg(feature = "mcp-client")]
use super::client::{Dialer, Pool};
use super::json::JsonLink;
use super::pin::{self, Offer};
use super::settings::{McpServer, McpTool, McpTransport};
use crate::call::{Call, Failure};
#[cfg(feature = "mcp-client")]
use crate::credential::Credential;
use crate::credential::Slot;
use crate::error::SetupError;
use crate::events::CallOutcome;
use crate::policy::check_name;
#[cfg(feature = "mcp-client")]
use crate::process;
use crate::settings::BrokerSettings;
use crate::upstream::{Endpoint, Upstream};
use crate::validate::Validator;

/// A server whose declaration has been checked.
pub(crate) struct Server {
    pub name: String,
    pub credential: Option<Slot>,
    declared: Vec<McpTool>,
    /// Filled by [`pin`](Self::pin).
    tools: Vec<PinnedTool>,
    link: Link,
}

/// How the server is talked to.
enum Link {
    Json(JsonLink),
    #[cfg(feature = "mcp-client")]
    Client(Arc<Pool>),
}

/// A tool with what the model is told about it.
pub(crate) struct PinnedTool {
    pub spec: ToolSpec,
    pub remote: String,
    pub validator: Option<Validator>,
}

/// A call that a guest may make.
pub(crate) struct Wanted<'a> {
    pub tool: &'a PinnedTool,
    pub arguments: Map<String, Value>,
}

impl Server {
    /// Checks a declaration as far as that goes without asking the server.
    pub fn check(server: &McpServer, settings: &BrokerSettings) -> Result<Self, SetupError> {
        let setting = format!("mcp.{}", server.name);
        if server.tools.is_empty() {
            return Err(SetupError::setting(
                format!("{setting}.tools"),
                "is empty, but must name a tool",
            ));
        }
        let mut names = HashSet::new();
        for tool in &server.tools {
            check_name(&format!("{setting}.tools"), &tool.name, &mut names)?;
        }
        let link = Link::check(&setting, server, settings)?;
        let credential = format!("{setting}.credential");
        Ok(Self {
            name: server.name.clone(),
            credential: Slot::check(&credential, &server.credential, &server.credential_header)?,
            declared: server.tools.clone(),
            tools: Vec::new(),
            link,
        })
    }

    /// Whether it is reached over HTTPS.
    pub fn needs_tls(&self) -> bool {
        match &self.link {
            Link::Json(link) => link.endpoint.needs_tls(),
            #[cfg(feature = "mcp-client")]
            Link::Client(pool) => match pool.dialer() {
                Dialer::Http { endpoint, .. } => endpoint.needs_tls(),
                Dialer::Stdio { .. } => false,
            },
        }
    }

    /// Fixes what the model is told about each tool: as declared, or as the server says now. What a server
    /// says later changes nothing.
    pub async fn pin(&mut self, upstream: &Upstream) -> Result<(), SetupError> {
        let offers =
            self.ask(upstream).await.map_err(|problem| SetupError::mcp(&self.name, problem))?;
        self.tools = pin::pin(&self.name, &self.declared, &offers)?;
        Ok(())
    }

    /// Asks the server for its tools if any is declared by name alone.
    async fn ask(&self, upstream: &Upstream) -> Result<Vec<Offer>, String> {
        let wanted = self.declared.iter().any(|tool| tool.declared.is_none());
        let credential = self.credential.as_ref();
        match &self.link {
            Link::Json(link) if wanted => link.list_tools(credential, upstream).await,
            // A stateless endpoint has no handshake by which it could be found missing.
            Link::Json(_) => Ok(Vec::new()),
            #[cfg(feature = "mcp-client")]
            Link::Client(pool) => pool.greet(credential, upstream, wanted).await,
        }
    }

    pub fn spec(&self) -> McpSpec {
        McpSpec {
            server: self.name.clone(),
            tools: self.tools.iter().map(|tool| tool.spec.clone()).collect(),
        }
    }

    /// Takes a request for one call of a declared tool; everything else is `None`.
    pub fn select(&self, mut body: Map<String, Value>) -> Option<Wanted<'_>> {
        if body.get("method")?.as_str()? != "tools/call" {
            return None;
        }
        let params = body.get_mut("params")?.as_object_mut()?;
        let name = params.get("name")?.as_str()?;
        let tool = self.tools.iter().find(|tool| tool.spec.name == name)?;
        let Value::Object(arguments) = params.remove("arguments")? else { return None };
        Some(Wanted { tool, arguments })
    }

    /// Makes a call and returns `{"jsonrpc","id","result"|"error"}`.
    pub async fn call(&self, wanted: Wanted<'_>, call: &Call<'_>) -> Result<Value, Failure> {
        let Wanted { tool, arguments } = wanted;
        if tool.validator.as_ref().is_some_and(|validator| !validator.accepts(&arguments)) {
            return Err(Failure::failed(
                CallOutcome::Refused,
                "the arguments do not fit the tool's schema",
            ));
        }
        let credential = self.credential.as_ref();
        match &self.link {
            Link::Json(link) => link.call_tool(&tool.remote, arguments, credential, call).await,
            #[cfg(feature = "mcp-client")]
            Link::Client(pool) => pool.call(&tool.remote, arguments, credential, call).await,
        }
    }
}

impl Link {
    fn check(
        setting: &str,
        server: &McpServer,
        settings: &BrokerSettings,
    ) -> Result<Self, SetupError> {
        let endpoint = |url| Endpoint::url(&format!("{setting}.url"), url, settings);
        match &server.transport {
            McpTransport::Json { url } => Ok(Self::Json(JsonLink { endpoint: endpoint(url)? })),
            #[cfg(feature = "mcp-client")]
            McpTransport::StreamableHttp { url } => {
                let dialer = Dialer::Http { endpoint: endpoint(url)?, retries: settings.retries };
                Ok(Self::Client(Arc::new(Pool::new(dialer, server.scope))))
            }
            #[cfg(feature = "mcp-client")]
            McpTransport::Stdio { argv, env } => {
                process::check_program(setting, argv, env)?;
                if !matches!(server.credential, Credential::None) {
                    return Err(SetupError::setting(
                        format!("{setting}.credential"),
                        "is for servers over HTTP; give a program what it needs by its env",
                    ));
                }
                let dialer = Dialer::Stdio { argv: argv.clone(), env: env.clone() };
                Ok(Self::Client(Arc::new(Pool::new(dialer, server.scope))))
            }
        }
    }
}

/// The answer's shape, the same for every kind of server.
pub(super) fn answer(kind: &str, value: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, kind: value })
}
