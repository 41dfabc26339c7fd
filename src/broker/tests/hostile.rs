//! A worker that is somebody else's code, speaking to the socket as it likes.

mod support;

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use support::bench::{Turn, hello, settings, tool};
use support::{Answered, Reply, Upstream, exchange, exchange_within, post};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use turnjail_broker::BrokerSettings;

async fn upstream() -> Upstream {
    Upstream::always(Reply::json(200, &json!({ "choices": [] }))).await
}

async fn open(upstream: &Upstream) -> Turn {
    open_with(upstream, |_| ()).await
}

async fn open_with(upstream: &Upstream, change: impl FnOnce(&mut BrokerSettings)) -> Turn {
    let mut settings = settings(upstream);
    settings.max_calls = 1000;
    settings.tools.push(tool("echo", |_, _| async { Ok("allowed".into()) }));
    change(&mut settings);
    Turn::with(settings).await
}

const HEAD: &str =
    "host: broker\r\ncontent-type: application/json\r\nauthorization: Bearer sandbox-dummy-key\r\n";

fn raw(request_line: &str, headers: &str, body: &str) -> Vec<u8> {
    format!("{request_line}\r\n{HEAD}{headers}\r\n{body}").into_bytes()
}

async fn answers(turn: &Turn) {
    assert_eq!(turn.call("/model", &hello()).await.status, 200);
}

