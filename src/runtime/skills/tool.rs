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
/// The most names of skills in one answer.
const LISTED_NAMES: usize = 30;

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
            format!("there is no skill {}; there are: {}", quoted(name), self.some_names())
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

    /// The names that fit any result; the prompt has all of them.
    fn some_names(&self) -> String {
        let names = self.skills.skills.keys().map(String::as_str);
        let named: Vec<&str> = names.take(LISTED_NAMES).collect();
        let more = self.skills.skills.len() - named.len();
        let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
        named.join(", ") + &rest
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::super::SkillFile;
    use super::super::page::encoded_bytes;
    use super::*;

    const LIMIT: usize = 4_096;

    fn tool() -> ReadSkill {
        let text = |text: &str| SkillFile {
            bytes: text.len() as u64,
            content: Content::Text(text.to_owned()),
        };
        let other = |bytes, content| SkillFile { bytes, content };
        let mut files = BTreeMap::from([
            (SKILL_FILE.to_owned(), text("how")),
            ("references/more.md".to_owned(), text("more")),
            ("logo.png".to_owned(), other(9, Content::Binary)),
            ("data.csv".to_owned(), other(300_000, Content::TooLarge)),
        ]);
        files.extend((0..400).map(|index| (format!("many/file-{index:03}.md"), text("x"))));
        let skill = Skill { description: "d".to_owned(), files, folder: "/skills/pdf".into() };
        let skills = Arc::new(BTreeMap::from([("pdf".to_owned(), skill)]));
        ReadSkill::new(Skills { skills })
    }

    fn read(input: Value) -> Result<String, String> {
        let Value::Object(input) = input else { panic!("an object") };
        let result = tool().read(&input, LIMIT);
        let text = result.as_ref().unwrap_or_else(|problem| problem);
        assert!(encoded_bytes(text) <= LIMIT, "{text}");
        result
    }

    fn body(input: Value) -> String {
        read(input).unwrap().split_once('\n').unwrap().1.to_owned()
    }

    #[test]
    fn the_skill_file_is_read_unless_another_is_named() {
        assert_eq!(body(json!({"name": "pdf"})), "how");
        assert_eq!(body(json!({"name": "pdf", "path": null, "offset": null})), "how");
        for path in ["references/more.md", "./references/more.md", "/references/more.md"] {
            assert_eq!(body(json!({"name": "pdf", "path": path})), "more");
        }
    }

    #[test]
    fn offsets_are_taken_as_models_write_them() {
        for offset in [json!(1), json!(1.0), json!("1"), json!(" 1 ")] {
            assert_eq!(body(json!({"name": "pdf", "offset": offset})), "ow");
        }
        for offset in [json!(-1), json!(0.5), json!("x"), json!([]), json!("NaN"), json!("inf")] {
            let problem = read(json!({"name": "pdf", "offset": offset})).unwrap_err();
            assert!(problem.contains("whole number"), "{problem}");
        }
        assert!(read(json!({"name": "pdf", "offset": 1e300})).unwrap().contains("past the end"));
    }

    #[test]
    fn refusals_say_what_would_work() {
        for (input, says) in [
            (json!({}), "name is missing"),
            (json!({"name": 1}), "name must be a string"),
            (json!({"name": "word"}), "there is no skill \"word\"; there are: pdf"),
            (json!({"name": "pdf", "path": 1}), "path must be a string"),
            (json!({"name": "pdf", "path": "absent"}), "path / lists its files"),
            (json!({"name": "pdf", "path": "../pdf/SKILL.md"}), "has no file"),
            (json!({"name": "pdf", "path": "/etc/passwd"}), "has no file"),
            (json!({"name": "pdf", "path": "logo.png"}), "binary (9 bytes)"),
            (json!({"name": "pdf", "path": "data.csv"}), "too large (300000 bytes)"),
            (json!({"name": "x".repeat(100_000)}), "there is no skill"),
            (json!({"name": "pdf", "path": "\u{1}".repeat(100_000)}), "has no file"),
        ] {
            let problem = read(input).unwrap_err();
            assert!(problem.contains(says), "{problem}");
        }
    }

    #[test]
    fn files_are_listed_in_pages() {
        let (mut listing, mut offset) = (String::new(), 0);
        loop {
            let page = read(json!({"name": "pdf", "path": "/", "offset": offset})).unwrap();
            let (head, body) = page.split_once('\n').unwrap();
            listing.push_str(body);
            let Some((_, next)) = head.split_once("next offset: ") else { break };
            offset = next.trim_end_matches(']').parse().unwrap();
        }
        let lines: Vec<&str> = listing.lines().collect();
        assert_eq!(lines.len(), 404);
        assert!(lines.contains(&"SKILL.md (3 bytes)"));
        assert!(lines.contains(&"logo.png (9 bytes, binary, not readable)"));
        assert!(lines.contains(&"data.csv (300000 bytes, too large, not readable)"));
    }
}
