//! Comparing what a worker did with a recorded turn, whichever worker it was.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use crate::script::Call;
use crate::vectors::{files, list};

type Compared = Result<(), String>;

/// The reply on standard output, and the exit code.
///
/// # Errors
/// What differs.
pub fn reply(vector: &Value, stdout: &[u8], code: Option<i32>) -> Compared {
    let stdout = String::from_utf8_lossy(stdout);
    let reply = match vector.get("reply_text") {
        Some(text) => parse(text.as_str().unwrap_or_default())?,
        None => vector["reply"].clone(),
    };
    same("reply", &reply, &parse(&stdout)?)?;
    if stdout.ends_with('\n') {
        return Err("a newline after the reply".into());
    }
    same("exit code", &vector["exit_code"], &json!(code))
}

/// The calls: routes, the credential, bodies.
///
/// # Errors
/// What differs.
pub fn calls(vector: &Value, calls: &[Call]) -> Compared {
    let expected = list(vector, "calls");
    if expected.len() != calls.len() {
        return Err(format!("{} calls instead of {}", calls.len(), expected.len()));
    }
    for (index, (expected, call)) in expected.iter().zip(calls).enumerate() {
        let what = format!("call {index}");
        let line = format!("POST {} HTTP/1.1", expected["route"].as_str().unwrap_or_default());
        same(&what, &json!(line), &json!(call.line))?;
        same(&what, &json!("Bearer sandbox-dummy-key"), &json!(call.header("authorization")))?;
        let body = match expected.get("body_text") {
            Some(text) => parse(text.as_str().unwrap_or_default())?,
            None => expected["body"].clone(),
        };
        let mut sent = parse(&String::from_utf8_lossy(&call.body))?;
        hide_time(&mut sent)?;
        same(&what, &body, &sent)?;
    }
    Ok(())
}

/// The files of the workspace after the turn.
///
/// # Errors
/// What differs.
pub fn workspace(vector: &Value, dir: &Path) -> Compared {
    let before = files(vector, "workspace_after");
    let after = read_files(dir);
    if before.keys().ne(after.keys()) {
        return Err(format!("files {:?} instead of {:?}", after.keys(), before.keys()));
    }
    for (name, content) in before {
        let [wanted, found] = [&content, &after[&name]].map(|bytes| String::from_utf8_lossy(bytes));
        same(&name, &json!(wanted), &json!(found))?;
    }
    Ok(())
}

const BEFORE: &str = "Current time: ";

/// Replaces the clock's text in a model request's system message.
fn hide_time(body: &mut Value) -> Result<(), String> {
    let Some(Value::String(system)) = body.pointer_mut("/messages/0/content") else {
        return Ok(());
    };
    let start = system.find(BEFORE).ok_or("no time")? + BEFORE.len();
    let end =
        start + system[start..].find(".\nSpeaker display names").ok_or("no end of the time")?;
    if !(20..=23).contains(&(end - start)) {
        return Err(format!("the time {:?}", &system[start..end]));
    }
    system.replace_range(start..end, "<TIME>");
    Ok(())
}

fn read_files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(dir).expect("the workspace").map(|entry| {
        let entry = entry.expect("an entry");
        let name = entry.file_name().into_string().expect("a name");
        (name, std::fs::read(entry.path()).expect("a file"))
    });
    entries.collect()
}

/// Reads JSON, a lone surrogate as U+FFFD: turnjail never writes one, and the TypeScript worker did.
fn parse(text: &str) -> Result<Value, String> {
    let text = turnjail_protocol::json::parse(text)
        .map_or_else(|_| text.to_owned(), |value| turnjail_protocol::json::stringify(&value));
    serde_json::from_str(&text).map_err(|e| e.to_string())
}

/// Compares as JSON, numbers by value, and shows where two texts part.
///
/// # Errors
/// What differs.
pub fn same(what: &str, expected: &Value, got: &Value) -> Result<(), String> {
    match (expected, got) {
        (Value::Object(a), Value::Object(b)) => {
            if a.len() != b.len() || !a.keys().all(|key| b.contains_key(key)) {
                return Err(format!("{what}: keys {:?} instead of {:?}", keys(b), keys(a)));
            }
            a.iter().try_for_each(|(key, value)| same(&format!("{what}.{key}"), value, &b[key]))
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => a
            .iter()
            .zip(b)
            .enumerate()
            .try_for_each(|(index, (a, b))| same(&format!("{what}[{index}]"), a, b)),
        (Value::Number(a), Value::Number(b)) if a.as_f64() == b.as_f64() => Ok(()),
        (a, b) if a == b => Ok(()),
        (a, b) => Err(format!("{what}: {}", difference(&a.to_string(), &b.to_string()))),
    }
}

fn keys(map: &serde_json::Map<String, Value>) -> Vec<&String> {
    map.keys().collect()
}

fn difference(expected: &str, got: &str) -> String {
    let at = expected.chars().zip(got.chars()).take_while(|(a, b)| a == b).count();
    let around =
        |text: &str| text.chars().skip(at.saturating_sub(40)).take(120).collect::<String>();
    let (e, g) = (around(expected), around(got));
    format!(
        "from character {at} (of {} and {}): {g:?} instead of {e:?}",
        got.chars().count(),
        expected.chars().count()
    )
}