#[tokio::test]
async fn a49_framing_that_two_readers_could_read_differently_is_refused() {
    let upstream = upstream().await;
    let turn = open(&upstream).await;
    let body = hello().to_string();
    let length = body.len();
    let line = "POST /model HTTP/1.1";
    let mut cases: Vec<(&str, Vec<u8>)> = vec![
        (
            "length and coding",
            raw(
                line,
                &format!("content-length: {length}\r\ntransfer-encoding: chunked\r\n"),
                &body,
            ),
        ),
        (
            "coding and length",
            raw(
                line,
                &format!("transfer-encoding: chunked\r\ncontent-length: {length}\r\n"),
                &body,
            ),
        ),
        (
            "chunked",
            raw(
                line,
                "transfer-encoding: chunked\r\n",
                &format!("{length:x}\r\n{body}\r\n0\r\n\r\n"),
            ),
        ),
        (
            "chunked with a huge size",
            raw(line, "transfer-encoding: chunked\r\n", "fffffffffffffffff\r\nx"),
        ),
        ("chunked, identity", raw(line, "transfer-encoding: chunked, identity\r\n", &body)),
        ("xchunked", raw(line, "transfer-encoding: xchunked\r\n", &body)),
        ("tab before chunked", raw(line, "transfer-encoding:\tchunked\r\n", &body)),
        (
            "two equal lengths",
            raw(line, &format!("content-length: {length}\r\ncontent-length: {length}\r\n"), &body),
        ),
        (
            "two lengths",
            raw(line, &format!("content-length: {length}\r\ncontent-length: 0\r\n"), &body),
        ),
        ("a list of lengths", raw(line, &format!("content-length: {length}, {length}\r\n"), &body)),
        ("no number", raw(line, "content-length: many\r\n", &body)),
        (
            "obsolete folding",
            raw(line, &format!("accept: a\r\n b\r\ncontent-length: {length}\r\n"), &body),
        ),
        ("space before the colon", raw(line, &format!("content-length : {length}\r\n"), &body)),
        ("no colon", raw(line, &format!("nothing\r\ncontent-length: {length}\r\n"), &body)),
        ("empty name", raw(line, &format!(": x\r\ncontent-length: {length}\r\n"), &body)),
        ("a NUL", raw(line, &format!("accept: a\0b\r\ncontent-length: {length}\r\n"), &body)),
        (
            "a bare carriage return",
            raw(line, &format!("accept: a\rb\r\ncontent-length: {length}\r\n"), &body),
        ),
        ("HTTP/1.0", raw("POST /model HTTP/1.0", &format!("content-length: {length}\r\n"), &body)),
        ("HTTP/2.0", raw("POST /model HTTP/2.0", &format!("content-length: {length}\r\n"), &body)),
        (
            "two spaces",
            raw("POST  /model HTTP/1.1", &format!("content-length: {length}\r\n"), &body),
        ),
        ("a tab", raw("POST\t/model HTTP/1.1", &format!("content-length: {length}\r\n"), &body)),
        ("no version", raw("POST /model", &format!("content-length: {length}\r\n"), &body)),
        ("the preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec()),
        ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n".to_vec()),
        ("a trailer", raw(line, &format!("trailer: x\r\ncontent-length: {length}\r\n"), &body)),
        (
            "expectation",
            raw(line, &format!("expect: 100-continue\r\ncontent-length: {length}\r\n"), &body),
        ),
        (
            "upgrade",
            raw(
                line,
                &format!(
                    "upgrade: websocket\r\nconnection: upgrade\r\ncontent-length: {length}\r\n"
                ),
                &body,
            ),
        ),
        (
            "a body on GET",
            raw("GET /model HTTP/1.1", &format!("content-length: {length}\r\n"), &body),
        ),
    ];
    for bad in ["+5", "-1", "0x10", "5 5", "", "18446744073709551616", "1e3"] {
        cases.push(("a bad length", raw(line, &format!("content-length: {bad}\r\n"), &body)));
    }
    for (name, bytes) in cases {
        let answer = exchange_within(&turn.socket, &bytes, Duration::from_secs(5)).await;
        let answer = answer.unwrap_or_else(|| panic!("{name}: the connection stays open"));
        let status = Answered::parse(&answer).map(|answer| answer.status);
        assert!(status.is_none_or(|status| (400..500).contains(&status)), "{name}: {status:?}");
    }
    assert_eq!(turn.broker.summary().calls, 0);
    assert!(upstream.take().is_empty());
    answers(&turn).await;
}

#[tokio::test]
async fn a49_bare_line_feeds_are_not_line_ends() {
    let upstream = upstream().await;
    let turn = open(&upstream).await;
    let body = hello().to_string();
    let request = format!(
        "POST /model HTTP/1.1\n{}content-length: {}\n\n{body}",
        HEAD.replace("\r\n", "\n"),
        body.len()
    );
    let mixed = format!(
        "POST /model HTTP/1.1\r\n{HEAD}accept: x\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    for bytes in [request, mixed] {
        let answer =
            exchange_within(&turn.socket, bytes.as_bytes(), Duration::from_secs(15)).await.unwrap();
        let status = Answered::parse(&answer).map(|answer| answer.status);
        assert!(status.is_none_or(|status| status == 400), "{status:?}");
    }
    assert!(upstream.take().is_empty());
    answers(&turn).await;
}

#[tokio::test]
async fn a49_a_second_request_on_a_connection_is_never_read() {
    let upstream = upstream().await;
    let turn = open(&upstream).await;
    let mut bytes = post("/model", hello().to_string().as_bytes());
    bytes.extend(post("/tools/echo", b"{}"));
    bytes.extend(post("/tools/echo", b"{}"));
    let answer = exchange_within(&turn.socket, &bytes, Duration::from_secs(5)).await.unwrap();
    let text = String::from_utf8_lossy(&answer).into_owned();
    assert_eq!(text.matches("HTTP/1.1 ").count(), 1, "{text}");
    assert!(text.starts_with("HTTP/1.1 200") && text.contains("connection: close"), "{text}");
    assert_eq!((turn.broker.summary().calls, upstream.take().len()), (1, 1));
}

#[tokio::test]
async fn a49_a_body_shorter_than_its_length_is_no_call() {
    let upstream = upstream().await;
    let turn = open(&upstream).await;
    let body = hello().to_string();
    let short =
        raw("POST /model HTTP/1.1", &format!("content-length: {}\r\n", body.len() + 1), &body);
    let mut stream = UnixStream::connect(&turn.socket).await.unwrap();
    stream.write_all(&short).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut answer))
        .await
        .unwrap()
        .unwrap();
    assert!(Answered::parse(&answer).is_none_or(|answer| answer.status == 502));
    assert!(upstream.take().is_empty());
    answers(&turn).await;
}

