//! What happens in a turn, told while it happens. The broker sees every call, so the host need not trust
//! the worker for this. Times and sizes, never contents.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::sync::mpsc;

/// Events that may wait unread; more are dropped and counted.
const CAPACITY: usize = 256;

/// Something that happened in a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Event {
    /// Time since the channel was made, which is about when the turn started, in microseconds.
    #[serde(rename = "atMicros", serialize_with = "micros")]
    pub at: Duration,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum EventKind {
    /// The turn began to run.
    TurnStarted,
    /// The worker's jail stands.
    JailReady {
        /// How long that took, in microseconds.
        #[serde(rename = "tookMicros", serialize_with = "micros")]
        took: Duration,
    },
    /// A call was counted and its body read.
    CallStarted {
        /// The number of the call in the turn, from 1.
        call: u32,
        /// Which route it took.
        #[serde(flatten)]
        route: CallRoute,
    },
    /// A call ended.
    CallEnded {
        /// The number of the call in the turn, from 1.
        call: u32,
        /// Which route it took.
        #[serde(flatten)]
        route: CallRoute,
        /// How it ended.
        outcome: CallOutcome,
        /// How long it took, in microseconds.
        #[serde(rename = "tookMicros", serialize_with = "micros")]
        took: Duration,
        /// Bytes of the worker's request body.
        request_bytes: usize,
        /// Bytes of the answer's body.
        answer_bytes: usize,
        /// How often the upstream was asked again.
        retries: u32,
    },
    /// The turn ended.
    TurnEnded {
        /// Whether the worker's reply says that it succeeded.
        ok: bool,
    },
}

/// Which route a call took.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "route", rename_all = "kebab-case")]
pub enum CallRoute {
    /// The model.
    Model,
    /// A host tool.
    Tool {
        /// Its declared name.
        name: String,
    },
    /// An MCP server.
    Mcp {
        /// Its declared name.
        server: String,
        /// The declared tool, unless the call was refused before that was known.
        #[serde(skip_serializing_if = "Option::is_none")]
        tool: Option<String>,
    },
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum CallOutcome {
    /// Answered.
    Ok,
    /// The worker asked for something it may not have, or asked badly.
    Refused,
    /// No credential could be had.
    Credential,
    /// The upstream could not be reached.
    Unreachable,
    /// The upstream answered with a status of failure, or with something that is no valid answer.
    Upstream,
    /// The tool failed.
    Tool,
    /// The time for the call ran out.
    Timeout,
    /// Something was over its size.
    TooLarge,
    /// The answer held a credential.
    Reflected,
    /// The turn ended or the worker hung up.
    Cancelled,
}

impl CallOutcome {
    /// The stable word for logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Refused => "refused",
            Self::Credential => "credential",
            Self::Unreachable => "unreachable",
            Self::Upstream => "upstream",
            Self::Tool => "tool",
            Self::Timeout => "timeout",
            Self::TooLarge => "too-large",
            Self::Reflected => "reflected",
            Self::Cancelled => "cancelled",
        }
    }
}

pub(crate) fn micros<S: serde::Serializer>(
    time: &Duration,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(time.as_micros()).unwrap_or(u64::MAX))
}

/// Makes a bounded channel for one turn's events.
pub fn event_channel() -> (EventSender, EventReceiver) {
    let (sender, receiver) = mpsc::channel(CAPACITY);
    let missed = Arc::new(AtomicU64::new(0));
    (
        EventSender { started: Instant::now(), sender: Some(sender), missed: Arc::clone(&missed) },
        EventReceiver { receiver, missed },
    )
}

/// The end that tells. Cheap to clone; telling never waits.
#[derive(Debug, Clone)]
pub struct EventSender {
    started: Instant,
    sender: Option<mpsc::Sender<Event>>,
    missed: Arc<AtomicU64>,
}

impl EventSender {
    /// A sender nobody listens to.
    pub fn discard() -> Self {
        Self { started: Instant::now(), sender: None, missed: Arc::default() }
    }

    /// Tells what happened. An event that finds the channel full is dropped and counted: a slow reader
    /// never slows a turn.
    pub fn emit(&self, kind: EventKind) {
        let Some(sender) = &self.sender else { return };
        let event = Event { at: self.started.elapsed(), kind };
        if let Err(mpsc::error::TrySendError::Full(_)) = sender.try_send(event) {
            self.missed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The end that listens.
#[derive(Debug)]
pub struct EventReceiver {
    receiver: mpsc::Receiver<Event>,
    missed: Arc<AtomicU64>,
}

impl EventReceiver {
    /// The next event, or `None` when every sender is gone and all is read.
    pub async fn recv(&mut self) -> Option<Event> {
        self.receiver.recv().await
    }

    /// The next event when one is waiting already.
    pub fn try_recv(&mut self) -> Option<Event> {
        self.receiver.try_recv().ok()
    }

    /// How many events were dropped because the channel was full.
    pub fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }
}
