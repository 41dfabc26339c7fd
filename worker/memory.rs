//! What the model remembers, in `memory.json`: facts of speakers and notes of the channel.

use turnjail_protocol::json::{self, Map, Value};
use turnjail_protocol::limits::{
    MEMORY_BYTES, MEMORY_ENTRIES, MEMORY_FILE_BYTES, MEMORY_KEY_UNITS, MEMORY_TEXT_UNITS,
};
use turnjail_protocol::{WorkerCode, measure, text};

use crate::store::{Dir, Unusable};

/// The file's name.
pub const FILE: &str = "memory.json";

/// The memory of a workspace, seen by one speaker.
#[derive(Debug)]
pub struct Memory<'a> {
    dir: &'a Dir,
    /// The scope that stands for the current speaker; arguments cannot name another.
    speaker: String,
    /// As in the file, with whatever else they carry. Each has the strings scope, key and text.
    entries: Vec<Map<String, Value>>,
}

/// A call that is refused, or could not be saved.
#[derive(Debug, PartialEq, Eq)]
pub struct Refused;

impl<'a> Memory<'a> {
    /// Reads the memory in `dir`; empty if there is none. Only types and the number of entries are
    /// checked.
    pub fn read(dir: &'a Dir, speaker_id: &str) -> Result<Self, WorkerCode> {
        let entries = match dir.read(FILE, MEMORY_FILE_BYTES) {
            Ok(None) => Vec::new(),
            Ok(Some(bytes)) => parse(&bytes).ok_or(WorkerCode::InvalidMemory)?,
            Err(Unusable::Invalid) => return Err(WorkerCode::InvalidMemory),
            Err(Unusable::Errno(_)) => return Err(WorkerCode::Io),
        };
        Ok(Self { dir, speaker: format!("speaker:{speaker_id}"), entries })
    }

    /// The current speaker's facts, as JSON.
    pub fn speaker_facts(&self) -> String {
        self.list(&self.speaker, |_, _| true)
    }

    /// The channel's notes, as JSON.
    pub fn channel_notes(&self) -> String {
        self.list("channel", |_, _| true)
    }

    /// `memory_get`: the entries of a scope, by key and by text without regard to case.
    pub fn get(&self, input: &Map<String, Value>) -> Result<String, Refused> {
        let scope = self.scope(input)?;
        let key = key(input)?;
        let query = string(input, "query").unwrap_or_default().to_lowercase();
        Ok(self.list(scope, |entry_key, entry_text| {
            key.is_none_or(|key| key == entry_key)
                && (query.is_empty()
                    || format!("{entry_key} {entry_text}").to_lowercase().contains(&query))
        }))
    }

    /// `memory_set`: replaces what the scope has under the key.
    pub fn set(&mut self, input: &Map<String, Value>) -> Result<String, Refused> {
        let scope = self.scope(input)?.to_owned();
        let key = key(input)?.ok_or(Refused)?;
        let text = string(input, "text").ok_or(Refused)?;
        if text::is_blank(text) || measure::utf16_len(text) > MEMORY_TEXT_UNITS {
            return Err(Refused);
        }
        let mut next = self.without(&scope, key);
        let fields = [("scope", scope.as_str()), ("key", key), ("text", text)];
        next.push(fields.into_iter().map(|(name, value)| (name.into(), value.into())).collect());
        self.save(next)?;
        Ok("Saved.".into())
    }

    /// `memory_remove`: forgets what the scope has under the key.
    pub fn remove(&mut self, input: &Map<String, Value>) -> Result<String, Refused> {
        let scope = self.scope(input)?;
        let key = key(input)?.ok_or(Refused)?;
        let next = self.without(scope, key);
        self.save(next)?;
        Ok("Forgotten.".into())
    }

    fn scope(&self, input: &Map<String, Value>) -> Result<&str, Refused> {
        match string(input, "scope") {
            Some("speaker") => Ok(&self.speaker),
            Some("channel") => Ok("channel"),
            _ => Err(Refused),
        }
    }

    fn list(&self, scope: &str, wanted: impl Fn(&str, &str) -> bool) -> String {
        let mut out = vec![b'['];
        for entry in &self.entries {
            let (key, text) = (field(entry, "key"), field(entry, "text"));
            if field(entry, "scope") != scope || !wanted(key, text) {
                continue;
            }
            if out.len() > 1 {
                out.push(b',');
            }
            out.extend_from_slice(b"{\"key\":");
            json::push_string(&mut out, key);
            out.extend_from_slice(b",\"text\":");
            json::push_string(&mut out, text);
            out.push(b'}');
        }
        out.push(b']');
        String::from_utf8(out).expect("JSON is written as UTF-8")
    }

    fn without(&self, scope: &str, key: &str) -> Vec<Map<String, Value>> {
        let kept = |entry: &&Map<String, Value>| {
            field(entry, "scope") != scope || field(entry, "key") != key
        };
        self.entries.iter().filter(kept).cloned().collect()
    }

    /// Saves and takes over `next`, unless it is over a limit; then nothing changes.
    fn save(&mut self, next: Vec<Map<String, Value>>) -> Result<(), Refused> {
        if next.len() > MEMORY_ENTRIES {
            return Err(Refused);
        }
        let list = Value::Array(next.into_iter().map(Value::Object).collect());
        let mut out = Vec::with_capacity(1024);
        json::push(&mut out, &list);
        if out.len() > MEMORY_BYTES {
            return Err(Refused);
        }
        self.dir.replace(FILE, &out).map_err(|_| Refused)?;
        self.entries = entries(list).unwrap_or_default();
        Ok(())
    }
}

fn parse(bytes: &[u8]) -> Option<Vec<Map<String, Value>>> {
    entries(json::parse(&String::from_utf8_lossy(bytes)).ok()?)
}

fn entries(value: Value) -> Option<Vec<Map<String, Value>>> {
    let Value::Array(items) = value else { return None };
    if items.len() > MEMORY_ENTRIES {
        return None;
    }
    items
        .into_iter()
        .map(|item| match item {
            Value::Object(map) => ["scope", "key", "text"]
                .iter()
                .all(|name| map.get(*name).is_some_and(Value::is_string))
                .then_some(map),
            _ => None,
        })
        .collect()
}

/// The trimmed key; none if there is none, or it is no string.
fn key(input: &Map<String, Value>) -> Result<Option<&str>, Refused> {
    match string(input, "key").map(text::trim) {
        Some(key) if key.is_empty() || measure::utf16_len(key) > MEMORY_KEY_UNITS => Err(Refused),
        key => Ok(key),
    }
}

fn string<'a>(input: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    input.get(name).and_then(Value::as_str)
}

fn field<'a>(entry: &'a Map<String, Value>, name: &str) -> &'a str {
    string(entry, name).unwrap_or_default()
}
