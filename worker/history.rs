//! What was said before, in `history.json`.

use turnjail_protocol::json::{self, Value};
use turnjail_protocol::limits::{HISTORY_ENTRIES, HISTORY_ENTRY_BYTES, HISTORY_FILE_BYTES};
use turnjail_protocol::{WorkerCode, measure};

use crate::store::{Dir, Unusable};

/// The file's name.
pub const FILE: &str = "history.json";

/// Who said something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A guest.
    User,
    /// The model.
    Assistant,
}

impl Role {
    /// The word in the file and in requests.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }

    fn from_value(value: Option<Value>) -> Option<Self> {
        match value?.as_str()? {
            "user" => Some(Self::User),
            "assistant" => Some(Self::Assistant),
            _ => None,
        }
    }
}

/// One thing said, cut to [`HISTORY_ENTRY_BYTES`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    role: Role,
    content: String,
}

impl Entry {
    /// An entry; its content is cut.
    pub fn new(role: Role, content: &str) -> Self {
        Self { role, content: measure::cut(content, HISTORY_ENTRY_BYTES).into_owned() }
    }

    /// Appends `{"role":…,"content":…}`.
    pub fn push_json(&self, out: &mut Vec<u8>) {
        push_message(out, self.role, &self.content);
    }
}

/// Appends a message of one of the two roles as JSON.
pub fn push_message(out: &mut Vec<u8>, role: Role, content: &str) {
    out.extend_from_slice(b"{\"role\":\"");
    out.extend_from_slice(role.as_str().as_bytes());
    out.extend_from_slice(b"\",\"content\":");
    json::push_string(out, content);
    out.push(b'}');
}

/// Reads the history in `dir`; empty if there is none.
pub fn read(dir: &Dir) -> Result<Vec<Entry>, WorkerCode> {
    let bytes = match dir.read(FILE, HISTORY_FILE_BYTES) {
        Ok(None) => return Ok(Vec::new()),
        Ok(Some(bytes)) => bytes,
        Err(Unusable::Invalid) => return Err(WorkerCode::InvalidHistory),
        Err(Unusable::Errno(_)) => return Err(WorkerCode::Io),
    };
    parse(&bytes).ok_or(WorkerCode::InvalidHistory)
}

fn parse(bytes: &[u8]) -> Option<Vec<Entry>> {
    match json::parse(&String::from_utf8_lossy(bytes)).ok()? {
        Value::Array(entries) if entries.len() <= HISTORY_ENTRIES => {
            entries.into_iter().map(entry).collect()
        }
        _ => None,
    }
}

fn entry(value: Value) -> Option<Entry> {
    let Value::Object(mut map) = value else { return None };
    let role = Role::from_value(map.swap_remove("role"))?;
    Some(Entry::new(role, map.swap_remove("content")?.as_str()?))
}

/// Saves the newest [`HISTORY_ENTRIES`] of `earlier` and the turn's two.
pub fn save(dir: &Dir, earlier: &[Entry], user: &str, assistant: &str) -> Result<(), WorkerCode> {
    let new = [Entry::new(Role::User, user), Entry::new(Role::Assistant, assistant)];
    let skipped = (earlier.len() + new.len()).saturating_sub(HISTORY_ENTRIES);
    let mut out = Vec::with_capacity(1024);
    for (index, entry) in earlier.iter().chain(&new).skip(skipped).enumerate() {
        out.push(if index == 0 { b'[' } else { b',' });
        entry.push_json(&mut out);
    }
    out.push(b']');
    dir.replace(FILE, &out).map_err(|_| WorkerCode::Io)
}
