//! Tools as they are declared in a turn.

use crate::json::{self, Map, Value};
use crate::limits::TOOL_SPEC_DEPTH;
use crate::names::valid_tool_name;

/// A tool as the host declares it and the model sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// `[a-z][a-z0-9_]{0,47}`. The model sees it with a prefix.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// The JSON schema of its arguments: an object.
    pub parameters: Map<String, Value>,
    /// Other fields of the declaration. They travel to the model with it.
    pub other: Map<String, Value>,
}

impl ToolSpec {
    /// A declaration with nothing but the three fields.
    pub fn new(
        name: impl Into<String>,
        description: impl Into<String>,
        parameters: Map<String, Value>,
    ) -> Self {
        Self { name: name.into(), description: description.into(), parameters, other: Map::new() }
    }

    /// Whether a turn with this declaration is valid: the name, and the depth of the rest (at most
    /// [`TOOL_SPEC_DEPTH`], so that a model request holding it is never too deep).
    pub fn is_valid(&self) -> bool {
        let fields = self.parameters.values().map(|field| 1 + json::depth(field));
        let other = self.other.values().map(json::depth);
        valid_tool_name(&self.name) && fields.chain(other).all(|depth| depth <= TOOL_SPEC_DEPTH)
    }

    /// Reads a declaration; none if it is not valid.
    pub fn from_value(value: Value) -> Option<Self> {
        let Value::Object(mut other) = value else { return None };
        let Some(Value::String(name)) = other.shift_remove("name") else { return None };
        let Some(Value::String(description)) = other.shift_remove("description") else {
            return None;
        };
        let Some(Value::Object(parameters)) = other.shift_remove("parameters") else {
            return None;
        };
        Some(Self { name, description, parameters, other }).filter(Self::is_valid)
    }

    /// The declaration under another name: what the model sees as `function`.
    pub fn to_value(&self, name: &str) -> Value {
        let mut map = Map::with_capacity(3 + self.other.len());
        map.insert("name".into(), name.into());
        map.insert("description".into(), self.description.as_str().into());
        map.insert("parameters".into(), Value::Object(self.parameters.clone()));
        map.extend(self.other.clone());
        Value::Object(map)
    }
}

/// The declared tools of one MCP server.
#[derive(Debug, Clone, PartialEq)]
pub struct McpSpec {
    /// The server's name, `[a-z][a-z0-9_]{0,47}`.
    pub server: String,
    /// Its declared tools.
    pub tools: Vec<ToolSpec>,
}

impl McpSpec {
    /// Reads a server's declaration; none if it is not valid.
    pub fn from_value(value: Value) -> Option<Self> {
        let Value::Object(mut map) = value else { return None };
        let Some(Value::String(server)) = map.shift_remove("server") else { return None };
        let tools = specs(map.shift_remove("tools"))?;
        Some(Self { server, tools }).filter(Self::is_valid)
    }

    /// Whether a turn with this declaration is valid.
    pub fn is_valid(&self) -> bool {
        valid_tool_name(&self.server) && self.tools.iter().all(ToolSpec::is_valid)
    }

    pub(crate) fn to_value(&self) -> Value {
        let tools = self.tools.iter().map(|tool| tool.to_value(&tool.name)).collect();
        let fields: [(String, Value); 2] =
            [("server".into(), self.server.as_str().into()), ("tools".into(), Value::Array(tools))];
        Value::Object(fields.into_iter().collect())
    }
}

/// Reads a list of declarations; none if it is no list or one of them is not valid.
pub(crate) fn specs(value: Option<Value>) -> Option<Vec<ToolSpec>> {
    let Some(Value::Array(items)) = value else { return None };
    items.into_iter().map(ToolSpec::from_value).collect()
}
