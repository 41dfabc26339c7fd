//! What a worker may ask of the model: rebuilt piece by piece, never passed on. Everything this module does
//! not name is either dropped, where the reference drops it, or refuses the request.

use std::collections::HashSet;

use serde_json::{Map, Value, json};
use turnjail_protocol::{valid_call_id, valid_function_name};

use crate::policy::ModelPolicy;
use crate::schema;

const MAX_MESSAGES: usize = 128;
const MAX_TOOLS: usize = 128;
const MAX_CALLS: usize = 8;

/// The messages and tools of a model request, in the broker's own words.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ModelInput {
    pub messages: Vec<Value>,
    pub tools: Option<Vec<Value>>,
}

/// Rebuilds a request body, or `None` when it holds anything but text and function calls.
pub(crate) fn normalize(body: &Map<String, Value>) -> Option<ModelInput> {
    let messages = bounded(body.get("messages")?, MAX_MESSAGES)?;
    let messages = messages.iter().map(message).collect::<Option<_>>()?;
    let tools = match body.get("tools") {
        None => None,
        Some(tools) => Some(tool_list(bounded(tools, MAX_TOOLS)?)?),
    };
    Some(ModelInput { messages, tools })
}

fn bounded(value: &Value, most: usize) -> Option<&Vec<Value>> {
    value.as_array().filter(|list| list.len() <= most)
}

fn message(value: &Value) -> Option<Value> {
    let message = value.as_object()?;
    let allowed = ["role", "content", "tool_calls", "tool_call_id"];
    if !message.keys().all(|key| allowed.contains(&key.as_str())) {
        return None;
    }
    let role = message.get("role")?.as_str()?;
    if !["system", "user", "assistant", "tool"].contains(&role) {
        return None;
    }
    let mut rebuilt = Map::new();
    rebuilt.insert("role".into(), role.into());
    rebuilt.insert("content".into(), message.get("content")?.as_str()?.into());
    if let Some(calls) = message.get("tool_calls") {
        if role != "assistant" {
            return None;
        }
        let calls = bounded(calls, MAX_CALLS)?.iter().map(call).collect::<Option<Vec<_>>>()?;
        rebuilt.insert("tool_calls".into(), calls.into());
    }
    match (role, message.get("tool_call_id")) {
        ("tool", Some(Value::String(id))) if valid_call_id(id) => {
            rebuilt.insert("tool_call_id".into(), id.as_str().into());
        }
        ("tool", _) | (_, Some(_)) => return None,
        _ => {}
    }
    Some(rebuilt.into())
}

fn call(value: &Value) -> Option<Value> {
    let call = value.as_object()?;
    let function = call.get("function")?.as_object()?;
    let id = call.get("id")?.as_str().filter(|id| valid_call_id(id))?;
    let name = function.get("name")?.as_str().filter(|name| valid_function_name(name))?;
    let arguments = function.get("arguments")?.as_str()?;
    is_function(call).then(|| {
        json!({
            "id": id,
            "type": "function",
            "function": { "name": name, "arguments": arguments },
        })
    })
}

fn is_function(value: &Map<String, Value>) -> bool {
    value.get("type").and_then(Value::as_str) == Some("function")
}

fn tool_list(tools: &[Value]) -> Option<Vec<Value>> {
    let mut names = HashSet::new();
    tools.iter().map(|value| tool(value, &mut names)).collect()
}

fn tool<'a>(value: &'a Value, names: &mut HashSet<&'a str>) -> Option<Value> {
    let tool = value.as_object()?;
    let function = tool.get("function")?.as_object()?;
    let name = function.get("name")?.as_str().filter(|name| valid_function_name(name))?;
    let description = function.get("description")?.as_str()?;
    let parameters = function.get("parameters")?.as_object()?;
    schema::check(parameters).ok()?;
    (is_function(tool) && names.insert(name)).then(|| {
        json!({
            "type": "function",
            "function": { "name": name, "description": description, "parameters": parameters },
        })
    })
}

/// The request that is sent on: the worker's messages and tools, everything else as the operator pinned it.
pub(crate) fn request(input: ModelInput, policy: &ModelPolicy) -> Value {
    let mut request = Map::new();
    request.insert("model".to_owned(), policy.model.as_str().into());
    request.insert("messages".to_owned(), input.messages.into());
    if let Some(tools) = input.tools {
        request.insert("tools".to_owned(), tools.into());
    }
    request.insert("stream".to_owned(), false.into());
    request.insert(policy.limit_field.to_owned(), policy.max_output_tokens.into());
    request.extend(policy.extra_fields.clone());
    request.into()
}
