//! What a turn leaves: its reply and the record of how it came about.

use std::time::Duration;

use turnjail_broker::CallSummary;
use turnjail_driver::Receipt;
use turnjail_protocol::Reply;

use crate::TurnError;

/// A finished turn.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TurnResult {
    /// What to say to the guest. `ok` is false when the worker could not finish in its own terms, such
    /// as at its limit of model calls; that is no error.
    pub reply: Reply,
    /// How the turn went.
    pub receipt: TurnReceipt,
}

impl TurnResult {
    /// This result, or the error of what was left of the turn, with this result in it.
    pub(crate) fn unless_left(self, left: Option<TurnError>) -> Result<Self, TurnError> {
        match left {
            None => Ok(self),
            Some(TurnError::Cleanup { cause, remedy, .. }) => {
                Err(TurnError::Cleanup { cause, remedy, result: Some(Box::new(self)) })
            }
            Some(error) => Err(error),
        }
    }
}

/// How a turn went.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TurnReceipt {
    /// The turn's id: 16 hexadecimal digits, on every log line about it.
    pub turn: String,
    /// Whether the channel's history was reset.
    pub reset: bool,
    /// How long the turn waited for its workspace.
    pub waited: Duration,
    /// How long it took from then until nothing of it was left.
    pub took: Duration,
    /// What it asked of the broker.
    pub calls: CallSummary,
    /// The driver's record: what was asked, what was in force, what was used.
    pub run: Receipt,
}
