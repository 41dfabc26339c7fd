//! What a chat completion request says, as far as the demonstration's model cares.

use serde_json::Value;

/// A conversation as it arrived.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Conversation {
    /// What the guest said last.
    pub message: String,
    /// The tool results since then, in order.
    pub results: Vec<ToolResult>,
    /// The functions that may be called.
    pub functions: Vec<String>,
}

/// What a call came to.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolResult {
    /// The function that was called.
    pub function: String,
    /// Its answer as the worker passed it on.
    pub content: String,
}

impl Conversation {
    /// Reads a request; none without a user message.
    pub fn read(request: &Value) -> Option<Self> {
        let messages = request.get("messages")?.as_array()?;
        let last = messages.iter().rposition(|message| role(message) == "user")?;
        let mut functions_by_id = Vec::new();
        let mut results = Vec::new();
        for message in &messages[last + 1..] {
            match role(message) {
                "assistant" => functions_by_id.extend(calls(message)),
                "tool" => {
                    let id =
                        message.get("tool_call_id").and_then(Value::as_str).unwrap_or_default();
                    let called = functions_by_id.iter().rfind(|(other, _)| other == id);
                    results.push(ToolResult {
                        function: called.map(|(_, function)| function.clone()).unwrap_or_default(),
                        content: content(message).to_owned(),
                    });
                }
                _ => {}
            }
        }
        let functions = request.get("tools").and_then(Value::as_array).into_iter().flatten();
        let functions = functions.filter_map(|tool| tool["function"]["name"].as_str());
        Some(Self {
            message: said(content(&messages[last])),
            results,
            functions: functions.map(str::to_owned).collect(),
        })
    }
}

fn role(message: &Value) -> &str {
    message.get("role").and_then(Value::as_str).unwrap_or_default()
}

fn content(message: &Value) -> &str {
    message.get("content").and_then(Value::as_str).unwrap_or_default()
}

/// Ids and functions of an assistant message's calls.
fn calls(message: &Value) -> Vec<(String, String)> {
    let calls = message.get("tool_calls").and_then(Value::as_array).into_iter().flatten();
    let calls = calls.filter_map(|call| {
        Some((call["id"].as_str()?.to_owned(), call["function"]["name"].as_str()?.to_owned()))
    });
    calls.collect()
}

/// The worker wraps what a guest says as JSON of speaker and message.
fn said(content: &str) -> String {
    let wrapped = serde_json::from_str::<Value>(content).ok();
    let message = wrapped.as_ref().and_then(|value| value.get("message")).and_then(Value::as_str);
    message.unwrap_or(content).to_owned()
}
