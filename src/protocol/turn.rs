//! The turn: what the host gives a worker.

use crate::json::{self, Map, Value};
use crate::labels::CHANNEL_PATH;
use crate::limits::{
    MAX_FILE_BYTES, MAX_TOTAL_BYTES, PROMPT_BYTES, PROMPT_BYTES_RANGE, REQUEST_BYTES,
    REQUEST_BYTES_RANGE, TOOL_RESULT_BYTES, TOOL_RESULT_BYTES_RANGE, TURN_BYTES,
};
use crate::spec::{McpSpec, ToolSpec, specs};
use crate::text;

/// One message to answer, with all that the worker is told.
#[derive(Debug, Clone, PartialEq)]
pub struct Turn {
    /// The message; at most [`TEXT_UNITS`](crate::limits::TEXT_UNITS), which the host checks.
    pub text: String,
    /// Who speaks; never the principal.
    pub speaker: Speaker,
    /// The model's name; the broker pins its own.
    pub model: String,
    /// The system prompt.
    pub prompt: String,
    /// An IANA time zone in any letter case, or an offset such as `+05:30`.
    pub time_zone: String,
    /// Ignore earlier history.
    pub reset: bool,
    /// Host tools.
    pub tools: Vec<ToolSpec>,
    /// MCP servers; the worker names their tools by the server's index here.
    pub mcp: Vec<McpSpec>,
    /// Protocol 2: sizes other than the defaults.
    pub budgets: Option<Budgets>,
    /// Protocol 2: whether the history is the channel's own, in `/channel` (`historyDir`), because
    /// the workspace is shared.
    pub channel_history: bool,
    /// Protocol 2: the file tools are on, with these limits.
    pub files: Option<Files>,
}

/// Who speaks: an id and a display name. What else came with them is kept for the model.
#[derive(Debug, Clone, PartialEq)]
pub struct Speaker(Map<String, Value>);

impl Speaker {
    /// A speaker.
    pub fn new(id: impl Into<String>, name: impl Into<String>) -> Self {
        let fields: [(String, Value); 2] =
            [("id".into(), Value::String(id.into())), ("name".into(), Value::String(name.into()))];
        Self(fields.into_iter().collect())
    }

    /// The id, to which the speaker's memory is bound.
    pub fn id(&self) -> &str {
        self.text("id")
    }

    /// The display name: an untrusted label.
    pub fn name(&self) -> &str {
        self.text("name")
    }

    /// All fields, in the order in which they came.
    pub fn fields(&self) -> &Map<String, Value> {
        &self.0
    }

    fn text(&self, key: &str) -> &str {
        self.0.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    fn from_value(value: Option<Value>) -> Option<Self> {
        let Some(Value::Object(map)) = value else { return None };
        let known = ["id", "name"].iter().all(|key| map.get(*key).is_some_and(Value::is_string));
        known.then_some(Self(map))
    }
}

/// Sizes of a turn's model requests; each defaults to the worker's own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Budgets {
    /// The system prompt: JSON bytes, within [`PROMPT_BYTES_RANGE`].
    pub prompt_bytes: Option<usize>,
    /// A tool's result: JSON bytes, within [`TOOL_RESULT_BYTES_RANGE`].
    pub tool_result_bytes: Option<usize>,
    /// A model request: bytes, within [`REQUEST_BYTES_RANGE`].
    pub request_bytes: Option<usize>,
}

impl Budgets {
    /// The system prompt's size, or the default.
    pub fn prompt(&self) -> usize {
        self.prompt_bytes.unwrap_or(PROMPT_BYTES)
    }

    /// A tool result's size, or the default.
    pub fn tool_result(&self) -> usize {
        self.tool_result_bytes.unwrap_or(TOOL_RESULT_BYTES)
    }

    /// A request's size, or the default.
    pub fn request(&self) -> usize {
        self.request_bytes.unwrap_or(REQUEST_BYTES)
    }

    /// Whether every size given is within its range.
    pub fn is_valid(&self) -> bool {
        let within = |size: Option<usize>, range: std::ops::RangeInclusive<usize>| {
            size.is_none_or(|size| range.contains(&size))
        };
        within(self.prompt_bytes, PROMPT_BYTES_RANGE)
            && within(self.tool_result_bytes, TOOL_RESULT_BYTES_RANGE)
            && within(self.request_bytes, REQUEST_BYTES_RANGE)
    }

    fn from_value(value: Value) -> Option<Self> {
        let Value::Object(map) = value else { return None };
        let size = |key: &str| match map.get(key) {
            None => Some(None),
            Some(value) => {
                whole_number(value).and_then(|size| usize::try_from(size).ok()).map(Some)
            }
        };
        let budgets = Self {
            prompt_bytes: size("promptBytes")?,
            tool_result_bytes: size("toolResultBytes")?,
            request_bytes: size("requestBytes")?,
        };
        Some(budgets).filter(Self::is_valid)
    }

    fn to_value(self) -> Value {
        let sizes = [
            ("promptBytes", self.prompt_bytes),
            ("toolResultBytes", self.tool_result_bytes),
            ("requestBytes", self.request_bytes),
        ];
        let given = sizes.into_iter().filter_map(|(key, size)| Some((key.into(), size?.into())));
        Value::Object(given.collect())
    }
}

