//! Stateless endpoints, and what guests may ask of a server.

use bytes::Bytes;
use serde_json::json;

use super::*;
use crate::support::bench::Turn;
use crate::support::{Reply, Upstream};

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
