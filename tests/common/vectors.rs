//! The recorded turns of the TypeScript worker, as data. What their fields mean is in
//! vectors/README.md.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::script::Response;

const WORKER: &[u8] = include_bytes!("../vectors/worker.tar.gz");

/// Every recorded turn by its name.
///
/// # Panics
/// When the archive is not what it should be.
pub fn worker() -> BTreeMap<String, Value> {
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(WORKER));
    let entries = archive.entries().expect("an archive").map(|entry| {
        let mut text = String::new();
        let mut entry = entry.expect("an entry");
        entry.read_to_string(&mut text).expect("text");
        let vector: Value = serde_json::from_str(&text).expect("JSON");
        (vector["name"].as_str().expect("a name").to_owned(), vector)
    });
    let vectors: BTreeMap<_, _> = entries.collect();
    assert!(vectors.len() >= 77, "only {} vectors", vectors.len());
    vectors
}

/// What goes to the worker's standard input.
pub fn stdin(vector: &Value) -> Vec<u8> {
    let mut stdin = match (vector.get("stdin"), vector.get("stdin_base64")) {
        (Some(text), _) => text.as_str().unwrap_or_default().as_bytes().to_vec(),
        (_, Some(text)) => decode(text),
        _ => vector["turn"].to_string().into_bytes(),
    };
    pad(&mut stdin, vector.get("stdin_pad_to"));
    stdin
}

/// The broker's answers in their order.
pub fn answers(vector: &Value) -> Vec<Response> {
    list(vector, "broker").iter().map(response).collect()
}

/// Writes the workspace as it was before the turn.
///
/// # Errors
/// When a file cannot be written.
pub fn lay_out(vector: &Value, workspace: &Path) -> std::io::Result<()> {
    for (name, content) in files(vector, "workspace_before") {
        std::fs::write(workspace.join(name), content)?;
    }
    Ok(())
}

/// The files of a field, by name, with their contents.
pub fn files(vector: &Value, field: &str) -> BTreeMap<String, Vec<u8>> {
    let text = vector.get(field).and_then(Value::as_object).into_iter().flatten();
    let text = text.map(|(name, text)| (name.clone(), text.as_str().unwrap_or_default().into()));
    let encoded = vector.get(format!("{field}_base64").as_str()).and_then(Value::as_object);
    let encoded = encoded.into_iter().flatten().map(|(name, text)| (name.clone(), decode(text)));
    text.chain(encoded).collect()
}

/// The list in a field; empty when there is none.
pub fn list<'v>(vector: &'v Value, field: &str) -> &'v [Value] {
    vector.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn response(answer: &Value) -> Response {
    let mut body = match answer.get("body_text") {
        Some(text) => text.as_str().unwrap_or_default().as_bytes().to_vec(),
        None => answer["body"].to_string().into_bytes(),
    };
    pad(&mut body, answer.get("pad_to"));
    let status = answer["status"].as_u64().and_then(|status| u16::try_from(status).ok());
    Response::new(status.unwrap_or(200), &body)
}

fn pad(bytes: &mut Vec<u8>, to: Option<&Value>) {
    if let Some(length) = to.and_then(Value::as_u64) {
        bytes.resize(usize::try_from(length).unwrap_or(usize::MAX), b' ');
    }
}

fn decode(text: &Value) -> Vec<u8> {
    STANDARD.decode(text.as_str().unwrap_or_default()).expect("base64")
}
