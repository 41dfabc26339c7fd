//! The model's answer: text, or calls.

use turnjail_protocol::json::{self, Map, Value};
use turnjail_protocol::limits::{CALLS_PER_MESSAGE, REPLY_UNITS};
use turnjail_protocol::{WorkerCode, measure, text, valid_call_id, valid_function_name};

/// What the first choice of an answer says.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// The end of the turn: the trimmed text.
    Final(String),
    /// Calls to carry out.
    Calls {
        /// What the model says beside them; empty if it says nothing.
        text: String,
        /// 1 to [`CALLS_PER_MESSAGE`], in order.
        calls: Vec<Call>,
    },
}

/// A call as the model asked for it, as far as it is usable.
#[derive(Debug, PartialEq, Eq)]
pub struct Call {
    /// Its id, if it is valid.
    pub id: Option<String>,
    /// The function's name, if it is valid.
    pub name: Option<String>,
    /// The arguments, if they are a string: supposedly JSON.
    pub arguments: Option<String>,
}

/// Reads the body of a model answer.
pub fn read(body: &[u8]) -> Result<Answer, WorkerCode> {
    let value =
        json::parse(&String::from_utf8_lossy(body)).map_err(|_| WorkerCode::ModelInvalid)?;
    let mut message = message(value).ok_or(WorkerCode::ModelInvalid)?;
    let content = match message.swap_remove("content") {
        Some(Value::String(content)) => Some(content),
        _ => None,
    };
    match message.swap_remove("tool_calls") {
        Some(Value::Array(calls)) if calls.len() > CALLS_PER_MESSAGE => {
            Err(WorkerCode::TooManyCalls)
        }
        Some(Value::Array(calls)) if !calls.is_empty() => Ok(Answer::Calls {
            text: content.unwrap_or_default(),
            calls: calls.into_iter().map(call).collect(),
        }),
        _ => final_text(content.as_deref()).map(Answer::Final).ok_or(WorkerCode::NoFinalText),
    }
}

fn message(answer: Value) -> Option<Map<String, Value>> {
    let Value::Object(mut answer) = answer else { return None };
    let Value::Array(choices) = answer.swap_remove("choices")? else { return None };
    let Value::Object(mut choice) = choices.into_iter().next()? else { return None };
    match choice.swap_remove("message")? {
        Value::Object(message) => Some(message),
        _ => None,
    }
}

fn final_text(content: Option<&str>) -> Option<String> {
    let content = content?;
    let trimmed = text::trim(content);
    // The length counts before trimming.
    let fits = !trimmed.is_empty() && measure::utf16_len(content) <= REPLY_UNITS;
    fits.then(|| trimmed.to_owned())
}

fn call(value: Value) -> Call {
    let Value::Object(mut call) = value else {
        return Call { id: None, name: None, arguments: None };
    };
    let mut function = match call.swap_remove("function") {
        Some(Value::Object(function)) => function,
        _ => Map::new(),
    };
    Call {
        id: string(call.swap_remove("id")).filter(|id| valid_call_id(id)),
        name: string(function.swap_remove("name")).filter(|name| valid_function_name(name)),
        arguments: string(function.swap_remove("arguments")),
    }
}

fn string(value: Option<Value>) -> Option<String> {
    match value {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}
