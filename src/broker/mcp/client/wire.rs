//! Messages as texts, read as leniently as everything from outside.

use turnjail_protocol::json;

use super::{Incoming, Outgoing};

/// Reads a message; `None` when the text is none.
pub(super) fn read(text: &str) -> Option<Incoming> {
    let value = json::parse(text).ok()?;
    serde_json::from_value(value).ok()
}

/// Mends a text that somebody else will read strictly.
pub(super) fn mend(text: &str) -> Option<String> {
    json::parse(text).ok().map(|value| json::stringify(&value))
}

/// Writes a message.
pub(super) fn write(message: &Outgoing) -> Result<String, serde_json::Error> {
    serde_json::to_value(message).map(|value| json::stringify(&value))
}
