//! One turn's broker: who it is for.

use tokio_util::sync::CancellationToken;

use crate::events::EventSender;

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
}
