//! Carrying out the model's calls.

use std::collections::BTreeSet;

use turnjail_protocol::json::{self, Map, Value};
use turnjail_protocol::limits::{CALL_ARGUMENTS_BYTES, CALL_TEXT_BYTES, MCP_ARGUMENTS_DEPTH};
use turnjail_protocol::offer::{Function, INVALID_TOOL, Offer};
use turnjail_protocol::{TOOL_REFUSED, measure};

use crate::answer::Call;
use crate::conversation::{Group, Outcome, Transcript};
use crate::files::Files;
use crate::memory::{Memory, Refused};
use crate::transport::Request;

/// Stands in the transcript for arguments that are too large or no text.
const OMITTED: &str = r#"{"omitted":"Invalid or large arguments omitted from context."}"#;

/// What carries out calls, and what it has seen.
pub struct Tools<'a> {
    /// The functions offered.
    pub offer: &'a Offer<'a>,
    /// The memory.
    pub memory: Memory<'a>,
    /// The workspace's files, if the turn has them.
    pub files: Option<Files<'a>>,
    /// The broker's socket.
    pub broker: &'a [u8],
    /// The JSON bytes of a result.
    pub result_bytes: usize,
    /// The ids in the transcript.
    pub used_ids: BTreeSet<String>,
}

impl Tools<'_> {
    /// Carries out the calls of the model's answer number `step`, one after the other, in order.
    pub fn carry_out(&mut self, step: usize, text: &str, calls: &[Call]) -> Group {
        let ids: Vec<String> = calls
            .iter()
            .enumerate()
            .map(|(index, call)| self.unique_id(call.id.as_deref(), step, index))
            .collect();
        let transcripts = calls.iter().zip(&ids).map(|(call, id)| Transcript {
            id,
            name: self.declared_name(call),
            arguments: kept_arguments(call),
        });
        let mut group = Group::new(&measure::cut(text, CALL_TEXT_BYTES), transcripts);
        for (call, id) in calls.iter().zip(ids) {
            let result = self.call(call).unwrap_or_else(|Refused| TOOL_REFUSED.into());
            let content = measure::cut(&result, self.result_bytes).into_owned();
            group.push(Outcome { id, content });
        }
        group
    }

    /// The id asked for, if no other call of the turn has it, else a made-up one.
    fn unique_id(&mut self, wanted: Option<&str>, step: usize, index: usize) -> String {
        let mut id = match wanted {
            Some(wanted) if !self.used_ids.contains(wanted) => wanted.to_owned(),
            _ => format!("call_{step}_{index}"),
        };
        let mut suffix = 0;
        while self.used_ids.contains(&id) {
            suffix += 1;
            id = format!("call_{step}_{index}_{suffix}");
        }
        self.used_ids.insert(id.clone());
        id
    }

    fn declared_name<'c>(&self, call: &'c Call) -> &'c str {
        call.name.as_deref().filter(|name| self.offer.get(name).is_some()).unwrap_or(INVALID_TOOL)
    }

    fn call(&mut self, call: &Call) -> Result<String, Refused> {
        let function = self.offer.get(self.declared_name(call)).ok_or(Refused)?;
        let arguments = call.arguments.as_deref().ok_or(Refused)?;
        let Ok(Value::Object(input)) = json::parse(arguments) else { return Err(Refused) };
        match function {
            Function::InvalidTool => Err(Refused),
            Function::MemorySet => self.memory.set(&input),
            Function::MemoryGet => self.memory.get(&input),
            Function::MemoryRemove => self.memory.remove(&input),
            Function::FilesList
            | Function::FilesRead
            | Function::FilesWrite
            | Function::FilesDelete => {
                let files = self.files.as_mut().ok_or(Refused)?;
                Ok(files.call(function, &input, self.result_bytes))
            }
            Function::Host { tool } => self.ask(&format!("/tools/{tool}"), &Value::Object(input)),
            Function::Mcp { server, tool } => {
                self.ask(&format!("/mcp/{server}"), &mcp_call(tool, input)?)
            }
        }
    }

    /// The broker's answer, whatever JSON it is, as JSON text.
    fn ask(&self, route: &str, body: &Value) -> Result<String, Refused> {
        let request = Request::with_body(route, json::stringify(body).as_bytes());
        let answer = request.send(self.broker).map_err(|_| Refused)?;
        let value = json::parse(&String::from_utf8_lossy(&answer)).map_err(|_| Refused)?;
        drop(answer);
        Ok(json::stringify(&value))
    }
}

fn kept_arguments(call: &Call) -> &str {
    let fits = |text: &&str| measure::json_bytes(text) <= CALL_ARGUMENTS_BYTES;
    call.arguments.as_deref().filter(fits).unwrap_or(OMITTED)
}

fn mcp_call(tool: &str, input: Map<String, Value>) -> Result<Value, Refused> {
    let arguments = Value::Object(input);
    if json::depth(&arguments) > MCP_ARGUMENTS_DEPTH {
        return Err(Refused);
    }
    let params = object([("name", tool.into()), ("arguments", arguments)]);
    Ok(object([("method", "tools/call".into()), ("params", params)]))
}

fn object(fields: [(&str, Value); 2]) -> Value {
    Value::Object(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}
