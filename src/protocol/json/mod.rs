//! JSON from outside, read leniently and written again as JavaScript writes it.
//!
//! Reading: a lone surrogate escape becomes U+FFFD, a number that no double holds becomes null, the
//! last of equal keys wins (at the place of the first), and what is nested over
//! [`JSON_DEPTH`] deep is refused. Writing: no white space, JavaScript's
//! escapes and number forms. Keys keep their order.

mod mend;
mod write;

pub use serde_json::{Map, Value};
pub use write::{push, push_string, stringify};

use crate::limits::JSON_DEPTH;

/// Why a text is not JSON that is accepted. It names a place in the text, never a part of it.
#[derive(Debug)]
pub struct JsonError(serde_json::Error);

impl std::fmt::Display for JsonError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "not JSON: {}", self.0)
    }
}

impl std::error::Error for JsonError {}

/// Reads a JSON text.
///
/// # Errors
/// The text is not JSON, or nested over [`JSON_DEPTH`] deep.
pub fn parse(text: &str) -> Result<Value, JsonError> {
    // The library's own limit of 128 refuses a depth of 128, which leaves 127.
    serde_json::from_str(&mend::mend(text)).map_err(JsonError)
}

/// How deep a value is nested: 0 for a scalar, 1 for `[]` and `{"a":1}`.
pub fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

const _: () = assert!(JSON_DEPTH == 127, "the depth is the JSON library's own limit");

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(depth: usize) -> String {
        format!("{}{}", "[".repeat(depth), "]".repeat(depth))
    }

    #[test]
    fn nesting_of_127_is_the_most() {
        assert_eq!(depth(&parse(&nested(127)).unwrap()), 127);
        assert!(parse(&nested(128)).is_err());
        assert!(parse(&"[".repeat(1_000_000)).is_err());
    }

    #[test]
    fn the_last_of_equal_keys_wins_at_the_place_of_the_first() {
        let value = parse(r#"{"a":1,"b":2,"a":3,"10":4,"9":5}"#).unwrap();
        assert_eq!(stringify(&value), r#"{"a":3,"b":2,"10":4,"9":5}"#);
    }

    #[test]
    fn an_error_tells_the_place_and_no_content() {
        let error = parse("{\"secret\":\n tru}").unwrap_err().to_string();
        assert!(error.contains("line 2") && !error.contains("secret"), "{error}");
    }

    #[test]
    fn only_json_is_read() {
        let texts =
            ["", " ", "\u{feff}{}", "{a:1}", "[1,]", "01", "+1", ".5", "1.", "NaN", "'a'", "1 2"];
        for text in texts {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }
}
