//! The worker under strace.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use turnjail_tests::jails::write_program;
use turnjail_tests::program as worker;
use turnjail_tests::script::{Ended, Stage};

use crate::turns::Turn;

/// A program that runs the worker under strace, to be run in its place.
struct Tracer {
    dir: TempDir,
}

impl Tracer {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let tracer = Self { dir };
        let script = format!(
            "#!/bin/sh\nPATH=$PATH:/usr/local/bin:/usr/bin:/bin\n\
             exec strace -f -qq -o {} {} \"$@\"\n",
            tracer.output().display(),
            worker().display()
        );
        write_program(&tracer.program(), script.as_bytes());
        tracer
    }

    fn program(&self) -> PathBuf {
        self.dir.path().join("worker")
    }

    fn output(&self) -> PathBuf {
        self.dir.path().join("calls")
    }

    /// The names of the calls, in order. A line is the process, the call's name, its arguments; or a
    /// signal.
    fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.output()).expect("a trace");
        let name = |line: &str| {
            let (_process, rest) = line.split_once(' ')?;
            let (name, _arguments) = rest.trim_start().split_once('(')?;
            name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_').then(|| name.to_owned())
        };
        let calls: Vec<String> = text.lines().filter_map(name).collect();
        assert_eq!(calls.first().map(String::as_str), Some("execve"), "{text}");
        calls
    }
}

/// Runs a turn; what the worker left, and the names of its calls.
pub fn turn(turn: &Turn) -> (Ended, BTreeSet<String>) {
    let (tracer, stage) = (Tracer::new(), Stage::new());
    turn.lay_out(&stage.workspace());
    let ended = stage.run(&tracer.program(), &turn.stdin, turn.answers.clone());
    turn.open_again(&stage.workspace());
    (ended, tracer.calls().into_iter().collect())
}

/// What became of a worker that waited for its turn.
pub struct Waited {
    pub code: Option<i32>,
    pub calls: BTreeSet<String>,
}

/// Runs the worker on something that is no turn, which comes late; meanwhile it is stopped and made to
/// go on, or not.
pub fn invalid_turn(stop: bool) -> Waited {
    let (tracer, stage) = (Tracer::new(), Stage::new());
    let mut strace = stage.command(&tracer.program()).spawn().expect("strace");
    let worker = traced(&strace);
    wait_for_state(&worker, 'S');
    if stop {
        signal(&worker, "STOP");
        wait_for_state(&worker, 'T');
        signal(&worker, "CONT");
        wait_for_state(&worker, 'S');
    }
    let mut input = strace.stdin.take().expect("a pipe");
    input.write_all(b"no turn").expect("the worker reads");
    drop(input);
    let code = strace.wait().expect("strace ends").code();
    Waited { code, calls: tracer.calls().into_iter().collect() }
}

/// The process that strace traces, once it runs the worker.
fn traced(strace: &Child) -> PathBuf {
    let children = format!("/proc/{0}/task/{0}/children", strace.id());
    let find = || {
        let children = fs::read_to_string(&children).ok()?;
        let child = PathBuf::from("/proc").join(children.split_whitespace().next()?);
        // Its other entries are root's: it is not dumpable.
        let name = fs::read_to_string(child.join("comm")).ok()?;
        (name == "worker\n").then_some(child)
    };
    within("the worker starts", find)
}

/// Waits until the process sleeps (S) or is stopped (T, or t for its tracer).
fn wait_for_state(process: &Path, state: char) {
    within("its state", || {
        let stat = fs::read_to_string(process.join("stat")).ok()?;
        let (_, rest) = stat.rsplit_once(") ")?;
        rest.to_uppercase().starts_with(state).then_some(())
    });
}

fn signal(process: &Path, name: &str) {
    let pid = process.file_name().expect("a pid");
    let status = Command::new("kill").arg(format!("-{name}")).arg(pid).status().expect("kill");
    assert!(status.success());
}

fn within<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "{what} does not come");
        sleep(Duration::from_millis(10));
    }
}
