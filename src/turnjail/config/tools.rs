//! `[[tools]]`: what the guest's model may have done on the host.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};
use turnjail_protocol::valid_tool_name;

use super::document::{Item, Raw};
use super::model::seconds;
use super::paths::{Base, path};
use super::secret::{SecretSource, argv};
use super::section::Section;
use super::setting::Setting;

/// The longest description, in bytes; all of them together have this budget.
const DESCRIPTION_BYTES: usize = turnjail_protocol::limits::TOOL_DESCRIPTIONS_BYTES;
/// What a tool may be called.
pub(super) const TOOL_NAME: &str = "1 to 48 of a-z, 0-9 and _, beginning with a letter";

/// A host tool.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// The JSON schema of its arguments.
    pub parameters: Map<String, Value>,
    /// Whether the broker checks arguments against the schema.
    pub validate: bool,
    /// What runs.
    pub kind: ToolKind,
}

/// What a call of a host tool does.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolKind {
    /// Starts a program; never a shell.
    Command {
        /// The program and its arguments.
        argv: Vec<String>,
        /// Its environment beside PATH.
        environment: Vec<(String, Text)>,
        /// How long it may take.
        timeout: Duration,
    },
    /// Asks a URL.
    Url {
        /// The URL.
        url: String,
        /// Its bearer token.
        api_key: SecretSource,
    },
    /// Asks an HTTP server on a Unix socket.
    Socket {
        /// The socket.
        socket: PathBuf,
        /// The path of the request.
        request: String,
        /// Its bearer token.
        api_key: SecretSource,
    },
}

/// A variable in the environment of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Text {
    /// Written in the file.
    Plain(String),
    /// From a source, at start-up.
    Secret(SecretSource),
}

impl Tool {
    pub(super) fn read(section: Section<'_>, base: &Base<'_>) -> Option<Self> {
        let name = tool_name(&section, "name").required();
        let description = section.text("description", DESCRIPTION_BYTES).required();
        let parameters = parameters(&section);
        let validate = section.flag("validate").or(false);
        let kind = ToolKind::read(&section, base);
        section.finish();
        let parameters = parameters.unwrap_or_else(no_parameters);
        Some(Self { name: name?, description: description?, parameters, validate, kind: kind? })
    }
}

impl ToolKind {
    fn read(section: &Section<'_>, base: &Base<'_>) -> Option<Self> {
        let given = ["command", "url", "socket"].map(|key| section.has(key));
        match given {
            [true, false, false] => {
                let argv = command(section).required();
                let timeout = seconds(section.integer("timeout_s", 1..=600).or(60));
                let environment = environment(section.section("environment"), base);
                Some(Self::Command { argv: argv?, environment, timeout })
            }
            [false, true, false] => {
                let url = section.text("url", 2048).required();
                let api_key = SecretSource::read_or_none(section, "api_key", base);
                Some(Self::Url { url: url?, api_key: api_key? })
            }
            [false, false, true] => {
                let socket = path(section, "socket", base).map(ShownPath).required();
                let request = section.text("path", 2048).or("/".to_owned());
                let api_key = SecretSource::read_or_none(section, "api_key", base);
                Some(Self::Socket { socket: socket?.0, request, api_key: api_key? })
            }
            _ => {
                let name = section.name("command");
                let what =
                    if given == [false; 3] { "is missing" } else { "is not the only way given" };
                section.find(
                    section.origin(),
                    format_args!("{name} {what}"),
                    "give exactly one of command, url and socket",
                );
                for key in
                    ["command", "url", "socket", "timeout_s", "environment", "api_key", "path"]
                {
                    section.skip(key);
                }
                None
            }
        }
    }
}

/// A path that is shown as text.
#[derive(Clone)]
struct ShownPath(PathBuf);

impl From<ShownPath> for Value {
    fn from(path: ShownPath) -> Self {
        path.0.display().to_string().into()
    }
}

/// A tool's name.
pub(super) fn tool_name<'s, 'a>(
    section: &'s Section<'a>,
    key: &'static str,
) -> Setting<'s, 'a, String> {
    section.value(key, TOOL_NAME, |raw| match raw {
        Raw::Text(text) if valid_tool_name(text) => Some(text.clone()),
        _ => None,
    })
}

/// A program and its arguments.
pub(super) fn command<'s, 'a>(section: &'s Section<'a>) -> Setting<'s, 'a, Vec<String>> {
    section.value("command", "an array of strings: a program and its arguments", |raw| match raw {
        Raw::List(items) => argv(items),
        _ => None,
    })
}

/// A schema written as a TOML table or as JSON text.
pub(super) fn parameters(section: &Section<'_>) -> Option<Map<String, Value>> {
    let schema =
        section.value("parameters", "a JSON schema: a table, or a string of JSON", |raw| {
            let value = match raw {
                Raw::Table(_) => raw.to_json(),
                Raw::Text(text) => serde_json::from_str(text).ok()?,
                _ => return None,
            };
            match value {
                Value::Object(map) => Some(map),
                _ => None,
            }
        });
    schema.map(Value::Object).optional().and_then(|value| match value {
        Value::Object(map) => Some(map),
        _ => None,
    })
}

fn no_parameters() -> Map<String, Value> {
    let mut schema = Map::new();
    schema.insert("type".into(), "object".into());
    schema.insert("properties".into(), Map::new().into());
    schema
}

/// The environment of a command: plain text, or sources of secrets.
pub(super) fn environment(section: Section<'_>, base: &Base<'_>) -> Vec<(String, Text)> {
    let mut variables = Vec::new();
    for (name, item) in section.entries() {
        match variable(item, base) {
            Some(text) if !name.is_empty() && !name.contains(['=', '\0']) => {
                let shown = match &text {
                    Text::Plain(text) => text.as_str().into(),
                    Text::Secret(source) => source.shown(),
                };
                section.record(name, shown, item.origin.clone());
                variables.push((name.clone(), text));
            }
            _ => section.find(
                item.origin.clone(),
                format_args!("{} is no environment variable", section.name(name)),
                r#"set it to a string, or for a secret to { env = "NAME" } or { file = "PATH" }"#,
            ),
        }
    }
    variables
}

fn variable(item: &Item, base: &Base<'_>) -> Option<Text> {
    match &item.value {
        Raw::Text(text) if !text.contains('\0') => Some(Text::Plain(text.clone())),
        // A command would have to run once for every start, which nobody would expect here.
        Raw::Table(_) => match SecretSource::of(item, base)? {
            SecretSource::Command(_) => None,
            source => Some(Text::Secret(source)),
        },
        _ => None,
    }
}
