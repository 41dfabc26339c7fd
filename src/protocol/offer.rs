//! The functions that a worker offers to the model: its own, and the turn's tools under prefixes.
//!
//! Here rather than in the worker because the host checks at start-up what every turn will offer.

use std::collections::BTreeMap;

use crate::json;
use crate::limits::TOOL_DESCRIPTIONS_BYTES;
use crate::spec::ToolSpec;
use crate::turn::Turn;

/// What a function of the model stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function<'a> {
    /// The placeholder for malformed and unknown calls; calling it is refused.
    InvalidTool,
    /// `memory_set`.
    MemorySet,
    /// `memory_get`.
    MemoryGet,
    /// `memory_remove`.
    MemoryRemove,
    /// `files_list`.
    FilesList,
    /// `files_read`.
    FilesRead,
    /// `files_write`.
    FilesWrite,
    /// `files_delete`.
    FilesDelete,
    /// `host_<tool>`: the broker's `/tools/<tool>`.
    Host {
        /// The tool's declared name.
        tool: &'a str,
    },
    /// `mcp_<index>_<tool>`: a `tools/call` at the broker's `/mcp/<server>`.
    Mcp {
        /// The server's name.
        server: &'a str,
        /// The tool's declared name.
        tool: &'a str,
    },
}

/// The name under which malformed and unknown calls stand in the transcript.
pub const INVALID_TOOL: &str = "invalid_tool";

const OWN: [(&str, Function<'static>, &str); 4] = [
    (
        INVALID_TOOL,
        Function::InvalidTool,
        r#"{"name":"invalid_tool","description":"A malformed or unavailable prior tool call was refused; choose a declared tool instead.","parameters":{"type":"object","properties":{},"additionalProperties":false}}"#,
    ),
    (
        "memory_set",
        Function::MemorySet,
        r#"{"name":"memory_set","description":"Remember a speaker fact or a channel note. Speaker entries belong to the current speaker.","parameters":{"type":"object","properties":{"scope":{"type":"string","enum":["speaker","channel"]},"key":{"type":"string"},"text":{"type":"string"}},"required":["scope","key","text"],"additionalProperties":false}}"#,
    ),
    (
        "memory_get",
        Function::MemoryGet,
        r#"{"name":"memory_get","description":"Read or search current-speaker facts or shared channel notes. Omit key to list entries.","parameters":{"type":"object","properties":{"scope":{"type":"string","enum":["speaker","channel"]},"key":{"type":"string"},"query":{"type":"string"}},"required":["scope"],"additionalProperties":false}}"#,
    ),
    (
        "memory_remove",
        Function::MemoryRemove,
        r#"{"name":"memory_remove","description":"Forget one current-speaker fact or shared channel note.","parameters":{"type":"object","properties":{"scope":{"type":"string","enum":["speaker","channel"]},"key":{"type":"string"}},"required":["scope","key"],"additionalProperties":false}}"#,
    ),
];

const FILES: [(&str, Function<'static>, &str); 4] = [
    (
        "files_list",
        Function::FilesList,
        r#"{"name":"files_list","description":"List a directory of the shared workspace files: names, kinds and sizes in bytes. Omit path for the top.","parameters":{"type":"object","properties":{"path":{"type":"string"}},"additionalProperties":false}}"#,
    ),
    (
        "files_read",
        Function::FilesRead,
        r#"{"name":"files_read","description":"Read a text file of the workspace, a page at a time: pass nextOffset of the last page as offset for the next one.","parameters":{"type":"object","properties":{"path":{"type":"string"},"offset":{"type":"integer","minimum":0},"limit":{"type":"integer","minimum":1}},"required":["path"],"additionalProperties":false}}"#,
    ),
    (
        "files_write",
        Function::FilesWrite,
        r#"{"name":"files_write","description":"Write a text file of the workspace, replacing it, or append to it. Missing directories are made. Paths are relative, with / between parts.","parameters":{"type":"object","properties":{"path":{"type":"string"},"text":{"type":"string"},"append":{"type":"boolean"}},"required":["path","text"],"additionalProperties":false}}"#,
    ),
    (
        "files_delete",
        Function::FilesDelete,
        r#"{"name":"files_delete","description":"Delete a file or an empty directory of the workspace.","parameters":{"type":"object","properties":{"path":{"type":"string"}},"required":["path"],"additionalProperties":false}}"#,
    ),
];

/// All functions of a turn.
#[derive(Debug)]
pub struct Offer<'a> {
    functions: BTreeMap<String, Function<'a>>,
    json: String,
}

/// The descriptions of a turn's functions are over [`TOOL_DESCRIPTIONS_BYTES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DescriptionsTooLarge {
    /// Their size in JSON bytes.
    pub bytes: usize,
}

impl std::fmt::Display for DescriptionsTooLarge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { bytes } = self;
        write!(f, "the tool descriptions have {bytes} bytes, over {TOOL_DESCRIPTIONS_BYTES}")
    }
}

impl std::error::Error for DescriptionsTooLarge {}

