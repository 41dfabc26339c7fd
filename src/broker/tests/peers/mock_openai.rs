//! A third-party mock of an OpenAI-compatible endpoint.

use std::process::Command;

use serde_json::{Value, json};
use turnjail_broker::{BrokerSettings, Credential, OutputLimitField};

use crate::facts::Fact;
use crate::support::bench::Turn;
use crate::{Case, Peer, run};

pub fn trials() -> Vec<Case> {
    vec![(Fact::MockOpenai, "model: a third-party mock answers text and tool calls", || {
        run(answers());
    })]
}

async fn answers() {
    let directory = tempfile::tempdir().unwrap();
    let fixtures = directory.path().join("fixtures.json");
    let call = json!({ "name": "host_clock", "arguments": "{\"zone\":\"UTC\"}" });
    let content = json!({ "fixtures": [
        { "match": { "userMessage": "what time" }, "response": { "toolCalls": [call] } },
        { "match": { "userMessage": "hello" }, "response": { "content": "Hi there" } },
    ] });
    std::fs::write(&fixtures, content.to_string()).unwrap();
    let peer = Peer::start(|port| {
        let mut command = Command::new(Fact::MockOpenai.program());
        command.args(["--strict", "--port", &port.to_string(), "--fixtures"]).arg(&fixtures);
        command
    })
    .await;
    let url = format!("http://127.0.0.1:{}/v1/chat/completions", peer.port);
    let key = directory.path().join("key");
    std::fs::write(&key, "sk-mock-0123456789\n").unwrap();
    for limit in [OutputLimitField::MaxTokens, OutputLimitField::MaxCompletionTokens] {
        let mut settings = BrokerSettings::new("gpt-4o", &url, Credential::File(key.clone()));
        settings.allow_http = true;
        settings.output_limit_field = limit;
        settings.extra_fields.insert("temperature".into(), json!(0.5));
        let turn = Turn::with(settings).await;
        let ask = |text: &str| json!({ "messages": [{ "role": "user", "content": text }] });
        let said = turn.call("/model", &ask("hello")).await.json();
        assert_eq!(said["choices"][0]["message"]["content"], "Hi there", "{said}");
        let called: Value = turn.call("/model", &ask("what time is it")).await.json();
        let function = &called["choices"][0]["message"]["tool_calls"][0]["function"];
        assert_eq!(function["name"], "host_clock", "{called}");
        // What the mock does not know it refuses, and none of its words reach the guest.
        let unknown = turn.call("/model", &ask("something else")).await;
        assert_eq!((unknown.status, unknown.text().as_str()), (502, "broker call failed"));
    }
}
