//! Host tools of every kind: what they get, what becomes of what they give, how they end.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Map, Value, json};
use turnjail_broker::{
    Broker, BrokerSettings, CallOutcome, CallbackTarget, CallbackTool, CommandTool, Credential,
    EventKind, Tool, ToolError,
};
use turnjail_protocol::ToolSpec;

use crate::support::bench::{Turn, settings, tool};
use crate::support::{Reply, Upstream};

async fn quiet() -> BrokerSettings {
    settings(&Upstream::always(Reply::Hang).await)
}

fn spec(name: &str) -> ToolSpec {
    ToolSpec::new(name, "d", Map::new())
}

fn shell(name: &str, script: &str) -> CommandTool {
    CommandTool::new(spec(name), ["sh", "-c", script].map(str::to_owned).to_vec())
}

async fn with(tools: impl IntoIterator<Item = Tool>) -> Turn {
    let mut settings = quiet().await;
    settings.tools.extend(tools);
    Turn::with(settings).await
}

fn outcomes(turn: &mut Turn) -> Vec<CallOutcome> {
    std::iter::from_fn(|| turn.events.try_recv())
        .filter_map(|event| match event.kind {
            EventKind::CallEnded { outcome, .. } => Some(outcome),
            _ => None,
        })
        .collect()
}

/// Whether any process has a word in its command line.
fn runs(word: &str) -> bool {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let mut lines =
        entries.filter_map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).ok());
    lines.any(|line| line.contains(word))
}

