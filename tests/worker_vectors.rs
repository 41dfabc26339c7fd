//! Every recorded turn of the TypeScript worker, run by the real one: the same calls, the same reply,
//! exit code and files. What the fields mean is in vectors/README.md.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::{Value, json};
use turnjail_tests::script::{Call, Ended, Stage};
use turnjail_tests::vectors;
use turnjail_tests::{compare, program};

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
    vectors::lay_out(vector, &stage.workspace()).map_err(|e| e.to_string())?;
    let ended = stage.run(program(), &vectors::stdin(vector), vectors::answers(vector));
    compare::reply(vector, &ended.stdout, ended.code)?;
    check_errors(&ended)?;
    compare::calls(vector, &ended.calls)?;
    ended.calls.iter().try_for_each(check_headers)?;
    compare::workspace(vector, &stage.workspace())
}

/// A failure says why in one line, a success says nothing.
fn check_errors(ended: &Ended) -> Result<(), String> {
    let stderr = String::from_utf8_lossy(&ended.stderr);
    let code = turnjail_protocol::WorkerCode::from_stderr(&ended.stderr);
    match (ended.code, code) {
        (Some(0), None) if stderr.is_empty() => Ok(()),
        (Some(1), Some(code)) if stderr == code.to_line() => Ok(()),
        _ => Err(format!("stderr {stderr:?}")),
    }
}

fn check_headers(call: &Call) -> Result<(), String> {
    let names: Vec<_> = call.headers.iter().map(|(name, _)| name.as_str()).collect();
    let known = ["host", "content-type", "content-length", "authorization"];
    compare::same("headers", &json!(known), &json!(names))
}
