//! Tools by schema and by name: checked, fetched and pinned at start-up.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use turnjail_broker::{Broker, CommandTool, Credential, McpServer, McpTool, McpTransport, Tool};
use turnjail_protocol::ToolSpec;
use turnjail_protocol::limits::TOOL_SPEC_DEPTH;

use super::*;
use crate::support::{Reply, Upstream};

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

#[tokio::test]
async fn tools_that_name_the_credential_stop_start_up() {
    const KEY: &str = "sk-very-secret-123456";
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("key");
    std::fs::write(&file, KEY).unwrap();
    for offered in [
        offer(KEY, json!({})),
        offer("t", json!({ "description": format!("as {KEY}") })),
        json!({ "name": "t", "description": KEY, "inputSchema": {} }),
    ] {
        let upstream = listing(vec![json!([offered])]).await;
        let mut server = json_server(&upstream, vec![McpTool::named("t")]);
        server.credential = Credential::File(file.clone());
        let error = Broker::start(with(server).await).await.unwrap_err();
        let text = format!("{error}{error:?}");
        assert!(text.contains("its own credential") && !text.contains(KEY), "{text}");
    }
}

#[tokio::test]
async fn parameters_too_deep_for_a_turn_stop_start_up() {
    let upstream = Upstream::always(Reply::Hang).await;
    for (more, starts) in [(0, true), (1, false), (3, false)] {
        let mut schema = json!({});
        while 1 + turnjail_protocol::json::depth(&schema) < TOOL_SPEC_DEPTH + more {
            schema = json!({ "items": schema });
        }
        let parameters = Map::from_iter([("items".to_owned(), schema)]);
        let server =
            json_server(&upstream, vec![McpTool::named("t").declare("d", parameters.clone())]);
        let mut with_tool = with(json_server(&upstream, vec![declared("t")])).await;
        let spec = ToolSpec::new("deep", "d", parameters);
        with_tool.tools.push(Tool::Command(CommandTool::new(spec, vec!["true".into()])));
        for settings in [with(server).await, with_tool] {
            match Broker::start(settings).await {
                Ok(broker) => {
                    let specs = [broker.tool_specs(), broker.mcp_specs()[0].tools.clone()];
                    assert!(starts && specs.concat().iter().all(ToolSpec::is_valid));
                }
                Err(error) => assert!(!starts && error.to_string().contains("deep"), "{error}"),
            }
        }
    }
}
