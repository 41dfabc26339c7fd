//! MCP servers that lie, stall and break, and what the operator may declare about them.

#![cfg(feature = "mcp-client")]

mod support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::{Map, Value, json};
use support::bench::{Turn, settings};
use support::{Received, Reply, Upstream};
use turnjail_broker::{
    Broker, BrokerSettings, CallOutcome, Credential, CredentialError, CredentialRequest,
    CredentialSource, EventKind, McpScope, McpServer, McpTool, McpTransport, Secret,
};

fn declared(name: &str) -> McpTool {
    McpTool::named(name).declare("d", Map::new())
}

async fn with(server: McpServer) -> BrokerSettings {
    let mut settings = settings(&Upstream::always(Reply::Hang).await);
    settings.model_timeout = Duration::from_secs(2);
    settings.mcp.push(server);
    settings
}

fn call_of(tool: &str) -> Value {
    json!({ "method": "tools/call", "params": { "name": tool, "arguments": {} } })
}

async fn ask(turn: &mut Turn) -> (u16, Value, CallOutcome) {
    let answer = turn.call("/mcp/s", &call_of("t")).await;
    let ended = std::iter::from_fn(|| turn.events.try_recv()).last().unwrap();
    let EventKind::CallEnded { outcome, .. } = ended.kind else { panic!("{ended:?}") };
    (answer.status, answer.json(), outcome)
}

fn json_server(upstream: &Upstream, tools: Vec<McpTool>) -> McpServer {
    McpServer::new("s", McpTransport::Json { url: upstream.url("/rpc") }, tools)
}

#[tokio::test]
async fn a60_a_plain_endpoint_answers_one_call_or_fails_it() {
    let result = json!({ "content": [] });
    for (body, status) in [
        (json!({ "jsonrpc": "2.0", "id": 1, "result": result }), 200),
        (json!({ "id": 1.0, "result": result, "more": "dropped" }), 200),
        (json!({ "id": 1, "error": { "code": -1, "message": "no" } }), 200),
        (json!({ "id": 2, "result": result }), 502),
        (json!({ "id": "1", "result": result }), 502),
        (json!({ "id": null, "result": result }), 502),
        (json!({ "result": result }), 502),
        (json!({ "id": 1, "result": result, "error": { "code": 1, "message": "" } }), 502),
        (json!({ "id": 1, "error": "text" }), 502),
        (json!({ "id": 1 }), 502),
        (json!([{ "id": 1, "result": result }]), 502),
        (json!("text"), 502),
    ] {
        let upstream = Upstream::always(Reply::json(200, &body)).await;
        let mut turn = Turn::with(with(json_server(&upstream, vec![declared("t")])).await).await;
        let (got, answer, _) = ask(&mut turn).await;
        assert_eq!(got, status, "{body}");
        if got == 200 {
            let kind = if body.get("result").is_some() { "result" } else { "error" };
            assert_eq!(answer, json!({ "jsonrpc": "2.0", "id": 1, kind: body[kind] }));
        }
    }
    let two = Reply::Answer {
        status: 200,
        headers: Vec::new(),
        body: Bytes::from_static(b"{\"id\":1,\"result\":1}{}"),
    };
    for reply in [two, Reply::Hang, Reply::json(500, &json!({ "id": 1, "result": 1 }))] {
        let upstream = Upstream::always(reply).await;
        let mut wanted = with(json_server(&upstream, vec![declared("t")])).await;
        wanted.retries = 2;
        let mut turn = Turn::with(wanted).await;
        assert_eq!(ask(&mut turn).await.0, 502);
        // It may have acted: it is not asked twice.
        assert_eq!(upstream.take().len(), 1);
    }
}

