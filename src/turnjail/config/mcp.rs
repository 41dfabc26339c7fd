//! `[[mcp]]`: MCP servers and the tools of theirs that may be called.

use serde_json::{Map, Value};

use super::paths::Base;
use super::secret::SecretSource;
use super::section::{Entry, Section};
use super::tools::{Text, command, environment, parameters, tool_name};

/// An MCP server.
#[derive(Debug, Clone, PartialEq)]
pub struct McpServer {
    /// The name in its route.
    pub name: String,
    /// How to talk to it.
    pub transport: Transport,
    /// Its credential.
    pub api_key: SecretSource,
    /// The header that carries the credential; none is `authorization: Bearer`.
    pub credential_header: Option<String>,
    /// Whether all channels share one session.
    pub shared: bool,
    /// The tools that may be called.
    pub tools: Vec<McpTool>,
}

/// How to talk to an MCP server.
#[derive(Debug, Clone, PartialEq)]
pub enum Transport {
    /// Streamable HTTP with sessions.
    Http(String),
    /// A stateless endpoint that answers with plain JSON.
    Json(String),
    /// A program on the host, over its standard streams.
    Command {
        /// The program and its arguments.
        argv: Vec<String>,
        /// Its environment beside PATH.
        environment: Vec<(String, Text)>,
    },
}

/// A tool of an MCP server.
#[derive(Debug, Clone, PartialEq)]
pub struct McpTool {
    /// The name that guests use; none is made from the server's own.
    pub name: Option<String>,
    /// The server's own name for it.
    pub remote: String,
    /// What the model is told; none is asked of the server at start-up.
    pub declared: Option<(String, Map<String, Value>)>,
    /// Whether the broker checks arguments against the schema.
    pub validate: bool,
}

impl McpServer {
    pub(super) fn read(section: Section<'_>, base: &Base<'_>) -> Option<Self> {
        let name = tool_name(&section, "name").required();
        let transport = Transport::read(&section, base);
        let api_key = SecretSource::read_or_none(&section, "api_key", base);
        let credential_header = section.text("credential_header", 256).optional();
        let shared = section.choice("scope", &[("channel", false), ("host", true)], false);
        let tools = section.texts_or_sections("tools");
        if tools.is_empty() {
            let name = section.name("tools");
            section.find(
                section.origin(),
                format_args!("{name} names no tool"),
                format_args!("set {name} to the names of the tools that guests may call"),
            );
        }
        let tools = tools.into_iter().map(|entry| McpTool::read(entry, &section));
        let tools = tools.collect::<Vec<_>>();
        section.finish();
        Some(Self {
            name: name?,
            transport: transport?,
            api_key: api_key?,
            credential_header,
            shared,
            tools: tools.into_iter().collect::<Option<_>>()?,
        })
    }
}

impl Transport {
    fn read(section: &Section<'_>, base: &Base<'_>) -> Option<Self> {
        match (section.has("command"), section.has("url")) {
            (true, false) => {
                let argv = command(section).required();
                let environment = environment(section.section("environment"), base);
                Some(Self::Command { argv: argv?, environment })
            }
            (false, true) => {
                let url = section.text("url", 2048).required();
                let plain = section.choice("transport", &[("http", false), ("json", true)], false);
                let transport = if plain { Self::Json } else { Self::Http };
                url.map(transport)
            }
            (both, _) => {
                let what = if both { "is not the only way given" } else { "is missing" };
                section.find(
                    section.origin(),
                    format_args!("{} {what}", section.name("url")),
                    "give exactly one of url and command",
                );
                for key in ["command", "url", "transport", "environment"] {
                    section.skip(key);
                }
                None
            }
        }
    }
}

impl McpTool {
    fn read(entry: Entry<'_>, server: &Section<'_>) -> Option<Self> {
        let section = match entry {
            Entry::Text(remote, name, origin) if remote.is_empty() => {
                server.find(origin, format_args!("{name} is empty"), "name a tool of the server");
                return None;
            }
            Entry::Text(remote, name, origin) => {
                server.record_full(name, remote.as_str().into(), origin);
                return Some(Self { name: None, remote, declared: None, validate: false });
            }
            Entry::Section(section) => section,
        };
        let name = tool_name(&section, "name").optional();
        let remote = section.text("remote", 256).optional().or_else(|| name.clone());
        let description = section.text("description", 32_768).optional();
        let schema = parameters(&section);
        let validate = section.flag("validate").or(false);
        if remote.is_none() {
            section.find(
                section.origin(),
                format_args!("{} is missing", section.name("name")),
                "set name to what guests call the tool, or remote to what its server does",
            );
        }
        let declared = match (description, schema) {
            (Some(description), Some(schema)) => Some((description, schema)),
            (None, None) => None,
            _ => {
                section.find(
                    section.origin(),
                    format_args!("{} is declared by half", section.name("description")),
                    "give both description and parameters, or neither to ask the server for them",
                );
                None
            }
        };
        section.finish();
        Some(Self { name, remote: remote?, declared, validate })
    }
}