/// Limits of the file tools, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Files {
    /// One file; at least 1.
    pub max_file_bytes: u64,
    /// All files together; at least 1.
    pub max_total_bytes: u64,
}

impl Default for Files {
    fn default() -> Self {
        Self { max_file_bytes: MAX_FILE_BYTES, max_total_bytes: MAX_TOTAL_BYTES }
    }
}

impl Files {
    fn from_value(value: Value) -> Option<Self> {
        let Value::Object(map) = value else { return None };
        let limit = |key: &str, default: u64| match map.get(key) {
            None => Some(default),
            Some(value) => whole_number(value).filter(|limit| *limit > 0),
        };
        Some(Self {
            max_file_bytes: limit("maxFileBytes", MAX_FILE_BYTES)?,
            max_total_bytes: limit("maxTotalBytes", MAX_TOTAL_BYTES)?,
        })
    }

    fn to_value(self) -> Value {
        let limits: [(String, Value); 2] = [
            ("maxFileBytes".into(), self.max_file_bytes.into()),
            ("maxTotalBytes".into(), self.max_total_bytes.into()),
        ];
        Value::Object(limits.into_iter().collect())
    }
}

/// Standard input holds no turn: too large, not JSON, or of the wrong shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidTurn;

impl std::fmt::Display for InvalidTurn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("not a valid turn")
    }
}

impl std::error::Error for InvalidTurn {}

impl Turn {
    /// Reads a turn. Unknown fields are ignored; a byte order mark and bytes that are not UTF-8 are
    /// read as `TextDecoder` does.
    ///
    /// # Errors
    /// It is over [`TURN_BYTES`], not JSON, or of the wrong shape.
    pub fn parse(bytes: &[u8]) -> Result<Self, InvalidTurn> {
        if bytes.len() > TURN_BYTES {
            return Err(InvalidTurn);
        }
        let value = json::parse(&text::decode(bytes)).map_err(|_| InvalidTurn)?;
        Self::from_value(value).ok_or(InvalidTurn)
    }

    fn from_value(value: Value) -> Option<Self> {
        let Value::Object(mut map) = value else { return None };
        let mut take = |key: &str| map.swap_remove(key);
        Some(Self {
            text: string(take("text"))?,
            speaker: Speaker::from_value(take("speaker"))?,
            model: string(take("model"))?,
            prompt: string(take("prompt"))?,
            time_zone: string(take("timeZone"))?,
            reset: match take("reset") {
                None => false,
                Some(value) => value.as_bool()?,
            },
            tools: specs(take("tools"))?,
            mcp: match take("mcp") {
                Some(Value::Array(items)) => {
                    items.into_iter().map(McpSpec::from_value).collect::<Option<_>>()?
                }
                _ => return None,
            },
            budgets: optional(take("budgets"), Budgets::from_value)?,
            channel_history: match take("historyDir") {
                None => false,
                Some(dir) => dir.as_str().filter(|dir| *dir == CHANNEL_PATH).map(|_| true)?,
            },
            files: optional(take("files"), Files::from_value)?,
        })
    }

    /// Whether the turn has a field of protocol 2, which changes how requests are made to fit.
    pub fn is_protocol_2(&self) -> bool {
        self.budgets.is_some() || self.channel_history || self.files.is_some()
    }

    /// The sizes in force.
    pub fn budgets(&self) -> Budgets {
        self.budgets.unwrap_or_default()
    }

    /// The turn's JSON for a worker's standard input. The host checks that it has at most
    /// [`TURN_BYTES`].
    pub fn to_json(&self) -> String {
        let mut map = Map::with_capacity(11);
        map.insert("text".into(), self.text.as_str().into());
        map.insert("speaker".into(), Value::Object(self.speaker.0.clone()));
        map.insert("model".into(), self.model.as_str().into());
        map.insert("prompt".into(), self.prompt.as_str().into());
        map.insert("timeZone".into(), self.time_zone.as_str().into());
        map.insert("reset".into(), self.reset.into());
        if let Some(budgets) = self.budgets {
            map.insert("budgets".into(), budgets.to_value());
        }
        if self.channel_history {
            map.insert("historyDir".into(), CHANNEL_PATH.into());
        }
        if let Some(files) = self.files {
            map.insert("files".into(), files.to_value());
        }
        let tools = self.tools.iter().map(|tool| tool.to_value(&tool.name)).collect();
        map.insert("tools".into(), Value::Array(tools));
        map.insert("mcp".into(), Value::Array(self.mcp.iter().map(McpSpec::to_value).collect()));
        json::stringify(&Value::Object(map))
    }
}

fn string(value: Option<Value>) -> Option<String> {
    match value {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}

/// An absent field is fine, one of the wrong shape is not.
#[expect(clippy::option_option, reason = "absent and wrong are two things")]
fn optional<T>(value: Option<Value>, read: fn(Value) -> Option<T>) -> Option<Option<T>> {
    match value {
        None => Some(None),
        Some(value) => read(value).map(Some),
    }
}

/// A JavaScript number without a fraction, as `5`, `5.0` and `5e0` are, up to 2^53.
fn whole_number(value: &Value) -> Option<u64> {
    const MOST: f64 = 9_007_199_254_740_992.0;
    let number = value.as_f64()?;
    ((0.0..=MOST).contains(&number) && number.fract() == 0.0).then_some(number as u64)
}