#[tokio::test]
async fn a50_only_exact_targets_are_served() {
    let upstream = upstream().await;
    let turn = open(&upstream).await;
    let body = hello().to_string();
    let long = format!("/tools/{}", "a".repeat(70 * 1024));
    let targets = [
        "http://elsewhere/",
        "http://broker/model",
        "https://broker/model",
        "broker:80",
        "//model",
        "/model/",
        "/Model",
        "/model?x",
        "/model?",
        "/model#x",
        "/model%00",
        "/model%2f",
        "/tools/../model",
        "/tools/%2e%2e/x",
        "/tools/",
        "/tools/echo/",
        "/tools/echo;x",
        "/tools//echo",
        "/mcp/",
        "/mcp/a/../b",
        "/model;params",
        "*",
        "model",
        "/",
        "/./model",
        "\\model",
        "/model\u{e9}",
        &long,
    ];
    for target in targets {
        let bytes = raw(
            &format!("POST {target} HTTP/1.1"),
            &format!("content-length: {}\r\n", body.len()),
            &body,
        );
        let answer = exchange_within(&turn.socket, &bytes, Duration::from_secs(5)).await.unwrap();
        let status = Answered::parse(&answer).map(|answer| answer.status);
        assert!(
            status.is_none_or(|status| (400..500).contains(&status)),
            "{target:.40}: {status:?}"
        );
    }
    for method in ["CONNECT", "OPTIONS", "TRACE", "HEAD", "PUT", "post", "POSTS"] {
        let target = if method == "CONNECT" { "broker:80" } else { "/model" };
        let bytes = raw(&format!("{method} {target} HTTP/1.1"), "", "");
        let answer = exchange(&turn.socket, &bytes).await;
        assert!(answer.is_none_or(|answer| (400..500).contains(&answer.status)), "{method}");
    }
    assert_eq!(turn.broker.summary().calls, 0);
    assert!(upstream.take().is_empty());
}