#[tokio::test]
async fn a60_guests_call_one_declared_tool_and_nothing_else() {
    let answer = json!({ "id": 1, "result": {} });
    let upstream = Upstream::always(Reply::json(200, &answer)).await;
    let turn =
        Turn::with(with(json_server(&upstream, vec![declared("get-it"), declared("t")])).await)
            .await;
    let call = call_of("t");
    for (body, status) in [
        (json!([call]), 400),
        (json!([]), 400),
        (json!({ "Method": "tools/call", "params": call["params"] }), 403),
        (json!({ "method": "resources/read", "params": call["params"] }), 403),
        (json!({ "method": "prompts/get", "params": call["params"] }), 403),
        (json!({ "method": "logging/setLevel", "params": call["params"] }), 403),
        (json!({ "method": "notifications/cancelled" }), 403),
        (json!({ "method": ["tools/call"], "params": call["params"] }), 403),
        (call_of("../t"), 403),
        (call_of("t\0"), 403),
        (call_of("get-it"), 403),
        (call_of("T"), 403),
        (json!({ "method": "tools/call", "params": { "name": "t", "arguments": [] } }), 403),
        (json!({ "method": "tools/call", "params": { "name": "t" } }), 403),
    ] {
        assert_eq!(turn.call("/mcp/s", &body).await.status, status, "{body}");
    }
    assert!(upstream.take().is_empty());
    let odd = json!({
        "jsonrpc": "9", "id": { "a": 1e300 }, "method": "tools/call", "headers": { "x": 1 },
        "params": { "name": "get_it", "arguments": { "a": 1 }, "_meta": { "progressToken": 1 }, "task": {} },
    });
    assert_eq!(
        turn.call("/mcp/s", &odd).await.json(),
        json!({ "jsonrpc": "2.0", "id": 1, "result": {} })
    );
    let sent = upstream.take().remove(0).body;
    let params = json!({ "name": "get-it", "arguments": { "a": 1 } });
    assert_eq!(
        sent,
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params })
    );
}

/// A plain endpoint that lists tools in pages.
async fn listing(pages: Vec<Value>) -> Upstream {
    Upstream::start(move |request| {
        let cursor =
            request.body["params"]["cursor"].as_str().unwrap_or("0").parse().unwrap_or(0_usize);
        let mut page = json!({ "tools": pages[cursor % pages.len()] });
        if cursor + 1 != pages.len() {
            page["nextCursor"] = (cursor + 1).to_string().into();
        }
        std::future::ready(Reply::json(200, &json!({ "id": 1, "result": page })))
    })
    .await
}

fn offer(name: &str, schema: Value) -> Value {
    json!({ "name": name, "description": format!("about {name}"), "inputSchema": schema })
}

#[tokio::test]
async fn tools_declared_by_name_are_pinned_from_every_page() {
    let schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#", "$id": "https://x.invalid/a", "type": "object",
        "properties": { "$schema": { "$schema": "x", "$id": "#local" }, "x": { "items": [{ "$id": "y" }] } },
        "default": { "$schema": "kept, as data" },
    });
    let upstream = listing(vec![
        json!([offer("first", json!({}))]),
        json!([
            offer("Get-It.Now", schema),
            offer("other", json!({ "$ref": "https://x.invalid" }))
        ]),
    ])
    .await;
    let tools = vec![McpTool::named("Get-It.Now"), McpTool::aliased("one", "first")];
    let broker = Broker::start(with(json_server(&upstream, tools)).await).await.unwrap();
    let spec = &broker.mcp_specs()[0];
    assert_eq!(
        (&*spec.tools[0].name, &*spec.tools[0].description),
        ("get_it_now", "about Get-It.Now")
    );
    let expected = json!({
        "type": "object",
        "properties": { "$schema": { "$id": "#local" }, "x": { "items": [{}] } },
        "default": { "$schema": "kept, as data" },
    });
    assert_eq!(Value::Object(spec.tools[0].parameters.clone()), expected);
    assert_eq!((&*spec.tools[1].name, &*spec.tools[1].description), ("one", "about first"));
}

