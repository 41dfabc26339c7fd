//! Every recorded turn of the TypeScript worker, run by the real one: the same calls, the same reply,
//! exit code and files. What the fields mean is in vectors/README.md.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::{Value, json};
use turnjail_tests::program;
use turnjail_tests::script::{Call, Ended, Stage};
use turnjail_tests::vectors::{self, files, list};

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(2);
    let trials = vectors::worker()
        .into_iter()
        .map(|(name, vector)| Trial::test(name, move || check(&vector).map_err(Failed::from)));
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

fn check(vector: &Value) -> Result<(), String> {
    let stage = Stage::new();
    vectors::lay_out(vector, &stage).map_err(|e| e.to_string())?;
    let ended = stage.run(program(), &vectors::stdin(vector), vectors::answers(vector));
    check_reply(vector, &ended)?;
    check_calls(vector, &ended.calls)?;
    let before = files(vector, "workspace_after");
    let after = read_files(&stage.workspace());
    if before.keys().ne(after.keys()) {
        return Err(format!("files {:?} instead of {:?}", after.keys(), before.keys()));
    }
    for (name, content) in before {
        same(
            &name,
            &json!(String::from_utf8_lossy(&content)),
            &json!(String::from_utf8_lossy(&after[&name])),
        )?;
    }
    Ok(())
}

fn check_reply(vector: &Value, ended: &Ended) -> Result<(), String> {
    let stdout = String::from_utf8_lossy(&ended.stdout);
    let reply = match vector.get("reply_text") {
        Some(text) => {
            serde_json::from_str(&without_lone_surrogates(text.as_str().unwrap_or_default()))
        }
        None => Ok(vector["reply"].clone()),
    };
    let reply: Value = reply.map_err(|e| e.to_string())?;
    same("reply", &reply, &serde_json::from_str(&stdout).map_err(|e| e.to_string())?)?;
    if stdout.ends_with('\n') {
        return Err("a newline after the reply".into());
    }
    same("exit code", &vector["exit_code"], &json!(ended.code))?;
    // A failure says why in one line, a success says nothing.
    let stderr = String::from_utf8_lossy(&ended.stderr);
    let code = turnjail_protocol::WorkerCode::from_stderr(&ended.stderr);
    match (ended.code, code) {
        (Some(0), None) if stderr.is_empty() => Ok(()),
        (Some(1), Some(code)) if stderr == code.to_line() => Ok(()),
        _ => Err(format!("stderr {stderr:?}")),
    }
}

fn check_calls(vector: &Value, calls: &[Call]) -> Result<(), String> {
    let expected = list(vector, "calls");
    if expected.len() != calls.len() {
        return Err(format!("{} calls instead of {}", calls.len(), expected.len()));
    }
    for (index, (expected, call)) in expected.iter().zip(calls).enumerate() {
        let what = format!("call {index}");
        let line = format!("POST {} HTTP/1.1", expected["route"].as_str().unwrap_or_default());
        same(&what, &json!(line), &json!(call.line))?;
        let names: Vec<_> = call.headers.iter().map(|(name, _)| name.as_str()).collect();
        let known = ["host", "content-type", "content-length", "authorization"];
        same(&what, &json!(known), &json!(names))?;
        same(&what, &json!("Bearer sandbox-dummy-key"), &json!(call.header("authorization")))?;
        let body = match expected.get("body_text") {
            Some(text) => {
                let text = without_lone_surrogates(text.as_str().unwrap_or_default());
                serde_json::from_str(&text).map_err(|e| e.to_string())?
            }
            None => expected["body"].clone(),
        };
        let mut sent: Value = serde_json::from_slice(&call.body).map_err(|e| e.to_string())?;
        hide_time(&mut sent)?;
        same(&what, &body, &sent)?;
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

/// turnjail reads a lone surrogate as U+FFFD and so never writes one.
fn without_lone_surrogates(text: &str) -> String {
    turnjail_protocol::json::parse(text)
        .map_or_else(|_| text.to_owned(), |value| turnjail_protocol::json::stringify(&value))
}

/// Compares as JSON, numbers by value, and shows where two texts part.
fn same(what: &str, expected: &Value, got: &Value) -> Result<(), String> {
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
