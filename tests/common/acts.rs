//! What the probe is told to do (its protocol is in `probe/main.rs`), in a jail and, as a control,
//! outside of one.

use std::process::{Command, Stdio};

use serde_json::{Value, json};
use turnjail_driver::ExitReason;
use turnjail_jail::{JailSpec, Profile};
use turnjail_warden::seccomp::{machine::Machine, numbers::Call};
use turnjail_warden::wire::Status;

use crate::jails::Bench;

/// The act of making a system call. Its arguments are a JSON array as the probe's protocol says.
///
/// # Panics
/// When this machine lacks the call, or the arguments are no array.
pub fn call(call: Call, arguments: Value) -> Value {
    let number = call.number(Machine::NATIVE).expect("a call of this machine");
    numbered(number, arguments)
}

/// The same by number.
pub fn numbered(number: u32, arguments: Value) -> Value {
    let Value::Array(arguments) = arguments else { panic!("arguments are an array") };
    [json!("call"), json!(number)].into_iter().chain(arguments).collect()
}

/// What became of acts.
#[derive(Debug, Clone)]
pub struct Report {
    /// One line for each act that was reported.
    pub lines: Vec<Value>,
    /// How the probe ended.
    pub end: Status,
    /// What the driver made of it; none outside a jail.
    pub reason: Option<ExitReason>,
}

impl Report {
    fn new(stdout: &[u8], end: Status, reason: Option<ExitReason>) -> Self {
        let lines = String::from_utf8_lossy(stdout);
        let lines = lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        Self { lines, end, reason }
    }

    /// The line of act `index`, counted from 0.
    pub fn line(&self, index: usize) -> &Value {
        self.lines.get(index).unwrap_or_else(|| panic!("act {index} was not reported: {self:?}"))
    }

    /// The value that act `index` gave.
    pub fn value(&self, index: usize) -> i64 {
        let line = self.line(index);
        line["value"].as_i64().unwrap_or_else(|| panic!("act {index} gave no value: {line}"))
    }

    /// The text that act `index` found.
    pub fn text(&self, index: usize) -> &str {
        let line = self.line(index);
        line["text"].as_str().unwrap_or_else(|| panic!("act {index} found no text: {line}"))
    }

    /// The list that act `index` found.
    pub fn list(&self, index: usize) -> &[Value] {
        let line = self.line(index);
        line["list"].as_array().unwrap_or_else(|| panic!("act {index} found no list: {line}"))
    }

    /// Buffer `buffer` of act `index`, as bytes.
    pub fn buffer(&self, index: usize, buffer: usize) -> Vec<u8> {
        let line = self.line(index);
        let hex = line["buffers"][buffer].as_str().unwrap_or_else(|| panic!("no buffer: {line}"));
        let pair = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal");
        (0..hex.len()).step_by(2).map(pair).collect()
    }

    /// The error that the last act got; none when it worked, or was the death of the probe.
    pub fn last_error(&self) -> Option<i64> {
        self.lines.last()?["errno"].as_i64()
    }

    /// Whether every act worked and the probe ended by itself.
    pub fn worked(&self) -> bool {
        self.end == Status::Code(0)
            && !self.lines.is_empty()
            && self.lines.iter().all(|line| line["errno"].is_null())
    }

    /// Whether the one act, touching memory, was refused after so many MiB; or, where the jail has a cgroup,
    /// which counts what the kernel keeps for it as well, the jail was ended for it.
    pub fn met_memory_limit(&self, mib: std::ops::Range<u64>, bench: &Bench) -> bool {
        let made = self.lines.first().and_then(|line| line["made"].as_u64());
        let refused = self.last_error() == Some(ENOMEM) && made.is_some_and(|it| mib.contains(&it));
        let ended = self.reason == Some(ExitReason::Memory) && self.end == Status::Signal(9);
        refused || ended && bench.client().limiter().has_cgroups()
    }

    /// Whether the filter killed the probe at act `index`, and the driver says so.
    pub fn filtered_at(&self, index: usize) -> bool {
        self.end == Status::Signal(SIGSYS)
            && self.lines.len() == index
            && self.reason == Some(ExitReason::Filter)
    }
}

const ENOMEM: i64 = 12;

/// The signal of a filter.
pub const SIGSYS: i32 = 31;

impl Bench {
    /// Does the acts in a jail.
    pub fn acts(&self, profile: Profile, acts: &[Value]) -> Report {
        self.acts_in(&self.spec_for(profile, acts), b"")
    }

    /// A jail that does the acts, to be altered before it is run.
    pub fn spec_for(&self, profile: Profile, acts: &[Value]) -> JailSpec {
        let arguments: Vec<String> = acts.iter().map(Value::to_string).collect();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.spec(profile, &arguments)
    }

    /// Runs such a jail.
    ///
    /// # Panics
    /// When no jail could be made.
    pub fn acts_in(&self, spec: &JailSpec, input: &[u8]) -> Report {
        let ended = self.run(spec, input).unwrap_or_else(|e| panic!("no jail: {e}"));
        Report::new(&ended.stdout, ended.exit.status, Some(ended.reason))
    }

    /// An act that sleeps under any profile, none of whose calls is made for sleeping: it waits for
    /// somebody to open the other end of a FIFO, which nobody does.
    ///
    /// # Panics
    /// When the FIFO cannot be made.
    pub fn sleep(&self) -> Value {
        let path = self.path("workspace").join("never");
        if !path.exists() {
            nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
        }
        json!(["wait", "/workspace/never"])
    }

    /// Does the acts as a plain process of the same user, with nothing between it and the host.
    pub fn outside(&self, acts: &[Value]) -> Report {
        let mut command = Command::new(self.path("root").join("worker"));
        command.args(acts.iter().map(Value::to_string));
        control(command)
    }
}

/// Runs a command that does acts outside any jail.
///
/// # Panics
/// When it cannot be started.
pub fn control(mut command: Command) -> Report {
    use std::os::unix::process::ExitStatusExt as _;
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .unwrap_or_else(|e| panic!("the control cannot be started: {e}"));
    let end = match (output.status.code(), output.status.signal()) {
        (Some(code), _) => Status::Code(code),
        (None, signal) => Status::Signal(signal.unwrap_or(0)),
    };
    Report::new(&output.stdout, end, None)
}
