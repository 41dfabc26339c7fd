//! MCP servers that lie, stall and break, and what the operator may declare about them.

mod declared;
#[cfg(feature = "mcp-client")]
mod http;
mod plain;
#[cfg(feature = "mcp-client")]
mod stdio;

use std::time::Duration;

use serde_json::{Map, Value, json};
use turnjail_broker::{BrokerSettings, CallOutcome, EventKind, McpServer, McpTool, McpTransport};

use crate::support::bench::{Turn, settings};
use crate::support::{Reply, Upstream};

pub fn declared(name: &str) -> McpTool {
    McpTool::named(name).declare("d", Map::new())
}

pub async fn with(server: McpServer) -> BrokerSettings {
    let mut settings = settings(&Upstream::always(Reply::Hang).await);
    settings.model_timeout = Duration::from_secs(2);
    settings.mcp.push(server);
    settings
}

pub fn call_of(tool: &str) -> Value {
    json!({ "method": "tools/call", "params": { "name": tool, "arguments": {} } })
}

pub async fn ask(turn: &mut Turn) -> (u16, Value, CallOutcome) {
    let answer = turn.call("/mcp/s", &call_of("t")).await;
    let ended = std::iter::from_fn(|| turn.events.try_recv()).last().unwrap();
    let EventKind::CallEnded { outcome, .. } = ended.kind else { panic!("{ended:?}") };
    (answer.status, answer.json(), outcome)
}

pub fn json_server(upstream: &Upstream, tools: Vec<McpTool>) -> McpServer {
    McpServer::new("s", McpTransport::Json { url: upstream.url("/rpc") }, tools)
}
