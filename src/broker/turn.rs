//! One turn's broker: who it is for, and what its calls came to.

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::events::{CallOutcome, CallRoute, EventSender, micros};

/// The person whose message a turn answers, as the host admitted them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Principal {
    /// The person's id on their surface.
    pub id: String,
    /// The name they show; not to be trusted for anything.
    pub name: String,
    /// Who they are to the operator. It never enters a jail.
    pub principal_id: String,
}

/// What the host knows about a turn and the guest cannot change.
#[derive(Debug, Clone)]
pub struct TurnContext {
    /// The channel, for example `discord:1234`.
    pub channel: String,
    /// The space the channel belongs to, when it has one.
    pub space: Option<String>,
    /// Whose turn it is.
    pub speaker: Principal,
    /// Bytes of a tool's result that the worker keeps, measured as JSON.
    pub tool_result_bytes: usize,
    /// Cancelled when the turn ends for any reason: calls in flight stop and later ones are refused.
    pub cancel: CancellationToken,
    /// Where the turn's events go.
    pub events: EventSender,
}

/// What a turn's calls came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallSummary {
    /// Calls counted against the budget, of every kind.
    pub calls: u32,
    /// Model calls among them.
    pub model_calls: u32,
    /// Calls that ended otherwise than answered.
    pub failed: u32,
    /// Bytes of request bodies read from the worker.
    pub request_bytes: u64,
    /// Bytes of answers given to the worker.
    pub answer_bytes: u64,
    /// What the model's answers said they cost together; none when none of them said it.
    pub tokens: Option<TokenUsage>,
    /// Every counted call in order of its end.
    pub ended: Vec<CallRecord>,
}

/// What model calls cost, as the upstream reports it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenUsage {
    /// Tokens of the requests.
    pub prompt: u64,
    /// Tokens of the answers.
    pub completion: u64,
}

impl TokenUsage {
    /// The `usage` of a model's answer, when it has one.
    pub(crate) fn of_answer(answer: &Value) -> Option<Self> {
        let usage = answer.get("usage")?;
        let tokens = |key| usage.get(key).and_then(Value::as_u64);
        Some(Self { prompt: tokens("prompt_tokens")?, completion: tokens("completion_tokens")? })
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            prompt: self.prompt.saturating_add(other.prompt),
            completion: self.completion.saturating_add(other.completion),
        }
    }
}

/// One call of a turn, for its record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CallRecord {
    /// Which route it took.
    #[serde(flatten)]
    pub route: CallRoute,
    /// How it ended.
    pub outcome: CallOutcome,
    /// How long it took, in microseconds.
    #[serde(rename = "tookMicros", serialize_with = "micros")]
    pub took: Duration,
    /// Bytes of the worker's request body.
    pub request_bytes: usize,
    /// Bytes of the answer's body.
    pub answer_bytes: usize,
    /// How often the upstream was asked again.
    pub retries: u32,
}
