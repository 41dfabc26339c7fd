//! Bodies at their limits, and bodies that want more than they may have.

use std::time::{Duration, Instant};

use serde_json::json;

use super::*;
use crate::support::{exchange, post};

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
