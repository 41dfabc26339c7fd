//! Requests that two readers could read differently, and what may stand in a request at all.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::*;
use crate::support::bench::hello;
use crate::support::{Answered, exchange, exchange_within, post};

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
            "a line feed at a value's start",
            raw(line, &format!("accept:\nx-evil: 1\r\ncontent-length: {length}\r\n"), &body),
        ),
        (
            "a line feed at a value's end",
            raw(line, &format!("accept: x\n\r\ncontent-length: {length}\r\n"), &body),
        ),
        (
            "a length behind a line feed",
            raw(
                line,
                &format!("accept:\ncontent-length: {length}\r\ncontent-length: {length}\r\n"),
                &body,
            ),
        ),
        (
            "a carriage return at a value's end",
            raw(line, &format!("accept: x\r\r\ncontent-length: {length}\r\n"), &body),
        ),
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