async fn eventually(what: impl Fn() -> bool) {
    for _ in 0..300 {
        if what() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it did not happen");
}

#[tokio::test]
async fn a_rust_tool_gets_the_body_and_a_context_of_the_hosts() {
    let seen = Arc::new(Mutex::new(None));
    let keep = Arc::clone(&seen);
    let turn = with([tool("look", move |input, context| {
        *keep.lock().unwrap() = Some((input, context));
        async { Ok("ok".into()) }
    })])
    .await;
    let body = json!({ "channel": "fake:other", "speaker": { "principalId": "root" } });
    assert_eq!(turn.call("/tools/look", &body).await.json(), json!({ "text": "ok" }));
    let (input, context) = seen.lock().unwrap().take().unwrap();
    assert_eq!(Value::Object(input), body);
    assert_eq!((&*context.channel, context.space.as_deref()), ("fake:one", Some("fake:space")));
    assert_eq!((&*context.speaker.principal_id, context.tool_result_bytes), ("owner", 4096));
    // The call is over, so what it started elsewhere has to end.
    assert!(context.cancel.is_cancelled() && !turn.cancel.is_cancelled());
}

#[tokio::test]
async fn a_tool_that_panics_or_fails_harms_nothing() {
    let turn = with([
        tool("fail", |_, _| async { Err(ToolError::failed("a secret reason")) }),
        tool("panic", |_, _| async { panic!("as the test says") }),
        tool("echo", |_, _| async { Ok("fine".into()) }),
    ])
    .await;
    let failed = turn.call("/tools/fail", &json!({})).await;
    assert_eq!((failed.status, &*failed.text()), (502, "broker call failed"));
    let panicked = turn.call("/tools/panic", &json!({})).await;
    assert_eq!((panicked.status, &*panicked.text()), (502, "broker call failed"));
    assert_eq!(turn.call("/tools/echo", &json!({})).await.status, 200);
}

#[tokio::test]
async fn a_result_of_one_mebibyte_as_json_is_the_most() {
    let most = 1024 * 1024 - r#"{"text":""}"#.len();
    let turn = with([
        tool("most", move |_, _| async move { Ok("x".repeat(most)) }),
        tool("more", move |_, _| async move { Ok("x".repeat(most + 1)) }),
        tool("escaped", move |_, _| async move { Ok("\u{1}".repeat(most / 6 + 1)) }),
    ])
    .await;
    assert_eq!(turn.call("/tools/most", &json!({})).await.body.len(), 1024 * 1024);
    assert_eq!(turn.call("/tools/more", &json!({})).await.status, 502);
    assert_eq!(turn.call("/tools/escaped", &json!({})).await.status, 502);
}

#[cfg(feature = "validate")]
#[tokio::test]
async fn inputs_are_validated_where_the_operator_wants_it() {
    let schema = json!({
        "type": "object",
        "properties": { "n": { "type": "integer" }, "s": { "type": "string", "pattern": "^(a+)+$" } },
        "required": ["n"],
        "additionalProperties": false,
    });
    let turn = with([crate::support::bench::strict_tool("strict", schema)]).await;
    assert_eq!(turn.call("/tools/strict", &json!({ "n": 5 })).await.status, 200);
    for input in [json!({}), json!({ "n": "5" }), json!({ "n": 5, "x": 1 })] {
        assert_eq!(turn.call("/tools/strict", &input).await.status, 502, "{input}");
    }
    // A pattern that ruins backtracking engines.
    let before = Instant::now();
    let long = json!({ "n": 5, "s": format!("{}b", "a".repeat(50_000)) });
    assert_eq!(turn.call("/tools/strict", &long).await.status, 502);
    assert!(before.elapsed() < Duration::from_secs(2));
    let lookaround = crate::support::bench::strict_tool("bad", json!({ "pattern": "(?=a)" }));
    let mut settings = quiet().await;
    settings.tools.push(lookaround);
    assert!(Broker::start(settings).await.unwrap_err().to_string().contains("tools.bad"));
}

#[tokio::test]
async fn a_command_gets_input_and_context_and_a_clean_environment() {
    let script = r#"cat; printf '\n%s\n' "$TURNJAIL_CONTEXT"; pwd; env | sed 's/=.*//' | sort | tr '\n' ' '"#;
    let mut command = shell("look", script);
    command.env.insert("DECLARED".into(), "1".into());
    let turn = with([Tool::Command(command)]).await;
    let answer = turn.call("/tools/look", &json!({ "ü": [1, 1e21, "\u{1f600}"] })).await.json();
    let lines: Vec<&str> = answer["text"].as_str().unwrap().lines().collect();
    assert_eq!(lines[0], "{\"ü\":[1,1e+21,\"\u{1f600}\"]}");
    let context: Value = serde_json::from_str(lines[1]).unwrap();
    let speaker = json!({ "id": "7", "name": "Ada", "principalId": "owner" });
    let expected = json!({
        "channel": "fake:one", "space": "fake:space", "speaker": speaker, "toolResultBytes": 4096,
    });
    assert_eq!(context, expected);
    assert_eq!(lines[2], "/");
    let shells_own = ["_", "PWD", "SHLVL", "OLDPWD"];
    let names: Vec<&str> =
        lines[3].split_whitespace().filter(|name| !shells_own.contains(name)).collect();
    assert_eq!(names, ["DECLARED", "PATH", "TURNJAIL_CONTEXT"]);
}

#[tokio::test]
async fn a_command_inherits_no_socket_or_poller_of_the_hosts() {
    let turn = with([shell("fds", "ls -l /proc/self/fd").into()]).await;
    let answer = turn.call("/tools/fds", &json!({})).await.json();
    let text = answer["text"].as_str().unwrap();
    assert!(text.contains(" 0 -> pipe:") && text.contains(" 1 -> pipe:"), "{text}");
    assert!(!text.contains("socket:") && !text.contains("anon_inode:"), "{text}");
}

#[tokio::test]
async fn a_command_that_fails_floods_or_garbles_is_a_failure() {
    let mut turn = with([
        shell("exit", "echo partial; exit 3").into(),
        shell("killed", "kill -9 $$").into(),
        shell("flood", "yes | head -c 2000000").into(),
        shell("bytes", r"printf '\377'").into(),
        shell("deaf", "exec 0<&-; echo ok").into(),
        CommandTool::new(spec("absent"), vec!["/no/such/program".into()]).into(),
        shell(
            "noisy",
            "yes >&2 | head -c 10000000 >/dev/null & head -c 3000000 /dev/zero >&2; echo ok",
        )
        .into(),
        shell("exact", "head -c 1048565 /dev/zero | tr '\\0' x").into(),
    ])
    .await;
    let large = json!({ "x": "y".repeat(200_000) });
    for (name, status) in [
        ("exit", 502),
        ("killed", 502),
        ("flood", 502),
        ("bytes", 502),
        ("deaf", 200),
        ("absent", 502),
        ("noisy", 200),
        ("exact", 200),
    ] {
        assert_eq!(turn.call(&format!("/tools/{name}"), &large).await.status, status, "{name}");
    }
    let words: Vec<_> = outcomes(&mut turn).into_iter().map(CallOutcome::as_str).collect();
    assert_eq!(words, ["tool", "tool", "too-large", "tool", "ok", "tool", "ok", "ok"]);
}

#[tokio::test]
async fn a_commands_whole_group_ends_with_the_call() {
    let script = "sleep 4321.25 & sh -c 'sleep 4321.25; :' & wait";
    // It ends by itself, by its time, by the turn's end, by the worker hanging up.
    let mut slow = shell("slow", script);
    slow.timeout = Duration::from_secs(1);
    let turn = with([
        shell("leaves", "sleep 4321.25 & echo left").into(),
        slow.into(),
        shell("held", script).into(),
    ])
    .await;
    let before = Instant::now();
    assert_eq!(turn.call("/tools/leaves", &json!({})).await.json(), json!({ "text": "left\n" }));
    eventually(|| !runs("4321.25")).await;
    assert_eq!(turn.call("/tools/slow", &json!({})).await.status, 502);
    eventually(|| !runs("4321.25")).await;
    assert!(before.elapsed() < Duration::from_secs(10));
    let hung_up = {
        let mut stream = tokio::net::UnixStream::connect(&turn.socket).await.unwrap();
        let request = crate::support::post("/tools/held", b"{}");
        tokio::io::AsyncWriteExt::write_all(&mut stream, &request).await.unwrap();
        eventually(|| runs("4321.25")).await;
        stream
    };
    drop(hung_up);
    eventually(|| !runs("4321.25")).await;
    let cancel = turn.cancel.clone();
    let ending = tokio::spawn(async move {
        eventually(|| runs("4321.25")).await;
        cancel.cancel();
    });
    assert_eq!(turn.call("/tools/held", &json!({})).await.status, 502);
    ending.await.unwrap();
    eventually(|| !runs("4321.25")).await;
}

/// An HTTP server on a Unix socket that answers by `respond`.
fn serve_unix(
    socket: &Path,
    respond: impl Fn(Request<Bytes>) -> String + Clone + Send + Sync + 'static,
) {
    let listener = tokio::net::UnixListener::bind(socket).unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let respond = respond.clone();
            tokio::spawn(async move {
                let service = service_fn(|request: Request<Incoming>| async {
                    let (parts, body) = request.into_parts();
                    let body = body.collect().await.unwrap().to_bytes();
                    let text = respond(Request::from_parts(parts, body));
                    Ok::<_, std::convert::Infallible>(Response::new(Full::new(Bytes::from(text))))
                });
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
}

#[tokio::test]
async fn a_callback_over_a_unix_socket_gets_input_and_context() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("tool.sock");
    serve_unix(&socket, |request| {
        let body: Value = serde_json::from_slice(request.body()).unwrap();
        let seen = json!({
            "path": request.uri().to_string(),
            "host": request.headers()["host"].to_str().unwrap(),
            "bearer": request.headers().get("authorization").is_some(),
            "body": body,
        });
        json!({ "text": seen.to_string(), "more": 1 }).to_string()
    });
    let target = CallbackTarget::Unix { socket, path: "/tool?x=1".into() };
    let turn = with([CallbackTool::new(spec("back"), target).into()]).await;
    for _ in 0..2 {
        let answer = turn.call("/tools/back", &json!({ "q": 1 })).await.json();
        let seen: Value = serde_json::from_str(answer["text"].as_str().unwrap()).unwrap();
        assert_eq!((&seen["path"], &seen["host"]), (&json!("/tool?x=1"), &json!("localhost")));
        assert_eq!(seen["bearer"], false);
        assert_eq!(seen["body"]["input"], json!({ "q": 1 }));
        assert_eq!(seen["body"]["context"]["speaker"]["principalId"], "owner");
    }
}

#[tokio::test]
async fn a_callback_over_a_url_has_a_bearer_and_bounds() {
    let server = Upstream::start(|request| async move {
        match &*request.target {
            "/text" => Reply::json(
                200,
                &json!({ "text": request.headers["authorization"].clone().len().to_string() }),
            ),
            "/number" => Reply::json(200, &json!({ "text": 5 })),
            "/leak" => Reply::json(
                200,
                &json!({ "text": format!("<{}>", request.headers["authorization"]) }),
            ),
            "/status" => Reply::json(418, &json!({ "text": "no" })),
            _ => Reply::Hang,
        }
    })
    .await;
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("key");
    std::fs::write(&key, "callback-key-123").unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let mut settings = quiet().await;
    settings.retries = 2;
    for name in ["text", "number", "leak", "status", "gone"] {
        let mut callback =
            CallbackTool::new(spec(name), CallbackTarget::Url(server.url(&format!("/{name}"))));
        callback.credential = Credential::File(key.clone());
        settings.tools.push(callback.into());
    }
    let mut turn = Turn::with(settings).await;
    let length = "Bearer callback-key-123".len().to_string();
    assert_eq!(turn.call("/tools/text", &json!({})).await.json(), json!({ "text": length }));
    for name in ["number", "leak", "status", "gone"] {
        let refused = turn.call(&format!("/tools/{name}"), &json!({})).await;
        assert_eq!((refused.status, &*refused.text()), (502, "broker call failed"), "{name}");
    }
    let words: Vec<_> = outcomes(&mut turn).into_iter().map(CallOutcome::as_str).collect();
    assert_eq!(words, ["ok", "upstream", "reflected", "upstream", "upstream"]);
    // A callback may have acted, so it is never called twice.
    assert_eq!(server.take().len(), 5);
}

#[tokio::test]
async fn declarations_are_checked_with_the_settings_name() {
    let command = |change: fn(&mut CommandTool)| {
        let mut command = shell("c", "true");
        change(&mut command);
        Tool::Command(command)
    };
    let callback =
        |url: &str| Tool::Callback(CallbackTool::new(spec("h"), CallbackTarget::Url(url.into())));
    let remote = |key: &str| {
        let parameters = json!({ key: "https://example.invalid/s" });
        let Value::Object(parameters) = parameters else { unreachable!() };
        tool_with(ToolSpec::new("r", "d", parameters))
    };
    for (tool, setting, problem) in [
        (command(|tool| tool.argv.clear()), "tools.c.command", "program"),
        (command(|tool| tool.argv.push("a\0".into())), "tools.c.command", "NUL"),
        (command(|tool| tool.timeout = Duration::from_millis(10)), "tools.c.timeout", "1 to 600 s"),
        (command(|tool| drop(tool.env.insert("A=".into(), "b".into()))), "tools.c.env", "A="),
        (
            command(|tool| drop(tool.env.insert("TURNJAIL_CONTEXT".into(), String::new()))),
            "tools.c.env",
            "TURNJAIL_CONTEXT",
        ),
        (callback("ftp://x/"), "tools.h.url", "https"),
        (callback("http://user@127.0.0.1/"), "tools.h.url", "credentials"),
        (callback("http://127.0.0.1/#x"), "tools.h.url", "fragment"),
        (callback("/relative"), "tools.h.url", "absolute"),
        (remote("$ref"), "tools.r", "$ref"),
        (tool_with(ToolSpec::new("Bad", "d", Map::new())), "tools", "Bad"),
    ] {
        let mut settings = quiet().await;
        settings.tools.push(tool);
        let error = Broker::start(settings).await.unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with(setting) && text.contains(problem), "{setting}: {text}");
    }
}

fn tool_with(spec: ToolSpec) -> Tool {
    Tool::Command(CommandTool::new(spec, vec!["true".into()]))
}
