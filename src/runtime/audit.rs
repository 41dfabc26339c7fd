//! The audit record: one for every turn that was admitted, whatever came of it. Never contents.

use nix::fcntl::OFlag;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use turnjail_broker::{CallRecord, TokenUsage};
use turnjail_driver::Receipt;

/// Where audit records go. Called once at the end of every admitted turn, from the turn's own task: it
/// must be quick. A panic in it is logged and costs the record, not the turn.
pub trait AuditSink: Send + Sync {
    /// Takes one record.
    fn record(&self, record: &AuditRecord);
}

/// The record of one turn.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct AuditRecord {
    /// When the turn ended, RFC 3339 in UTC.
    pub time: String,
    /// The turn's id.
    pub turn: String,
    /// The channel's hash: lower-case hex SHA-256 of the channel.
    pub channel: String,
    /// Who spoke, to the operator.
    pub principal: String,
    /// `ok`, `not-ok` for a reply that says so, or the code of the error.
    pub outcome: &'static str,
    /// Whether the channel's history was reset.
    pub reset: bool,
    /// How long the turn waited for its workspace, in microseconds.
    pub waited_us: u64,
    /// How long it took from then until nothing of it was left, in microseconds.
    pub took_us: u64,
    /// Calls to the broker, of every kind.
    pub calls: u32,
    /// Model calls among them.
    pub model_calls: u32,
    /// Calls that ended otherwise than answered.
    pub failed_calls: u32,
    /// Bytes of the worker's requests to the broker.
    pub request_bytes: u64,
    /// Bytes of the broker's answers.
    pub answer_bytes: u64,
    /// Each call: route, outcome, time, sizes.
    pub call_records: Vec<CallRecord>,
    /// What the model calls cost, where the model said it.
    pub tokens: Option<TokenUsage>,
    /// Bytes of the message.
    pub message_bytes: u64,
    /// Bytes of the reply.
    pub reply_bytes: u64,
    /// The driver's record, when a worker was started and the driver could tell: isolation and limits
    /// in force, exit, peak memory, CPU time.
    pub run: Option<Receipt>,
}

/// Audit records as lines of JSON at the end of a file.
#[derive(Debug)]
pub struct AuditLog {
    file: Mutex<File>,
}

impl AuditLog {
    /// Opens the file for appending; a new one is readable for its owner alone.
    pub fn open(path: &Path) -> io::Result<Self> {
        // Should a pipe stand there, the start does not wait for its other end.
        let flags = (OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits();
        let mut options = OpenOptions::new();
        let file = options.append(true).create(true).mode(0o600).custom_flags(flags).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        Ok(Self { file: Mutex::new(file) })
    }
}

impl AuditSink for AuditLog {
    fn record(&self, record: &AuditRecord) {
        let Ok(mut line) = serde_json::to_vec(record) else { return };
        line.push(b'\n');
        // One write, so that lines of several processes do not mix.
        let written = self.file.lock().unwrap_or_else(PoisonError::into_inner).write_all(&line);
        if let Err(error) = written {
            tracing::error!(turn = record.turn, %error, "audit record not written");
        }
    }
}
