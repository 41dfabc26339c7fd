//! Servers over Streamable HTTP.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::{Value, json};
use turnjail_broker::{
    Broker, BrokerSettings, Credential, CredentialError, CredentialRequest, CredentialSource,
    McpScope, McpServer, McpTool, McpTransport, Secret,
};

use super::*;
use crate::logs::Logs;
use crate::support::bench::Turn;
use crate::support::{Received, Reply, Upstream};

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

const KEY: &str = "sk-very-secret-123456";

/// A server that sends its credential back in a JSON-RPC error, from the handshake of a number on.
async fn echoing(from: usize, status: u16) -> Upstream {
    let handshakes = AtomicUsize::new(0);
    Upstream::start(move |request| {
        let id = request.body["id"].clone();
        let method = request.body["method"].as_str().unwrap_or_default();
        let refuses = match method {
            "initialize" => handshakes.fetch_add(1, Ordering::SeqCst) >= from,
            _ => true,
        };
        let reply = if method.starts_with("notifications/") || id.is_null() {
            typed(202, "text/plain", b"")
        } else if refuses {
            let text = format!("bad token {}", request.headers["authorization"]);
            let error = json!({ "code": -32042, "message": text, "data": text });
            let body = json!({ "jsonrpc": "2.0", "id": id, "error": error });
            typed(status, "application/json", body.to_string().as_bytes())
        } else {
            let info = json!({ "name": "x", "version": "1" });
            let result = json!({
                "protocolVersion": "2025-06-18", "capabilities": { "tools": {} }, "serverInfo": info,
            });
            let body = json!({ "jsonrpc": "2.0", "id": id, "result": result });
            typed(200, "application/json", body.to_string().as_bytes())
        };
        std::future::ready(reply)
    })
    .await
}

async fn with_key(upstream: &Upstream) -> BrokerSettings {
    let mut wanted = over_http(upstream).await;
    wanted.mcp[0].credential = Credential::Source(Arc::new(Fixed));
    wanted
}

struct Fixed;

#[async_trait]
impl CredentialSource for Fixed {
    async fn credential(
        &self,
        _: CredentialRequest<'_>,
    ) -> Result<Option<Secret>, CredentialError> {
        Ok(Some(Secret::new(KEY)))
    }
}

#[tokio::test]
async fn a_credential_that_a_server_sends_back_is_in_no_error_or_log() {
    let logs = Logs::default();
    let _guard = logs.listen();
    for status in [200, 401] {
        // The first handshake, and the list of tools after it.
        for from in [0, 1] {
            let upstream = echoing(from, status).await;
            let mut wanted = with_key(&upstream).await;
            wanted.mcp[0].tools = vec![McpTool::named("t")];
            let error = Broker::start(wanted).await.unwrap_err();
            let text = format!("{error}{error:?}");
            assert!(text.contains("-32042") && !text.contains(KEY), "{text}");
        }
        // A later handshake, in the middle of a turn.
        let upstream = echoing(1, status).await;
        let mut turn = Turn::with(with_key(&upstream).await).await;
        assert_eq!(ask(&mut turn).await.0, 502);
    }
    let logged = logs.ours();
    assert!(logged.iter().any(|line| line.contains("-32042")), "{logged:?}");
    assert!(logged.iter().all(|line| !line.contains(KEY)), "{logged:?}");
}
