//! How an act is reported.

use serde_json::{Value, json};

/// The value of a call, or its error.
pub fn value(result: i64) -> Value {
    if (-4095..0).contains(&result) { json!({"errno": -result}) } else { json!({"value": result}) }
}

/// An error of the standard library.
pub fn error(error: &std::io::Error) -> Value {
    json!({"errno": error.raw_os_error().unwrap_or(0)})
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