#[tokio::test]
async fn what_a_server_does_not_have_or_must_not_say_stops_start_up() {
    let start = async |pages: Vec<Value>, tools: Vec<McpTool>| {
        let upstream = listing(pages).await;
        Broker::start(with(json_server(&upstream, tools)).await).await.unwrap_err().to_string()
    };
    let remote = json!({ "properties": { "a": { "$ref": "https://x.invalid/b" } } });
    let text = start(vec![json!([offer("a", json!({}))])], vec![McpTool::named("b")]).await;
    assert!(
        text.contains("MCP server s") && text.contains("`b`") && text.contains("it has a"),
        "{text}"
    );
    let text = start(vec![json!([offer("a", remote)])], vec![McpTool::named("a")]).await;
    assert!(
        text.contains("MCP server s") && text.contains("`a`") && text.contains("`$ref`"),
        "{text}"
    );
    let text = start(vec![json!([{ "name": "a" }])], vec![McpTool::named("a")]).await;
    assert!(text.contains("without a name or schema"), "{text}");
    let text = start(vec![json!("x")], vec![McpTool::named("a")]).await;
    assert!(text.contains("lists no tools"), "{text}");
    let endless = Upstream::start(|_| {
        let page = json!({ "tools": [], "nextCursor": "again" });
        std::future::ready(Reply::json(200, &json!({ "id": 1, "result": page })))
    })
    .await;
    let error = Broker::start(with(json_server(&endless, vec![McpTool::named("a")])).await)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("pages"), "{error}");
}

#[tokio::test]
async fn declarations_are_checked_with_the_settings_name() {
    let upstream = Upstream::always(Reply::Hang).await;
    let refuse = async |server: McpServer, words: &[&str]| {
        let text = Broker::start(with(server).await).await.unwrap_err().to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    };
    refuse(json_server(&upstream, vec![]), &["mcp.s.tools", "empty"]).await;
    refuse(
        json_server(&upstream, vec![declared("get-it"), declared("get.it")]),
        &["mcp.s.tools", "get_it", "twice"],
    )
    .await;
    refuse(json_server(&upstream, vec![declared("9x")]), &["mcp.s.tools", "9x"]).await;
    let Value::Object(remote) = json!({ "items": { "$dynamicRef": "x" } }) else { unreachable!() };
    refuse(
        json_server(&upstream, vec![McpTool::named("t").declare("d", remote)]),
        &["mcp.s.tools.t", "$dynamicRef"],
    )
    .await;
    let mut server = json_server(&upstream, vec![declared("t")]);
    server.transport = McpTransport::Json { url: "http://x#y".into() };
    refuse(server, &["mcp.s.url", "fragment"]).await;
    let mut server = json_server(&upstream, vec![declared("t")]);
    server.name = "S".into();
    refuse(server, &["mcp ", "`S`"]).await;
    let mut settings = with(json_server(&upstream, vec![declared("t")])).await;
    settings.mcp.push(json_server(&upstream, vec![declared("t")]));
    assert!(Broker::start(settings).await.unwrap_err().to_string().contains("`s` twice"));
    let mut server = json_server(&upstream, vec![declared("t")]);
    server.transport = McpTransport::Stdio { argv: vec!["true".into()], env: BTreeMap::new() };
    server.credential = Credential::Env("PATH".into());
    refuse(server, &["mcp.s.credential", "env"]).await;
}

/// A server in shell: the handshake is done for it, `calls` says what happens on a call of id `$id`.
fn shell_server(calls: &str) -> McpServer {
    let script = format!(
        r#"while read -r line; do
            id=$(printf %s "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
            case "$line" in
            *'"method":"initialize"'*) echo '{{"jsonrpc":"2.0","id":'"$id"',"result":{{"protocolVersion":"2025-06-18","capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"x","version":"1"}}}}}}';;
            *'"method":"tools/call"'*) {calls}
            esac
        done"#
    );
    let argv = ["sh", "-c", &script].map(str::to_owned).to_vec();
    McpServer::new("s", McpTransport::Stdio { argv, env: BTreeMap::new() }, vec![declared("t")])
}

const ANSWER: &str = r#"echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"content":[{"type":"text","text":"fine"}]}}';"#;