impl<'a> Offer<'a> {
    /// The functions that a worker offers in `turn`: its own (the file tools only with `files`), then
    /// the host's, then those of MCP servers. Of two declarations with one name the later counts, at
    /// the place of the first.
    ///
    /// # Errors
    /// The descriptions are too large for a request.
    pub fn new(turn: &'a Turn) -> Result<Self, DescriptionsTooLarge> {
        let files = if turn.files.is_some() { &FILES[..] } else { &[] };
        let mut functions = BTreeMap::new();
        let mut declared: Vec<Declared<'a>> = Vec::new();
        let mut places = BTreeMap::new();
        for (name, function, json) in OWN.iter().chain(files) {
            functions.insert((*name).to_owned(), *function);
            declared.push(Declared::Own(json));
        }
        for (name, function, spec) in turns_own(turn) {
            let place = *places.entry(name.clone()).or_insert(declared.len());
            let entry = Declared::Turns(name.clone(), spec);
            match declared.get_mut(place) {
                Some(earlier) => *earlier = entry,
                None => declared.push(entry),
            }
            functions.insert(name, function);
        }
        let json = write(&declared);
        if json.len() > TOOL_DESCRIPTIONS_BYTES {
            return Err(DescriptionsTooLarge { bytes: json.len() });
        }
        Ok(Self { functions, json })
    }

    /// What a name stands for, if it is offered.
    pub fn get(&self, name: &str) -> Option<Function<'a>> {
        self.functions.get(name).copied()
    }

    /// How many functions there are; the broker takes
    /// [`REQUEST_ITEMS`](crate::limits::REQUEST_ITEMS).
    pub fn count(&self) -> usize {
        self.functions.len()
    }

    /// The `tools` of a model request, as JSON.
    pub fn json(&self) -> &str {
        &self.json
    }
}

enum Declared<'a> {
    Own(&'static str),
    Turns(String, &'a ToolSpec),
}

fn turns_own(turn: &Turn) -> impl Iterator<Item = (String, Function<'_>, &ToolSpec)> {
    let host = turn
        .tools
        .iter()
        .map(|spec| (format!("host_{}", spec.name), Function::Host { tool: &spec.name }, spec));
    let mcp = turn.mcp.iter().enumerate().flat_map(|(index, server)| {
        server.tools.iter().map(move |spec| {
            let function = Function::Mcp { server: &server.server, tool: &spec.name };
            (format!("mcp_{index}_{}", spec.name), function, spec)
        })
    });
    host.chain(mcp)
}

fn write(declared: &[Declared<'_>]) -> String {
    let mut out = Vec::with_capacity(2048);
    for (index, entry) in declared.iter().enumerate() {
        out.push(if index == 0 { b'[' } else { b',' });
        out.extend_from_slice(br#"{"type":"function","function":"#);
        match entry {
            Declared::Own(json) => out.extend_from_slice(json.as_bytes()),
            Declared::Turns(name, spec) => json::push(&mut out, &spec.to_value(name)),
        }
        out.push(b'}');
    }
    out.push(b']');
    String::from_utf8(out).expect("JSON is written as UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::{Map, parse, stringify};
    use crate::{Files, McpSpec, Speaker};

    fn turn() -> Turn {
        Turn {
            text: String::new(),
            speaker: Speaker::new("a", "A"),
            model: String::new(),
            prompt: String::new(),
            time_zone: "UTC".into(),
            reset: false,
            tools: vec![],
            mcp: vec![],
            budgets: None,
            channel_history: false,
            files: None,
        }
    }

    fn spec(name: &str, description: &str) -> ToolSpec {
        ToolSpec::new(name, description, Map::new())
    }

    #[test]
    fn own_descriptions_are_json_of_their_name() {
        for (name, _, json) in OWN.iter().chain(&FILES) {
            let value = parse(json).unwrap();
            assert_eq!(value["name"], *name);
            assert_eq!(stringify(&value), *json, "{name} is written as it would be");
        }
    }

    #[test]
    fn names_carry_prefixes_and_the_servers_index() {
        let mut turn = turn();
        turn.tools = vec![spec("clock", "")];
        let server = |name: &str| McpSpec { server: name.into(), tools: vec![spec("search", "")] };
        turn.mcp = vec![server("first"), server("second")];
        let offer = Offer::new(&turn).unwrap();
        assert_eq!(offer.get("host_clock"), Some(Function::Host { tool: "clock" }));
        let function = Function::Mcp { server: "second", tool: "search" };
        assert_eq!(offer.get("mcp_1_search"), Some(function));
        assert_eq!(offer.get("clock"), None);
        assert_eq!(offer.get("files_read"), None);
        assert_eq!(offer.count(), 7);
    }

    #[test]
    fn file_tools_are_offered_only_with_files() {
        let turn = Turn { files: Some(Files::default()), ..turn() };
        assert_eq!(Offer::new(&turn).unwrap().get("files_write"), Some(Function::FilesWrite));
    }

    #[test]
    fn a_later_declaration_replaces_an_earlier_one_in_place() {
        let mut turn = turn();
        turn.tools = vec![spec("a", "first"), spec("b", ""), spec("a", "second")];
        let json = Offer::new(&turn).unwrap().json;
        assert!(!json.contains("first") && json.find("host_a") < json.find("host_b"), "{json}");
        assert_eq!(json.matches("host_a").count(), 1);
    }

    #[test]
    fn a_turn_may_not_describe_more_than_fits() {
        let mut turn = turn();
        let empty = Offer::new(&turn).unwrap().json.len();
        turn.tools = vec![spec("a", "")];
        let one = Offer::new(&turn).unwrap().json.len() - empty;
        let room = TOOL_DESCRIPTIONS_BYTES - empty - one;
        turn.tools = vec![spec("a", &"x".repeat(room))];
        assert_eq!(Offer::new(&turn).unwrap().json.len(), TOOL_DESCRIPTIONS_BYTES);
        turn.tools = vec![spec("a", &"x".repeat(room + 1))];
        let bytes = TOOL_DESCRIPTIONS_BYTES + 1;
        assert_eq!(Offer::new(&turn).unwrap_err(), DescriptionsTooLarge { bytes });
    }
}
