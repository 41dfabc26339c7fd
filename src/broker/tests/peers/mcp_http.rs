//! MCP servers over Streamable HTTP, with sessions and event streams.

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use turnjail_broker::{Broker, BrokerSettings, McpScope, McpServer, McpTool, McpTransport};

use crate::facts::Fact;
use crate::support::bench::{Turn, settings};
use crate::support::{Reply, Upstream};
use crate::{Case, Peer, run};

pub fn trials() -> Vec<Case> {
    vec![
        (Fact::McpNode, "http: tools of the reference server are pinned and called", || {
            run(reference_server());
        }),
        (Fact::McpNode, "http: a server that dies fails calls and is found again", || {
            run(restarted());
        }),
        (Fact::McpNode, "http: a server that is down stops start-up", || run(down())),
    ]
}

fn command(port: u16) -> Command {
    let mut command = Command::new(Fact::McpNode.program());
    command.arg("streamableHttp").env("PORT", port.to_string());
    command
}

async fn with_server(port: u16, scope: McpScope) -> BrokerSettings {
    let upstream = Upstream::always(Reply::Hang).await;
    let mut settings = settings(&upstream);
    let transport = McpTransport::StreamableHttp { url: format!("http://127.0.0.1:{port}/mcp") };
    let tools = vec![McpTool::named("get-sum"), McpTool::named("trigger-long-running-operation")];
    let mut server = McpServer::new("remote", transport, tools);
    server.scope = scope;
    settings.mcp.push(server);
    settings
}

fn sum(a: u32, b: u32) -> Value {
    json!({ "method": "tools/call", "params": { "name": "get_sum", "arguments": { "a": a, "b": b } } })
}

async fn reference_server() {
    let peer = Peer::start(command).await;
    for scope in [McpScope::Channel, McpScope::Host] {
        let broker = Broker::start(with_server(peer.port, scope).await).await.unwrap();
        assert_eq!(broker.mcp_specs()[0].tools[0].name, "get_sum");
        let turn = Turn::open(&broker).await;
        for b in [40, 41] {
            let answer = turn.call("/mcp/remote", &sum(2, b)).await;
            assert!(answer.text().contains(&(2 + b).to_string()), "{}", answer.text());
        }
        // Progress comes before this answer, in the same stream.
        let long = json!({ "duration": 1, "steps": 4 });
        let params = json!({ "name": "trigger_long_running_operation", "arguments": long });
        let body = json!({ "method": "tools/call", "params": params });
        let answer = turn.call("/mcp/remote", &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(answer.json()["result"]["content"].is_array());
        turn.broker.close().await;
    }
}

async fn restarted() {
    let peer = Peer::start(command).await;
    let port = peer.port;
    let mut settings = with_server(port, McpScope::Channel).await;
    settings.model_timeout = Duration::from_secs(10);
    let broker = Broker::start(settings).await.unwrap();
    let turn = Turn::open(&broker).await;
    assert_eq!(turn.call("/mcp/remote", &sum(1, 1)).await.status, 200);
    drop(peer);
    assert_eq!(turn.call("/mcp/remote", &sum(1, 2)).await.status, 502);
    let _peer = Peer::start_on(port, command).await;
    let mut last = 0;
    for _ in 0..30 {
        last = turn.call("/mcp/remote", &sum(1, 3)).await.status;
        if last == 200 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert_eq!(last, 200);
}

async fn down() {
    let peer = Peer::start(command).await;
    let port = peer.port;
    drop(peer);
    let error = Broker::start(with_server(port, McpScope::Channel).await).await.unwrap_err();
    assert!(error.to_string().contains("MCP server remote"), "{error}");
    assert!(error.remedy().is_some());
}
