//! Files stay whole: kills at random moments, full disks, limits on size.

use std::fs;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use turnjail_protocol::WorkerCode;
use turnjail_tests::script::{Broker, Call, Response, Stage};
use turnjail_tests::{Fact, Test, program as worker};

use crate::files::error;
use crate::{assert_done, assert_failed, run, test, turn, turn_with, under_shell};

pub fn tests() -> Vec<Test> {
    vec![
        test("a_kill_at_any_moment_leaves_old_or_new_content", kills),
        test("content_over_the_process_file_limit_is_refused_and_the_old_stays", file_size_limit),
        test("a_missing_workspace_fails_the_turn", missing),
        Test::with("a_full_file_system_leaves_the_old_content", &[Fact::Jail], full),
        Test::with("a_full_file_system_fails_the_turn", &[Fact::Jail], full_at_the_end),
    ]
}

/// Sizes large enough that writing them takes a while.
fn content(mark: char) -> String {
    mark.to_string().repeat(50_000)
}

fn kills() {
    let stage = Stage::new();
    let first = |mark| {
        vec![
            Response::calls(&[
                ("files_write", json!({"path": "f", "text": content(mark)})),
                (
                    "memory_set",
                    json!({"scope": "channel", "key": "k", "text": mark.to_string().repeat(2048)}),
                ),
                ("files_write", json!({"path": "f", "text": content(mark.to_ascii_uppercase())})),
            ]),
            Response::text(&mark.to_string().repeat(8000)),
        ]
    };
    let turn = turn_with(json!({"files": {}})).to_string();
    let finished = stage.run(worker(), turn.as_bytes(), first('a'));
    assert_eq!(finished.code, Some(0));
    let mut killed = 0;
    for round in 0..100_u64 {
        let mark = char::from(b'b' + u8::try_from(round % 20).unwrap());
        let broker = Broker::listen(&stage.socket(), first(mark));
        let mut child = stage.command(worker()).spawn().expect("the worker starts");
        child.stdin.take().expect("a pipe").write_all(turn.as_bytes()).expect("a turn");
        thread::sleep(Duration::from_micros(round * 37 % 4000));
        killed += u32::from(kill(child));
        broker.stop();
        check(&stage);
    }
    assert!(killed > 20, "only {killed} were killed in time");
    // The next turn works, and removes what the killed ones left.
    assert_eq!(stage.run(worker(), turn.as_bytes(), first('z')).code, Some(0));
    assert_eq!(fs::read_dir(stage.workspace().join(".turnjail")).unwrap().count(), 0);
    let leftovers = fs::read_dir(stage.workspace()).unwrap();
    let names: Vec<_> = leftovers.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    assert!(names.iter().all(|name| !name.contains(".tmp")), "{names:?}");
}

/// True if the signal ended it, not it itself.
fn kill(mut child: Child) -> bool {
    child.kill().expect("a signal");
    let output = child.wait_with_output().expect("the worker ends");
    output.status.code().is_none()
}

fn check(stage: &Stage) {
    let file = fs::read_to_string(stage.workspace().join("files/f")).expect("the file");
    let mark = file.chars().next().expect("content");
    assert_eq!(file, content(mark), "a mixture");
    for name in ["history.json", "memory.json"] {
        let text = fs::read_to_string(stage.workspace().join(name)).expect("the file");
        let entries: Vec<Value> = serde_json::from_str(&text).expect("whole JSON");
        assert!(!entries.is_empty());
    }
}