#[tokio::test]
async fn a51_headers_are_allowed_by_name_and_once() {
    let upstream = upstream().await;
    let turn = open(&upstream).await;
    let body = hello().to_string();
    let with = |headers: &str| {
        raw("POST /model HTTP/1.1", &format!("content-length: {}\r\n{headers}", body.len()), &body)
    };
    for headers in [
        "connection: authorization\r\n",
        "connection: close\r\n",
        "authorization: Bearer sandbox-dummy-key\r\n",
        "Authorization: Bearer sandbox-dummy-key\r\n",
        "x-api-key: x\r\n",
        "api-key: x\r\n",
        "openai-organization: x\r\n",
        "x-forwarded-for: x\r\n",
        "cookie: a=b\r\n",
        "content-encoding: gzip\r\n",
        "x-http-method-override: GET\r\n",
        "te: trailers\r\n",
        "keep-alive: 1\r\n",
        "mcp-session-id: x\r\n",
        "accept: a\r\naccept: b\r\n",
        "host: broker\r\n",
    ] {
        let answer = exchange(&turn.socket, &with(headers)).await.unwrap();
        assert_eq!((answer.status, &*answer.text()), (403, "forbidden header"), "{headers}");
    }
    assert_eq!(
        exchange(&turn.socket, &with("accept-encoding: gzip\r\naccept: \u{e9}\r\n"))
            .await
            .unwrap()
            .status,
        200
    );
    let sent = upstream.take();
    let names: Vec<&str> = sent[0].headers.keys().map(|name| &**name).collect();
    assert_eq!(names, ["accept", "content-length", "content-type", "host"]);
    for bearer in [
        "Bearer ",
        "Bearer",
        "bearer sandbox-dummy-key",
        "Bearer sandbox-dummy-key ",
        "Bearer  sandbox-dummy-key",
    ] {
        let request = format!(
            "POST /model HTTP/1.1\r\nauthorization: {bearer}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let answer = exchange(&turn.socket, request.as_bytes()).await.unwrap();
        // White space around a value is no part of it.
        let expected = if bearer.ends_with("key ") { 200 } else { 403 };
        assert_eq!(answer.status, expected, "{bearer:?}");
    }
    // Bounds of the head: 32 lines, 16 KiB.
    let many = "accept: x\r\n".repeat(33);
    let large = format!("accept: {}\r\n", "x".repeat(17 * 1024));
    for headers in [many, large] {
        let answer =
            exchange_within(&turn.socket, &with(&headers), Duration::from_secs(5)).await.unwrap();
        assert!(Answered::parse(&answer).is_none_or(|answer| answer.status == 400));
    }
    let fits = format!("accept: {}\r\n", "x".repeat(15 * 1024));
    assert_eq!(exchange(&turn.socket, &with(&fits)).await.unwrap().status, 200);
}

#[tokio::test]
async fn a52_the_seventeenth_connection_is_closed_and_the_others_stay() {
    let upstream = upstream().await;
    let turn = open(&upstream).await;
    let mut held = Vec::new();
    for _ in 0..16 {
        let mut stream = UnixStream::connect(&turn.socket).await.unwrap();
        stream.write_all(b"POST /mod").await.unwrap();
        held.push(stream);
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut one_more = UnixStream::connect(&turn.socket).await.unwrap();
    let mut answer = Vec::new();
    let closed =
        tokio::time::timeout(Duration::from_secs(2), one_more.read_to_end(&mut answer)).await;
    assert!(closed.is_ok() && answer.is_empty());
    // One that was there first can still go on.
    let mut first = held.remove(0);
    let rest = post("/model", hello().to_string().as_bytes()).split_off("POST /mod".len());
    first.write_all(&rest).await.unwrap();
    first.read_to_end(&mut answer).await.unwrap();
    assert_eq!(Answered::parse(&answer).unwrap().status, 200);
    drop(held);
    tokio::time::sleep(Duration::from_millis(100)).await;
    answers(&turn).await;
}

#[tokio::test]
async fn a52_slow_heads_are_cut_after_ten_seconds() {
    let upstream = upstream().await;
    let turn = open(&upstream).await;
    let slow = async |bytes: &[u8]| {
        let before = Instant::now();
        let mut stream = UnixStream::connect(&turn.socket).await.unwrap();
        for byte in bytes.iter().cycle() {
            if stream.write_all(&[*byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
            if before.elapsed() > Duration::from_secs(20) {
                break;
            }
        }
        before.elapsed()
    };
    let silent = async {
        let before = Instant::now();
        let mut stream = UnixStream::connect(&turn.socket).await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
        before.elapsed()
    };
    let (dripped, silent) = tokio::join!(slow(b"POST /model HTTP/1.1\r\naccept: x"), silent);
    for time in [dripped, silent] {
        assert!(time > Duration::from_secs(9) && time < Duration::from_secs(13), "{time:?}");
    }
    answers(&turn).await;
}

#[tokio::test]
async fn a52_slow_bodies_and_answers_nobody_reads_end_with_the_request() {
    let upstream = upstream().await;
    let turn = open_with(&upstream, |settings| {
        settings.model_timeout = Duration::from_secs(1);
        settings.tools.push(tool("large", |_, _| async { Ok("x".repeat(1_000_000)) }));
    })
    .await;
    // A body that does not come: answered as a failure after the call's time.
    let before = Instant::now();
    let headers = "content-length: 100\r\n";
    let dribble = raw("POST /model HTTP/1.1", headers, "{");
    let answer = exchange_within(&turn.socket, &dribble, Duration::from_secs(10)).await.unwrap();
    assert_eq!(Answered::parse(&answer).unwrap().status, 502);
    assert!(before.elapsed() > Duration::from_secs(4) && before.elapsed() < Duration::from_secs(8));
    // An answer that nobody reads: cut, and the connection is free again.
    let before = Instant::now();
    let mut deaf = UnixStream::connect(&turn.socket).await.unwrap();
    deaf.write_all(&post("/tools/large", b"{}")).await.unwrap();
    while turn.broker.summary().answer_bytes < 1_000_000 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::sleep(Duration::from_secs(7)).await;
    let mut read = Vec::new();
    let _ = deaf.read_to_end(&mut read).await;
    assert!(read.len() < 1_000_000, "{}", read.len());
    assert!(before.elapsed() < Duration::from_secs(10));
    answers(&turn).await;
}

#[tokio::test]
async fn a52_half_closing_and_vanishing_wedge_nothing() {
    let upstream = upstream().await;
    let turn = open(&upstream).await;
    for step in 0..200 {
        let mut stream = UnixStream::connect(&turn.socket).await.unwrap();
        let request = post("/tools/echo", b"{}");
        let part = &request[..request.len() * (step % 11) / 10];
        let _ = stream.write_all(part).await;
        if step % 2 == 0 {
            let _ = stream.shutdown().await;
        }
    }
    answers_soon(&turn).await;
}

/// Connections of clients that are gone may take a moment to be noticed.
async fn answers_soon(turn: &Turn) {
    for _ in 0..100 {
        let answer = exchange(&turn.socket, &post("/tools/echo", b"{}")).await;
        if answer.is_some_and(|answer| answer.status == 200) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("no answer any more");
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

async fn storm(socket: &Path, number: usize) {
    for step in 0..number {
        let Ok(mut stream) = UnixStream::connect(socket).await else { continue };
        if step % 3 == 0 {
            let _ = stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a52_ten_thousand_connections_leave_memory_and_descriptors_flat() {
    let upstream = upstream().await;
    let turn = open(&upstream).await;
    storm(&turn.socket, 1000).await;
    answers_soon(&turn).await;
    let (descriptors_before, memory_before) = (descriptors(), resident_kib());
    storm(&turn.socket, 10_000).await;
    answers_soon(&turn).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    // Other tests of this program run beside this one.
    assert!(descriptors() < descriptors_before + 200);
    assert!(resident_kib() < memory_before + 16 * 1024, "{} {memory_before}", resident_kib());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a54_a_thousand_requests_of_the_largest_size_leave_memory_flat() {
    let upstream = upstream().await;
    let turn = open(&upstream).await;
    let largest = {
        let mut body = json!({ "messages": [], "x": "" }).to_string();
        let room = 262_144 - body.len();
        body.insert_str(body.len() - 2, &"\u{1f600}".repeat(room / 4));
        post("/tools/echo", body.as_bytes())
    };
    for _ in 0..50 {
        assert_eq!(exchange(&turn.socket, &largest).await.unwrap().status, 200);
    }
    let before = resident_kib();
    for _ in 0..900 {
        assert_eq!(exchange(&turn.socket, &largest).await.unwrap().status, 200);
    }
    assert!(resident_kib() < before + 16 * 1024, "{} {before}", resident_kib());
}

#[tokio::test]
async fn a53_nothing_the_guest_writes_changes_the_model_or_its_settings() {
    let upstream = upstream().await;
    let turn = open(&upstream).await;
    let messages = r#""messages":[{"role":"user","content":"x"}]"#;
    for more in [
        r#""model":"a","model":"b""#,
        r#""mod\u0065l":"a""#,
        r#""Model":"a","MODEL":"b""#,
        r#""m\u043edel":"a""#,
        r#""model\u0000":"a""#,
        r#""extra_body":{"model":"a"}"#,
        r#""base_url":"http://x""#,
        r#""stream":"true""#,
        r#""max_tokens":1e308,"max_completion_tokens":-0"#,
        r#""metadata":{"a":1},"n":5,"tool_choice":"auto""#,
    ] {
        for body in [format!("{{{messages},{more}}}"), format!("{{{more},{messages}}}")] {
            let answer = exchange(&turn.socket, &post("/model", body.as_bytes())).await.unwrap();
            assert_eq!(answer.status, 200, "{body}");
            let sent = upstream.take().remove(0);
            let expected = json!({
                "model": "m", "messages": [{ "role": "user", "content": "x" }], "stream": false, "max_tokens": 4096,
            });
            assert_eq!(sent.body, expected, "{body}");
        }
    }
}

#[tokio::test]
async fn a54_json_at_its_limits_is_answered_at_once() {
    let upstream = upstream().await;
    let turn = open(&upstream).await;
    let nested =
        |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth - 1), "]".repeat(depth - 1));
    let wide = format!("{{\"a\":[{}1]}}", "{},".repeat(87_000));
    let keys: Vec<String> = (0..10_000).map(|number| format!("\"{number:x}\":{number}")).collect();
    for (name, body, status) in [
        ("depth 127", nested(127), 200),
        ("depth 128", nested(128), 502),
        ("depth 100000", "[".repeat(100_000), 502),
        ("87,000 objects", wide, 200),
        ("10,000 keys", format!("{{{}}}", keys.join(",")), 200),
        ("a lone surrogate", r#"{"a":"\ud83d","b":"\ude00\ud83d"}"#.into(), 200),
        ("a byte order mark", "\u{feff}{}".into(), 200),
        ("trailing bytes", "{} x".into(), 502),
        ("a comment", "{/**/}".into(), 502),
        ("NaN", "{\"a\":NaN}".into(), 502),
        ("1e400", "{\"a\":1e400}".into(), 200),
        ("400 digits", format!("{{\"a\":{}}}", "9".repeat(400)), 200),
        ("1e-400", "{\"a\":1e-400}".into(), 200),
        ("NUL in keys and values", r#"{"\u0000":"\u0000"}"#.into(), 200),
        ("escapes", format!("{{\"a\":\"{}\"}}", r"\u0041".repeat(43_000)), 200),
    ] {
        let before = Instant::now();
        let answer = exchange(&turn.socket, &post("/tools/echo", body.as_bytes())).await.unwrap();
        assert_eq!(answer.status, status, "{name}");
        // The aim is 50 ms in a release build; this only catches what grows out of bounds.
        assert!(before.elapsed() < Duration::from_secs(2), "{name}");
    }
    let overlong =
        exchange(&turn.socket, &post("/tools/echo", b"{\"a\":\"\xc0\xaf\xff\"}")).await.unwrap();
    assert_eq!(overlong.status, 200);
}

#[tokio::test]
async fn a56_media_is_refused_wherever_content_can_stand() {
    let upstream = upstream().await;
    let turn = open(&upstream).await;
    let image =
        json!({ "type": "image_url", "image_url": { "url": "data:image/png;base64,AA==" } });
    for message in [
        json!({ "role": "user", "content": [image] }),
        json!({ "role": "user", "content": [{ "type": "text", "text": "x" }, image] }),
        json!({ "role": "tool", "tool_call_id": "a", "content": [image] }),
        json!({ "role": "user", "content": { "type": "file", "file_id": "x" } }),
        json!({ "role": "user", "content": [[image]] }),
        json!({ "role": "user", "content": "x", "audio": { "id": "x" } }),
        json!({ "role": "user", "content": "x", "image_url": "x" }),
        json!({ "role": "assistant", "content": "x", "function_call": { "name": "a", "arguments": "" } }),
        json!({ "role": "user", "content": 5 }),
    ] {
        let answer = turn.call("/model", &json!({ "messages": [message] })).await;
        assert_eq!((answer.status, &*answer.text()), (400, "text/function model payload required"));
    }
    assert!(upstream.take().is_empty());
    let text = format!(
        "![x](https://example.invalid/x.png) data:image/png;base64,{}",
        "A".repeat(200_000)
    );
    let plain = json!({ "messages": [{ "role": "user", "content": text }] });
    assert_eq!(turn.call("/model", &plain).await.status, 200);
    assert_eq!(upstream.take()[0].body["messages"][0]["content"], text);
}
