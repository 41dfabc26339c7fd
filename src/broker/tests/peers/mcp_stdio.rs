//! MCP servers that are child processes.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use turnjail_broker::{
    Broker, CallOutcome, EventKind, McpScope, McpServer, McpTool, McpTransport, SetupError,
};

use crate::facts::Fact;
use crate::support::bench::{Turn, settings};
use crate::support::{Reply, Upstream};
use crate::{Case, run};

pub fn trials() -> Vec<Case> {
    vec![
        (Fact::McpNode, "stdio: tools of the reference server are pinned and called", || {
            run(reference_server());
        }),
        (Fact::McpNode, "stdio: a missing tool stops start-up and says what there is", || {
            run(missing_tool());
        }),
        (
            Fact::McpNode,
            "stdio: each channel has its own child, and none outlives the broker",
            || {
                run(own_children());
            },
        ),
        (Fact::McpNode, "stdio: one child for the host when so declared", || run(one_child())),
        (Fact::McpNode, "stdio: a killed child fails a call and is started again", || {
            run(restarted());
        }),
        (Fact::McpNode, "stdio: a call ends with its turn and its child goes on", || {
            run(cancelled());
        }),
        (Fact::McpPython, "stdio: a server written in Python", || run(python_server())),
    ]
}

fn everything(tools: Vec<McpTool>) -> McpServer {
    let program = Fact::McpNode.program().to_str().unwrap().to_owned();
    let env = BTreeMap::from([("PEER_MARK".to_owned(), "given".to_owned())]);
    let transport = McpTransport::Stdio { argv: vec![program, "stdio".into()], env };
    McpServer::new("everything", transport, tools)
}

async fn start(server: McpServer) -> Result<Broker, SetupError> {
    let upstream = Upstream::always(Reply::Hang).await;
    let mut settings = settings(&upstream);
    settings.mcp.push(server);
    Broker::start(settings).await
}

fn request(tool: &str, arguments: Value) -> Value {
    json!({ "method": "tools/call", "params": { "name": tool, "arguments": arguments } })
}

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

/// The processes of a server, by a word in their command line.
fn children(word: &str) -> Vec<i32> {
    let ours = std::process::id().to_string();
    let is_child = |path: &Path| {
        let line = std::fs::read_to_string(path.join("cmdline")).unwrap_or_default();
        let stat = std::fs::read_to_string(path.join("stat")).unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        line.contains(word) && fields.get(1) == Some(&ours.as_str()) && fields.first() != Some(&"Z")
    };
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let numbered = entries.filter_map(|entry| {
        let id = entry.file_name().to_str()?.parse().ok()?;
        is_child(&entry.path()).then_some(id)
    });
    numbered.collect()
}

async fn eventually(what: impl Fn() -> bool) {
    for _ in 0..500 {
        if what() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it did not happen");
}

async fn reference_server() {
    let tools = vec![
        McpTool::named("get-sum"),
        McpTool::aliased("say", "echo"),
        McpTool::named("get-env"),
        McpTool::named("get-structured-content"),
    ];
    let broker = start(everything(tools)).await.unwrap();
    let specs = broker.mcp_specs();
    let names: Vec<&str> = specs[0].tools.iter().map(|tool| &*tool.name).collect();
    assert_eq!(names, ["get_sum", "say", "get_env", "get_structured_content"]);
    let sum = &specs[0].tools[0];
    assert!(!sum.description.is_empty() && sum.parameters["properties"]["a"]["type"] == "number");
    // The server's own schemas name their dialect; what the model is told does not.
    assert!(!serde_json::to_string(&sum.parameters).unwrap().contains("$schema"));

    let turn = Turn::open(&broker).await;
    let answer =
        turn.call("/mcp/everything", &request("get_sum", json!({ "a": 2, "b": 40 }))).await.json();
    assert_eq!((&answer["jsonrpc"], &answer["id"]), (&json!("2.0"), &json!(1)));
    assert!(text(&answer).contains("42"), "{answer}");
    let said =
        turn.call("/mcp/everything", &request("say", json!({ "message": "\u{1f600} ü" }))).await;
    assert!(text(&said.json()).contains("\u{1f600} ü"));
    // The server's own name is not the declared one.
    assert_eq!(
        turn.call("/mcp/everything", &request("echo", json!({ "message": "x" }))).await.status,
        403
    );
    assert_eq!(turn.call("/mcp/everything", &request("get-sum", json!({}))).await.status, 403);
    // Bad arguments come back as the server's complaint, which is an answer.
    let bad = turn.call("/mcp/everything", &request("get_sum", json!({ "a": "x" }))).await;
    assert_eq!(bad.status, 200);
    assert!(
        bad.json()["error"].is_object() || bad.json()["result"]["isError"] == true,
        "{}",
        bad.text()
    );
    let structured = turn
        .call(
            "/mcp/everything",
            &request("get_structured_content", json!({ "location": "New York" })),
        )
        .await
        .json();
    assert!(structured["result"]["structuredContent"].is_object(), "{structured}");
    // Nothing of the host's environment but PATH is there.
    let env = turn.call("/mcp/everything", &request("get_env", json!({}))).await.json();
    let env: Map<String, Value> = serde_json::from_str(text(&env)).unwrap();
    let mut names: Vec<&str> = env.keys().map(|name| &**name).collect();
    names.retain(|name| !["_", "PWD", "SHLVL", "OLDPWD"].contains(name));
    names.sort_unstable();
    assert_eq!(names, ["PATH", "PEER_MARK"]);
    turn.broker.close().await;
    drop(broker);
}

async fn missing_tool() {
    let error = start(everything(vec![McpTool::named("no-such-tool")])).await.unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("everything") && text.contains("no-such-tool") && text.contains("get-sum"),
        "{text}"
    );
    assert_eq!(error.code(), "mcp-server");
    let twice = vec![McpTool::named("get-sum"), McpTool::named("GET.SUM")];
    let error = start(everything(twice)).await.unwrap_err();
    assert!(error.to_string().contains("get_sum"), "{error}");
    let mut server = everything(vec![McpTool::named("echo")]);
    server.transport =
        McpTransport::Stdio { argv: vec!["/no/such/program".into()], env: BTreeMap::new() };
    let error = start(server).await.unwrap_err();
    assert!(error.to_string().contains("/no/such/program"), "{error}");
    let mut server = everything(vec![McpTool::named("echo")]);
    server.transport = McpTransport::Stdio { argv: vec!["true".into()], env: BTreeMap::new() };
    assert!(start(server).await.is_err());
}