fn file_size_limit() {
    let stage = Stage::new();
    let turn = turn_with(json!({"files": {}})).to_string();
    let write = |size: usize| ("files_write", json!({"path": "f", "text": "x".repeat(size)}));
    let ended = stage.run(
        worker(),
        turn.as_bytes(),
        vec![Response::calls(&[write(10)]), Response::text("Done.")],
    );
    assert_done(&ended);
    let answers = vec![Response::calls(&[write(60_000)]), Response::text("Done.")];
    let broker = Broker::listen(&stage.socket(), answers);
    // Blocks of 512 bytes. As the first process of a jail it does not get the signal either.
    let mut command = under_shell("trap '' XFSZ; ulimit -f 40", &stage.command(worker()));
    let mut child = command.spawn().expect("the worker starts");
    child.stdin.take().expect("a pipe").write_all(turn.as_bytes()).expect("a turn");
    let output = child.wait_with_output().expect("the worker ends");
    let calls = broker.stop();
    assert_eq!(output.status.code(), Some(0));
    let request: Value = serde_json::from_slice(&calls[1].body).expect("JSON");
    let result = request["messages"].as_array().and_then(|m| m.last()).expect("a result");
    assert!(
        error(result["content"].as_str().expect("text")).contains("limit of one file"),
        "{result}"
    );
    assert_eq!(fs::read_to_string(stage.workspace().join("files/f")).unwrap(), "x".repeat(10));
    assert_eq!(fs::read_dir(stage.workspace().join(".turnjail")).unwrap().count(), 0);
}

fn missing() {
    let stage = Stage::new();
    fs::remove_dir(stage.workspace()).unwrap();
    assert_failed(&run(&stage, &turn(), vec![]), WorkerCode::Io);
    fs::write(stage.workspace(), "a file").unwrap();
    assert_failed(&run(&stage, &turn(), vec![]), WorkerCode::Io);
    let stage = Stage::new();
    fs::remove_dir(stage.channel()).unwrap();
    assert_failed(
        &run(&stage, &turn_with(json!({"historyDir": "/channel"})), vec![]),
        WorkerCode::Io,
    );
}

/// A turn whose workspace is a file system of 48 KiB, and what the broker got.
fn in_little_room(answers: Vec<Response>) -> (std::process::Output, Vec<Call>) {
    let stage = Stage::new();
    let broker = Broker::listen(&stage.socket(), answers);
    let mut command = Command::new("unshare");
    let mount = format!("mount -t tmpfs -o size=48k none {}", stage.workspace().display());
    let inner = under_shell(&mount, &stage.command(worker()));
    command
        .args(["--user", "--map-root-user", "--mount"])
        .arg(inner.get_program())
        .args(inner.get_args());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("unshare, of util-linux");
    let turn = turn_with(json!({"files": {}})).to_string();
    child.stdin.take().expect("a pipe").write_all(turn.as_bytes()).expect("a turn");
    let output = child.wait_with_output().expect("the worker ends");
    (output, broker.stop())
}

fn full() {
    let write = |size: usize| ("files_write", json!({"path": "f", "text": "x".repeat(size)}));
    let calls = [
        write(10),
        write(60_000),
        ("files_read", json!({"path": "f"})),
        ("files_list", json!({})),
        ("memory_set", json!({"scope": "channel", "key": "k", "text": "t"})),
    ];
    let (output, calls) = in_little_room(vec![Response::calls(&calls), Response::text("Done.")]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let request: Value = serde_json::from_slice(&calls[1].body).expect("JSON");
    let messages = request["messages"].as_array().expect("messages");
    let results: Vec<_> =
        messages[3..].iter().map(|m| m["content"].as_str().expect("text")).collect();
    assert_eq!(error(results[1]), "files/f does not fit: the workspace's disk is full");
    assert_eq!(results[2], r#"{"text":"xxxxxxxxxx","offset":0,"total":10}"#);
    assert_eq!(results[3], r#"{"entries":[{"name":"f","kind":"file","size":10}],"total":1}"#);
    // What was staged is gone again: there is room for the memory and the history.
    assert_eq!(results[4], "Saved.");
}

fn full_at_the_end() {
    let fill: Vec<_> = (0..8)
        .map(|n| ("files_write", json!({"path": n.to_string(), "text": "x".repeat(8192)})))
        .collect();
    let memory = ("memory_set", json!({"scope": "channel", "key": "k", "text": "t".repeat(2048)}));
    let answers =
        vec![Response::calls(&fill), Response::calls(&vec![memory; 4]), Response::text("Done.")];
    let (output, calls) = in_little_room(answers);
    assert_eq!(calls.len(), 3);
    let last = String::from_utf8_lossy(&calls[2].body);
    assert!(last.contains("disk is full") && last.contains("Tool call refused or failed."));
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(output.stderr, WorkerCode::Io.to_line().as_bytes());
}
