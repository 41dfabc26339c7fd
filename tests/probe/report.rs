//! How an act is reported.

use serde_json::{Value, json};

/// The value of a call, or its error.
pub fn value(result: i64) -> Value {
    if (-4095..0).contains(&result) { json!({"errno": -result}) } else { json!({"value": result}) }
}

/// Bytes as text.
pub fn text(bytes: &[u8]) -> Value {
    json!({"text": String::from_utf8_lossy(bytes)})
}

/// Writes a line to standard output.
pub fn to_stdout(line: &Value) {
    let mut line = line.to_string();
    line.push('\n');
    crate::files::write_all(1, line.as_bytes());
}