#[tokio::test]
async fn a60_a_child_that_misbehaves_fails_calls_and_nothing_more() {
    use CallOutcome::{Ok, Timeout, Upstream as Failed};
    for (name, calls, status, outcome) in [
        ("answers", ANSWER.to_owned(), 200, Ok),
        ("prints other lines first", format!("echo hello; echo; echo '[]'; echo '{{}}'; {ANSWER}"), 200, Ok),
        ("answers twice", format!("{ANSWER} {ANSWER}"), 200, Ok),
        ("answers another first", format!("id=999; {ANSWER} id=$(printf %s \"$line\" | sed -n 's/.*\"id\":\\([0-9]*\\).*/\\1/p'); {ANSWER}"), 200, Ok),
        ("asks for a model first", format!("echo '{{\"jsonrpc\":\"2.0\",\"id\":77,\"method\":\"sampling/createMessage\",\"params\":{{\"messages\":[],\"maxTokens\":1}}}}'; {ANSWER}"), 200, Ok),
        ("sends a lone surrogate", r#"echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"content":[{"type":"text","text":"\ud83d"}]}}';"#.to_owned(), 200, Ok),
        ("never answers", ":;".to_owned(), 502, Timeout),
        ("ends", "exit 0;".to_owned(), 502, Failed),
        ("closes its output", "exec 1>&-;".to_owned(), 502, Failed),
        ("writes a line without end", "yes | tr -d '\\n';".to_owned(), 502, Failed),
        ("answers something else", r#"echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"tools":[]}}';"#.to_owned(), 502, Failed),
    ] {
        let mut turn = Turn::with(with(shell_server(&calls)).await).await;
        let before = Instant::now();
        let (got, answer, got_outcome) = ask(&mut turn).await;
        assert_eq!((got, got_outcome), (status, outcome), "{name}: {answer}");
        assert!(before.elapsed() < Duration::from_secs(6), "{name}");
        assert_eq!(turn.call("/mcp/s", &json!({})).await.status, 403, "{name}");
    }
}

#[tokio::test]
async fn a_lost_child_is_started_again_at_once_and_then_with_back_off() {
    let directory = tempfile::tempdir().unwrap();
    let gone = directory.path().join("gone");
    // Once the file is there, every new child ends before its handshake.
    let server = shell_server(&format!("if test -e {0}; then exit; fi; {ANSWER}", gone.display()));
    let McpTransport::Stdio { argv, .. } = &server.transport else { unreachable!() };
    let script = format!("if test -e {}; then exit 1; fi; {}", gone.display(), argv[2]);
    let argv = ["sh", "-c", &script].map(str::to_owned).to_vec();
    let server = McpServer::new(
        "s",
        McpTransport::Stdio { argv, env: BTreeMap::new() },
        vec![declared("t")],
    );
    let mut turn = Turn::with(with(server).await).await;
    assert_eq!(ask(&mut turn).await.0, 200);
    std::fs::write(&gone, "").unwrap();
    assert_eq!(ask(&mut turn).await.0, 502);
    // The next call tries to start it, later ones fail at once until the wait is over.
    assert_eq!(ask(&mut turn).await.2, CallOutcome::Unreachable);
    let before = Instant::now();
    assert_eq!(ask(&mut turn).await.2, CallOutcome::Unreachable);
    assert!(before.elapsed() < Duration::from_millis(500));
    std::fs::remove_file(&gone).unwrap();
    assert_eq!(ask(&mut turn).await.0, 502);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(ask(&mut turn).await.0, 200);
}

#[tokio::test]
async fn at_most_sixty_four_sessions_live() {
    let started = tempfile::tempdir().unwrap();
    let server = shell_server(ANSWER);
    let McpTransport::Stdio { argv, .. } = &server.transport else { unreachable!() };
    let script = format!("mktemp -p {} >/dev/null; {}", started.path().display(), argv[2]);
    let argv = ["sh", "-c", &script].map(str::to_owned).to_vec();
    let server = McpServer::new(
        "s",
        McpTransport::Stdio { argv, env: BTreeMap::new() },
        vec![declared("t")],
    );
    let broker = Broker::start(with(server).await).await.unwrap();
    let ask_in = async |channel: &str| ask(&mut Turn::open_in(&broker, channel).await).await.0;
    for number in 0..65 {
        assert_eq!(ask_in(&format!("fake:{number}")).await, 200);
    }
    let count = || started.path().read_dir().unwrap().count();
    // One was the greeting's; the first channel has lost its child to the last one, the second not.
    assert_eq!(count(), 66);
    assert_eq!(ask_in("fake:1").await, 200);
    assert_eq!(count(), 66);
    assert_eq!(ask_in("fake:0").await, 200);
    assert_eq!(count(), 67);
}

/// Whether any process has a word in its command line.
fn runs(word: &str) -> bool {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let mut lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.any(|line| memchr::memmem::find(&line, word.as_bytes()).is_some())
}

#[tokio::test]
async fn a_session_that_nobody_uses_ends_after_five_minutes() {
    let broker = Broker::start(with(shell_server(&format!("{ANSWER} : idle-ones-end;"))).await)
        .await
        .unwrap();
    let mut turn = Turn::open(&broker).await;
    assert_eq!(ask(&mut turn).await.0, 200);
    turn.broker.close().await;
    let pass = async |seconds| {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(seconds)).await;
        tokio::time::resume();
        tokio::time::sleep(Duration::from_millis(300)).await;
    };
    pass(290).await;
    assert!(runs("idle-ones-end"));
    // The longest time between two looks is half a minute.
    pass(41).await;
    for _ in 0..100 {
        if !runs("idle-ones-end") {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("it goes on");
}

/// A server over Streamable HTTP whose answers to calls a test makes.
async fn http_server(
    answer: impl Fn(Received, usize) -> Reply + Send + Sync + 'static,
) -> Upstream {
    let calls = AtomicUsize::new(0);
    Upstream::start(move |request| {
        let id = request.body["id"].clone();
        let reply = match request.body["method"].as_str() {
            Some("initialize") => {
                let info = json!({ "name": "x", "version": "1" });
                let result = json!({
                    "protocolVersion": "2025-06-18", "capabilities": { "tools": {} }, "serverInfo": info,
                });
                let body = json!({ "jsonrpc": "2.0", "id": id, "result": result });
                typed(200, "application/json", body.to_string().as_bytes())
            }
            Some("tools/call") => answer(request, calls.fetch_add(1, Ordering::SeqCst)),
            _ if request.method == "POST" => typed(202, "text/plain", b""),
            _ => typed(405, "text/plain", b""),
        };
        std::future::ready(reply)
    })
    .await
}

fn typed(status: u16, media_type: &str, body: &[u8]) -> Reply {
    let headers = [("content-type", media_type), ("mcp-session-id", "session-1")];
    Reply::Answer {
        status,
        headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
        body: Bytes::copy_from_slice(body),
    }
}

fn fine(request: &Received) -> Value {
    json!({ "jsonrpc": "2.0", "id": request.body["id"], "result": { "content": [{ "type": "text", "text": "fine" }] } })
}

async fn over_http(upstream: &Upstream) -> BrokerSettings {
    let transport = McpTransport::StreamableHttp { url: upstream.url("/mcp") };
    with(McpServer::new("s", transport, vec![declared("t")])).await
}

type AnswerTo = fn(Received) -> Reply;

#[tokio::test]
async fn a60_a_server_over_http_that_misbehaves_fails_calls_and_nothing_more() {
    let cases: [(&str, AnswerTo, u16); 13] = [
        (
            "json",
            |request| {
                typed(200, "Application/JSON; charset=utf-8", fine(&request).to_string().as_bytes())
            },
            200,
        ),
        (
            "events",
            |request| {
                typed(
                    200,
                    "text/event-stream",
                    format!(": ping\n\nevent: message\ndata: {}\n\n", fine(&request)).as_bytes(),
                )
            },
            200,
        ),
        (
            "a question first",
            |request| {
                let question = json!({ "jsonrpc": "2.0", "id": 9, "method": "elicitation/create", "params": { "message": "x", "requestedSchema": { "type": "object", "properties": {} } } });
                typed(
                    200,
                    "text/event-stream",
                    format!("data: {question}\n\ndata: {}\n\n", fine(&request)).as_bytes(),
                )
            },
            200,
        ),
        (
            "a lone surrogate",
            |request| {
                let text = fine(&request).to_string().replace("fine", "\\ud83d");
                typed(200, "text/event-stream", format!("data: {text}\n\n").as_bytes())
            },
            200,
        ),
        (
            "another id",
            |_| {
                typed(
                    200,
                    "application/json",
                    br#"{"jsonrpc":"2.0","id":999,"result":{"content":[]}}"#,
                )
            },
            502,
        ),
        ("not JSON", |_| typed(200, "application/json", b"<html>"), 502),
        ("HTML", |_| typed(200, "text/html", b"<html>"), 502),
        ("accepted", |_| typed(202, "text/plain", b""), 502),
        ("events without an answer", |_| typed(200, "text/event-stream", b": nothing\n\n"), 502),
        ("a status", |_| typed(500, "text/plain", b"details"), 502),
        ("unauthorized", |_| typed(401, "application/json", b"{}"), 502),
        (
            "too much",
            |request| {
                typed(
                    200,
                    "application/json",
                    fine(&request).to_string().replace("fine", &"x".repeat(1_200_000)).as_bytes(),
                )
            },
            502,
        ),
        (
            "endless events",
            |_| typed(200, "text/event-stream", "data: x\n\n".repeat(1_000_000).as_bytes()),
            502,
        ),
    ];
    for (name, answer, status) in cases {
        let upstream = http_server(move |request, _| answer(request)).await;
        let mut turn = Turn::with(over_http(&upstream).await).await;
        let before = Instant::now();
        let (got, answer, outcome) = ask(&mut turn).await;
        assert_eq!(got, status, "{name}: {answer} {outcome:?}");
        assert!(before.elapsed() < Duration::from_secs(6), "{name}");
    }
}

#[tokio::test]
async fn an_expired_session_is_begun_again_within_the_call() {
    let upstream = http_server(|request, count| {
        if count == 1 {
            typed(404, "text/plain", b"")
        } else {
            typed(200, "application/json", fine(&request).to_string().as_bytes())
        }
    })
    .await;
    let mut turn = Turn::with(over_http(&upstream).await).await;
    assert_eq!(ask(&mut turn).await.0, 200);
    assert_eq!(ask(&mut turn).await.0, 200);
    let methods: Vec<Value> =
        upstream.take().into_iter().map(|sent| sent.body["method"].clone()).collect();
    assert_eq!(methods.iter().filter(|method| *method == "initialize").count(), 3, "{methods:?}");
}

/// A key that differs with every call, as short-lived tokens do.
#[derive(Default)]
struct Counting(Mutex<usize>);

#[async_trait]
impl CredentialSource for Counting {
    async fn credential(
        &self,
        request: CredentialRequest<'_>,
    ) -> Result<Option<Secret>, CredentialError> {
        let mut count = self.0.lock().unwrap();
        *count += 1;
        Ok(Some(Secret::new(format!("{}-token-{count}", request.channel))))
    }
}

#[tokio::test]
async fn every_call_of_a_session_carries_its_own_credential() {
    let upstream = http_server(|request, _| {
        typed(200, "application/json", fine(&request).to_string().as_bytes())
    })
    .await;
    for scope in [McpScope::Channel, McpScope::Host] {
        let mut wanted = over_http(&upstream).await;
        wanted.mcp[0].credential = Credential::Source(Arc::new(Counting::default()));
        wanted.mcp[0].scope = scope;
        let broker = Broker::start(wanted).await.unwrap();
        for channel in ["fake:one", "fake:two"] {
            let mut turn = Turn::open_in(&broker, channel).await;
            assert_eq!(ask(&mut turn).await.0, 200);
            assert_eq!(ask(&mut turn).await.0, 200);
        }
        let sent = upstream.take();
        assert!(sent.iter().all(|sent| sent.headers.contains_key("authorization")), "{sent:?}");
        let calls = sent.iter().filter(|sent| sent.body["method"] == "tools/call");
        let channels: Vec<&str> = calls
            .map(|sent| {
                sent.headers["authorization"]
                    .strip_prefix("Bearer ")
                    .unwrap()
                    .split("-token-")
                    .next()
                    .unwrap()
            })
            .collect();
        assert_eq!(channels, ["fake:one", "fake:one", "fake:two", "fake:two"]);
    }
}
