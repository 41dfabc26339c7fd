//! The real worker as a process, with a scripted broker on its socket.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// How long a turn of a test may take before it counts as hanging.
const PATIENCE: Duration = Duration::from_secs(30);

/// A request that the broker got.
#[derive(Debug, Clone)]
pub struct Call {
    /// The first line.
    pub line: String,
    /// The headers, names in lower case, in order.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Call {
    /// The route: the request's target.
    pub fn route(&self) -> &str {
        self.line.split(' ').nth(1).unwrap_or_default()
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// What the broker answers with: the bytes of the whole response.
#[derive(Debug, Clone)]
pub struct Response(pub Vec<u8>);

impl Response {
    /// An answer with a length.
    pub fn new(status: u16, body: &[u8]) -> Self {
        let head = format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\n\r\n", body.len());
        Self([head.as_bytes(), body].concat())
    }

    /// An answer of the model that ends the turn.
    pub fn text(text: &str) -> Self {
        let body = serde_json::json!({"choices": [{"message": {"content": text}}]});
        Self::new(200, body.to_string().as_bytes())
    }

    /// An answer of the model with calls: function names and arguments.
    pub fn calls(calls: &[(&str, serde_json::Value)]) -> Self {
        let calls: Vec<_> = calls
            .iter()
            .enumerate()
            .map(|(index, (name, arguments))| {
                serde_json::json!({
                    "id": format!("c{index}"),
                    "type": "function",
                    "function": {"name": name, "arguments": arguments.to_string()},
                })
            })
            .collect();
        let body =
            serde_json::json!({"choices": [{"message": {"content": null, "tool_calls": calls}}]});
        Self::new(200, body.to_string().as_bytes())
    }
}

/// A worker's places: directories of its own and a socket.
pub struct Stage {
    dir: TempDir,
}

/// What a worker left.
#[derive(Debug)]
pub struct Ended {
    /// Its exit code; none if a signal ended it.
    pub code: Option<i32>,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
    /// What the broker got, in order.
    pub calls: Vec<Call>,
}

impl Ended {
    /// The reply: the JSON on standard output.
    pub fn reply(&self) -> serde_json::Value {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The last request to the model, as JSON.
    pub fn last_request(&self) -> serde_json::Value {
        let call = self.calls.iter().rfind(|call| call.route() == "/model").expect("a model call");
        serde_json::from_slice(&call.body).expect("JSON")
    }

    /// The contents of the tool results in the last request, in order.
    pub fn results(&self) -> Vec<String> {
        let request = self.last_request();
        let messages = request["messages"].as_array().expect("messages").iter();
        messages
            .filter(|message| message["role"] == "tool")
            .map(|message| message["content"].as_str().expect("text").to_owned())
            .collect()
    }
}

impl Default for Stage {
    fn default() -> Self {
        Self::new()
    }
}

impl Stage {
    /// Fresh directories.
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        for name in ["workspace", "channel"] {
            fs::create_dir(dir.path().join(name)).expect("a directory");
        }
        Self { dir }
    }

    /// The workspace.
    pub fn workspace(&self) -> PathBuf {
        self.dir.path().join("workspace")
    }

    /// The channel's own state.
    pub fn channel(&self) -> PathBuf {
        self.dir.path().join("channel")
    }

    /// Where the broker listens.
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("broker.sock")
    }

    /// The worker with its places, its streams piped.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .arg("--workspace")
            .arg(self.workspace())
            .arg("--channel")
            .arg(self.channel())
            .arg("--broker")
            .arg(self.socket())
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs a worker on `stdin` with a broker that gives these answers, each once, in order. A call
    /// beyond them is recorded and its connection closed.
    pub fn run(&self, program: &Path, stdin: &[u8], answers: Vec<Response>) -> Ended {
        let broker = Broker::listen(&self.socket(), answers);
        let mut child = self.command(program).spawn().expect("the worker starts");
        let mut input = child.stdin.take().expect("a pipe");
        let stdin = stdin.to_vec();
        // A worker that reads no further closes the pipe.
        let writer = thread::spawn(move || drop(input.write_all(&stdin)));
        let pid = child.id();
        let watch = Watchdog::over(pid);
        let output = child.wait_with_output().expect("the worker ends");
        drop(watch);
        writer.join().expect("the writer ends");
        let calls = broker.stop();
        let (stdout, stderr) = (output.stdout, output.stderr);
        Ended { code: output.status.code(), stdout, stderr, calls }
    }
}

/// Kills a worker that hangs, so that the test fails instead of hanging too.
struct Watchdog(Arc<AtomicBool>);

impl Watchdog {
    fn over(pid: u32) -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&ended);
        thread::spawn(move || {
            let until = Instant::now() + PATIENCE;
            while Instant::now() < until {
                if seen.load(Ordering::Relaxed) {
                    return;
                }
                thread::sleep(Duration::from_millis(50));
            }
            let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
        });
        Self(ended)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A broker that answers by a script.
pub struct Broker {
    socket: PathBuf,
    calls: Arc<Mutex<Vec<Call>>>,
    stopped: Arc<AtomicBool>,
    thread: thread::JoinHandle<()>,
}

impl Broker {
    /// Listens on `socket` and gives `answers` in order.
    pub fn listen(socket: &Path, answers: Vec<Response>) -> Self {
        Self::listen_with(socket, answers, |_| {})
    }

    /// The same, and tells how many calls came before it answers the next.
    pub fn listen_with(
        socket: &Path,
        answers: Vec<Response>,
        mut called: impl FnMut(usize) + Send + 'static,
    ) -> Self {
        let _ = fs::remove_file(socket);
        let listener = UnixListener::bind(socket).expect("a socket");
        let calls = Arc::new(Mutex::new(Vec::new()));
        let stopped = Arc::new(AtomicBool::new(false));
        let (seen, stop) = (Arc::clone(&calls), Arc::clone(&stopped));
        let thread = thread::spawn(move || {
            let mut answers = answers.into_iter();
            for connection in listener.incoming() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(mut connection) = connection else { return };
                let Some(call) = receive(&connection) else { continue };
                let count = {
                    let mut calls = seen.lock().unwrap_or_else(PoisonError::into_inner);
                    calls.push(call);
                    calls.len()
                };
                called(count);
                if let Some(Response(bytes)) = answers.next() {
                    // A worker that has seen enough closes early.
                    let _ = connection.write_all(&bytes);
                }
            }
        });
        Self { socket: socket.to_owned(), calls, stopped, thread }
    }

    /// Stops listening and returns what came.
    pub fn stop(self) -> Vec<Call> {
        self.stopped.store(true, Ordering::Relaxed);
        let _ = UnixStream::connect(&self.socket);
        self.thread.join().expect("the broker ends");
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.clone()
    }
}

fn receive(connection: &UnixStream) -> Option<Call> {
    let mut reader = BufReader::new(connection);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.strip_suffix("\r\n")? {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let mut lines = lines.into_iter();
    let line = lines.next()?;
    let headers: Vec<_> = lines
        .map(|line| line.split_once(": ").map(|(n, v)| (n.to_lowercase(), v.to_owned())))
        .collect::<Option<_>>()?;
    let length = headers.iter().find(|(name, _)| name == "content-length")?.1.parse().ok()?;
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Call { line, headers, body })
}
