//! The worker as a process: what the recorded turns do not show.

mod budgets;
mod files;
mod hostile;
mod planted;
mod program;
mod storage;
mod transport;

use std::process::{Command, ExitCode, Stdio};

use serde_json::{Value, json};
use turnjail_protocol::WorkerCode;
use turnjail_tests::script::{Ended, Response, Stage};
use turnjail_tests::{Test, harness, program as worker};

fn main() -> ExitCode {
    let lists = [
        budgets::tests(),
        files::tests(),
        hostile::tests(),
        planted::tests(),
        program::tests(),
        storage::tests(),
        transport::tests(),
    ];
    harness(&lists.into_iter().flatten().collect::<Vec<_>>())
}

/// A test that needs nothing of the machine.
const fn test(name: &'static str, check: fn()) -> Test {
    Test::with(name, &[], check)
}

/// A turn of protocol 1 with a host tool `echo`.
fn turn() -> Value {
    json!({
        "text": "Hello",
        "speaker": {"id": "alice", "name": "Alice"},
        "model": "test-model",
        "prompt": "Be helpful.",
        "timeZone": "UTC",
        "tools": [{"name": "echo", "description": "Echo", "parameters": {"type": "object"}}],
        "mcp": [],
    })
}

/// The same with more fields.
fn turn_with(fields: Value) -> Value {
    let mut turn = turn();
    let Value::Object(fields) = fields else { panic!("fields are an object") };
    turn.as_object_mut().expect("an object").extend(fields);
    turn
}

/// The same program with the same arguments, after a shell has done `first`.
fn under_shell(first: &str, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{first}; exec \"$0\" \"$@\"")]);
    shell.arg(command.get_program()).args(command.get_args());
    shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    shell
}

fn run(stage: &Stage, turn: &Value, answers: Vec<Response>) -> Ended {
    stage.run(worker(), turn.to_string().as_bytes(), answers)
}

/// The turn failed with this code, and told nothing else.
fn assert_failed(ended: &Ended, code: WorkerCode) {
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert_eq!(String::from_utf8_lossy(&ended.stderr), code.to_line());
    let reply = json!({"ok": false, "text": "The sandbox worker failed."});
    assert_eq!(ended.reply(), reply);
}

fn assert_done(ended: &Ended) {
    assert_eq!(
        (ended.code, ended.reply()),
        (Some(0), json!({"ok": true, "text": "Done."})),
        "{ended:?}"
    );
    assert_eq!(ended.stderr, b"");
}
