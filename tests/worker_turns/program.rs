//! The program itself: arguments, streams, memory, system calls.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};

use serde_json::json;
use turnjail_protocol::WorkerCode;
use turnjail_protocol::limits::{EXIT_OUT_OF_MEMORY, EXIT_USAGE};
use turnjail_tests::script::{Broker, Response, Stage};
use turnjail_tests::{Fact, Test, program as worker};

use crate::{test, turn, turn_with, under_shell};

pub fn tests() -> Vec<Test> {
    vec![
        test("version_and_protocol_are_told", version),
        test("unknown_arguments_are_refused", usage),
        test("nothing_in_a_turn_replaces_a_place", places),
        test("a_memory_limit_ends_with_its_own_code", memory_limit),
        test("an_ordinary_turn_takes_little_memory", peak_memory),
        test("a_closed_output_fails_the_turn", closed_output),
        test("the_process_is_not_dumpable", not_dumpable),
        Test::with("only_listed_system_calls_are_made", &[Fact::Strace], system_calls),
    ]
}

fn output(command: &mut Command) -> (Option<i32>, String, String) {
    let output = command.stdin(Stdio::null()).output().expect("the worker starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn version() {
    let (code, stdout, stderr) = output(Command::new(worker()).arg("--version"));
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert_eq!(stdout, format!("turnjail-worker {version}, protocol 2\n"));
}

fn usage() {
    for arguments in
        [&["--help"][..], &["x"], &["--broker"], &["--version", "x"], &["--workspace="]]
    {
        let (code, stdout, stderr) = output(Command::new(worker()).args(arguments));
        assert_eq!((code, stdout.as_str()), (Some(EXIT_USAGE), ""), "{arguments:?}");
        assert!(stderr.starts_with("usage: turnjail-worker "), "{stderr}");
    }
}

fn places() {
    let stage = Stage::new();
    let other = stage.channel();
    let turn = turn_with(json!({
        "workspace": other,
        "workspaceDir": other,
        "broker": other.join("x.sock"),
        "channel": other,
        "brokerSocket": other.join("x.sock"),
    }));
    let ended = stage.run(worker(), turn.to_string().as_bytes(), vec![Response::text("Done.")]);
    assert_eq!(ended.code, Some(0));
    assert!(stage.workspace().join("history.json").exists());
    assert_eq!(fs::read_dir(other).unwrap().count(), 0);
}

fn memory_limit() {
    let stage = Stage::new();
    // 600,000 small values take far more memory as values than as text.
    let body = format!("[{}0]", "0,".repeat(500_000));
    let broker = Broker::listen(&stage.socket(), vec![Response::new(200, body.as_bytes())]);
    let mut command = under_shell("ulimit -v 8192", &stage.command(worker()));
    let mut child = command.spawn().expect("the worker starts");
    child.stdin.take().expect("a pipe").write_all(turn().to_string().as_bytes()).expect("a turn");
    let output = child.wait_with_output().expect("the worker ends");
    broker.stop();
    assert_eq!(output.status.code(), Some(EXIT_OUT_OF_MEMORY), "{output:?}");
    assert_eq!(output.stderr, WorkerCode::OutOfMemory.to_line().as_bytes());
}

fn peak_memory() {
    let stage = Stage::new();
    let calls =
        Response::calls(&[("memory_set", json!({"scope": "channel", "key": "k", "text": "t"}))]);
    let pid = Arc::new(OnceLock::new());
    let (peak, known) = (Arc::new(OnceLock::new()), Arc::clone(&pid));
    let seen = Arc::clone(&peak);
    let answers = vec![calls, Response::text("Done.")];
    let broker = Broker::listen_with(&stage.socket(), answers, move |count| {
        if count == 2 {
            let status =
                fs::read_to_string(format!("/proc/{}/status", known.wait())).expect("its status");
            let peak =
                status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("its peak");
            let _ = seen.set(peak.trim().trim_end_matches(" kB").parse::<u32>().expect("a number"));
        }
    });
    let mut child = stage.command(worker()).spawn().expect("the worker starts");
    pid.set(child.id()).expect("set once");
    child.stdin.take().expect("a pipe").write_all(turn().to_string().as_bytes()).expect("a turn");
    assert!(child.wait().expect("the worker ends").success());
    broker.stop();
    let peak = *peak.get().expect("a peak");
    eprintln!("peak memory {peak} kB");
    // The other C library takes more for itself.
    let program = fs::read(worker()).expect("the program");
    let most = if program.windows(5).any(|part| part == b"glibc") { 1536 } else { 1024 };
    assert!(peak <= most, "{peak} kB");
}

fn closed_output() {
    let stage = Stage::new();
    let broker = Broker::listen(&stage.socket(), vec![Response::text("Done.")]);
    let mut child = stage.command(worker()).spawn().expect("the worker starts");
    drop(child.stdout.take());
    child.stdin.take().expect("a pipe").write_all(turn().to_string().as_bytes()).expect("a turn");
    let output = child.wait_with_output().expect("the worker ends");
    broker.stop();
    // A signal for the broken pipe, or a failure: never success.
    assert_ne!(output.status.code(), Some(0));
}

fn not_dumpable() {
    let stage = Stage::new();
    let mut child = stage.command(worker()).spawn().expect("the worker starts");
    // It waits for its turn; what belongs to a process that is not dumpable belongs to root.
    let owner = |entry: &str| {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(format!("/proc/{}/{entry}", child.id())).map(|found| found.uid())
    };
    let mut tries = 0;
    while owner("environ").expect("its entry") != 0 {
        tries += 1;
        assert!(tries < 200, "still dumpable");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let _ = child.kill();
    let _ = child.wait();
}

fn system_calls() {
    let stage = Stage::new();
    let trace = stage.channel().join("trace");
    let broker = Broker::listen(&stage.socket(), script());
    let mut command = Command::new("strace");
    let inner = stage.command(worker());
    command.args(["-f", "-qq", "-o"]).arg(&trace).arg(inner.get_program()).args(inner.get_args());
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("strace");
    let turn = turn_with(json!({"files": {}, "budgets": {"requestBytes": 95_744}}));
    child.stdin.take().expect("a pipe").write_all(turn.to_string().as_bytes()).expect("a turn");
    let output = child.wait_with_output().expect("strace ends");
    broker.stop();
    assert!(output.status.success(), "{output:?}");
    let trace = fs::read_to_string(trace).expect("a trace");
    let made = trace.lines().filter_map(|line| {
        let name = line.split_once(' ')?.1.trim_start().split_once('(')?.0;
        name.bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
            .then_some(name)
    });
    let made: std::collections::BTreeSet<_> = made.collect();
    assert!(made.contains("getdents64") && made.contains("renameat"), "{made:?}");
    let unlisted: Vec<_> =
        made.iter().filter(|name| !turnjail_worker::SYSTEM_CALLS.contains(name)).collect();
    assert!(unlisted.is_empty(), "{unlisted:?}");
}

/// Everything that the worker can do.
fn script() -> Vec<Response> {
    vec![
        Response::calls(&[
            ("memory_set", json!({"scope": "speaker", "key": "k", "text": "t"})),
            ("memory_get", json!({"scope": "speaker"})),
            ("host_echo", json!({})),
            ("files_write", json!({"path": "a/b", "text": "x".repeat(200_000)})),
            ("files_write", json!({"path": "a/b", "text": "y", "append": true})),
            ("files_read", json!({"path": "a/b"})),
            ("files_list", json!({"path": "a"})),
            ("files_write", json!({"path": "a", "text": ""})),
        ]),
        Response::new(200, format!("{{\"text\":\"{}\"}}", "x".repeat(900_000)).as_bytes()),
        Response::calls(&[
            ("files_delete", json!({"path": "a"})),
            ("files_delete", json!({"path": "a/b"})),
            ("files_delete", json!({"path": "a"})),
            ("memory_remove", json!({"scope": "speaker", "key": "k"})),
        ]),
        Response::text("Done."),
    ]
}