async fn own_children() {
    // A word that only this test's children have.
    let mut server = everything(vec![McpTool::named("echo")]);
    if let McpTransport::Stdio { argv, .. } = &mut server.transport {
        argv.push("own-children".into());
    }
    let broker = start(server).await.unwrap();
    eventually(|| children("own-children").is_empty()).await;
    for channel in ["fake:one", "fake:two", "fake:one"] {
        let turn = Turn::open_in(&broker, channel).await;
        assert_eq!(
            turn.call("/mcp/everything", &request("echo", json!({ "message": "x" }))).await.status,
            200
        );
        turn.broker.close().await;
    }
    assert_eq!(children("own-children").len(), 2);
    drop(broker);
    eventually(|| children("own-children").is_empty()).await;
}

async fn one_child() {
    let mut server = everything(vec![McpTool::named("echo")]);
    server.scope = McpScope::Host;
    if let McpTransport::Stdio { argv, .. } = &mut server.transport {
        argv.push("one-child".into());
    }
    let broker = start(server).await.unwrap();
    assert_eq!(children("one-child").len(), 1);
    for channel in ["fake:one", "fake:two"] {
        let turn = Turn::open_in(&broker, channel).await;
        assert_eq!(
            turn.call("/mcp/everything", &request("echo", json!({ "message": "x" }))).await.status,
            200
        );
    }
    assert_eq!(children("one-child").len(), 1);
}

async fn restarted() {
    let mut server = everything(vec![McpTool::named("echo")]);
    if let McpTransport::Stdio { argv, .. } = &mut server.transport {
        argv.push("restarted".into());
    }
    let broker = start(server).await.unwrap();
    let turn = Turn::open(&broker).await;
    let echo = request("echo", json!({ "message": "x" }));
    assert_eq!(turn.call("/mcp/everything", &echo).await.status, 200);
    for child in children("restarted") {
        std::process::Command::new("kill").args(["-9", &child.to_string()]).status().unwrap();
    }
    // Either the loss is noticed at once or the first call tells; turns go on in both cases.
    let mut statuses = Vec::new();
    for _ in 0..20 {
        statuses.push(turn.call("/mcp/everything", &echo).await.status);
        if statuses.last() == Some(&200) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert_eq!(statuses.last(), Some(&200), "{statuses:?}");
}

async fn cancelled() {
    let broker = start(everything(vec![
        McpTool::named("trigger-long-running-operation"),
        McpTool::named("echo"),
    ]))
    .await
    .unwrap();
    let mut turn = Turn::open(&broker).await;
    let long = request("trigger_long_running_operation", json!({ "duration": 60, "steps": 60 }));
    let cancel = turn.cancel.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(500)).await;
        cancel.cancel();
    });
    let before = Instant::now();
    assert_eq!(turn.call("/mcp/everything", &long).await.status, 502);
    assert!(before.elapsed() < Duration::from_secs(5));
    let outcomes: Vec<_> = std::iter::from_fn(|| turn.events.try_recv())
        .filter_map(|event| match event.kind {
            EventKind::CallEnded { outcome, .. } => Some(outcome),
            _ => None,
        })
        .collect();
    assert_eq!(outcomes, [CallOutcome::Cancelled]);
    let next = Turn::open(&broker).await;
    assert_eq!(
        next.call("/mcp/everything", &request("echo", json!({ "message": "x" }))).await.status,
        200
    );
}

async fn python_server() {
    let program = Fact::McpPython.program().to_str().unwrap().to_owned();
    let transport = McpTransport::Stdio {
        argv: vec![program, "--local-timezone".into(), "UTC".into()],
        env: BTreeMap::new(),
    };
    let mut tool = McpTool::named("convert_time");
    tool.validate = true;
    let broker = start(McpServer::new("time", transport, vec![tool])).await.unwrap();
    let turn = Turn::open(&broker).await;
    let convert = json!({ "source_timezone": "Europe/Berlin", "time": "12:00", "target_timezone": "Asia/Tokyo" });
    let answer = turn.call("/mcp/time", &request("convert_time", convert)).await.json();
    assert!(text(&answer).contains("Asia/Tokyo"), "{answer}");
    assert_eq!(
        turn.call("/mcp/time", &request("convert_time", json!({ "time": 5 }))).await.status,
        502
    );
}
