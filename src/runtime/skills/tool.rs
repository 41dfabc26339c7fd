//! `host_read_skill`: the model reads skills in pages.

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use turnjail_broker::{HostTool, ToolContext, ToolError};
use turnjail_protocol::ToolSpec;

use super::{Content, SKILL_FILE, Skill, Skills, page::page};

/// The tool's name; the model sees it with `host_` before it.
pub(crate) const READ_SKILL: &str = "read_skill";

/// The path that lists a skill's files.
const LISTING: &str = "/";
/// The most characters of the model's own words that an answer repeats.
const QUOTED_CHARS: usize = 100;

#[derive(Debug)]
pub(super) struct ReadSkill {
    spec: ToolSpec,
    skills: Skills,
}

impl ReadSkill {
    pub fn new(skills: Skills) -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "The skill's name."},
                "path": {"type": "string", "description": "A file of the skill, SKILL.md if omitted; / lists them."},
                "offset": {"type": "integer", "minimum": 0, "description": "Where to read on: the next offset of the last page."},
            },
            "required": ["name"],
            "additionalProperties": false,
        });
        let Value::Object(parameters) = parameters else {
            unreachable!("an object is written above")
        };
        let description = "Read a skill's instructions or another file of it, a page at a time.";
        Self { spec: ToolSpec::new(READ_SKILL, description, parameters), skills }
    }

    /// The page, or a sentence that the model can act on.
    fn read(&self, input: &Map<String, Value>, limit: usize) -> Result<String, String> {
        let name = text(input, "name")?.ok_or("name is missing: the skill to read")?;
        let path = text(input, "path")?.unwrap_or(SKILL_FILE);
        let offset = offset(input)?;
        let skill = self.skills.skills.get(name).ok_or_else(|| {
            let names: Vec<&str> = self.skills.skills.keys().map(String::as_str).collect();
            format!("there is no skill {}; there are: {}", quoted(name), names.join(", "))
        })?;
        if path.is_empty() || path == LISTING {
            return Ok(page(&format!("files of skill {name}"), &listing(skill), offset, limit));
        }
        let path = path.trim_start_matches("./").trim_start_matches('/');
        let file = skill.files.get(path).ok_or_else(|| {
            format!("skill {name} has no file {}; path {LISTING} lists its files", quoted(path))
        })?;
        match &file.content {
            Content::Text(text) => {
                Ok(page(&format!("{path} of skill {name}"), text, offset, limit))
            }
            Content::Binary => {
                Err(format!("{path} is binary ({} bytes) and not readable", file.bytes))
            }
            Content::TooLarge => {
                Err(format!("{path} is too large ({} bytes) to be read", file.bytes))
            }
        }
    }
}

#[async_trait]
impl HostTool for ReadSkill {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(
        &self,
        input: Map<String, Value>,
        context: &ToolContext,
    ) -> Result<String, ToolError> {
        Ok(self
            .read(&input, context.tool_result_bytes)
            .unwrap_or_else(|problem| format!("Not read: {problem}.")))
    }
}

/// One line for each file.
fn listing(skill: &Skill) -> String {
    let lines: Vec<String> = skill
        .files
        .iter()
        .map(|(path, file)| {
            let note = match file.content {
                Content::Text(_) => "",
                Content::Binary => ", binary, not readable",
                Content::TooLarge => ", too large, not readable",
            };
            format!("{path} ({} bytes{note})", file.bytes)
        })
        .collect();
    lines.join("\n")
}

fn text<'a>(input: &'a Map<String, Value>, key: &str) -> Result<Option<&'a str>, String> {
    match input.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("{key} must be a string")),
    }
}

/// A whole number, also where the model writes it as `3.0` or as text.
fn offset(input: &Map<String, Value>) -> Result<usize, String> {
    let number = match input.get("offset") {
        None | Some(Value::Null) => return Ok(0),
        Some(Value::String(text)) => text.trim().parse().ok(),
        Some(value) => value.as_f64(),
    };
    number
        .filter(|number: &f64| number.is_finite() && *number >= 0.0 && number.fract() == 0.0)
        .map(|number| number as usize)
        .ok_or_else(|| "offset must be a whole number, at least 0".to_owned())
}

/// The model's own words, short enough for any result.
fn quoted(words: &str) -> String {
    let short: String = words.chars().take(QUOTED_CHARS).collect();
    format!("{short:?}")
}
