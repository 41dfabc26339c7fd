//! Which channels have a turn, who ends them, and which channels start afresh.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::TurnError;

/// Why a turn is ended from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Its channel was told to stop.
    Stopped,
    /// It ran as long as a turn may.
    Timeout,
    /// Nobody waits for it any more.
    Dropped,
    /// The runtime is shutting down.
    ShuttingDown,
}

/// The way to end a turn. The first cause counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ending {
    token: CancellationToken,
    cause: Arc<OnceLock<Cause>>,
}

impl Ending {
    pub fn end(&self, cause: Cause) {
        let _ = self.cause.set(cause);
        self.token.cancel();
    }

    /// The turn is over by itself: what still runs for it ends.
    pub fn over(&self) {
        self.token.cancel();
    }

    pub fn cause(&self) -> Option<Cause> {
        self.cause.get().copied()
    }

    pub fn token(&self) -> &CancellationToken {
        &self.token
    }
}

/// The channels of a runtime: at most one turn each.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    closed: bool,
    active: HashMap<String, Ending>,
    /// Channels whose next successful turn resets history, with the number of the latest request.
    fresh: HashMap<String, u64>,
    fresh_requests: u64,
}

impl Admission {
    /// Takes the channel for one turn.
    pub fn admit(self: &Arc<Self>, channel: &str) -> Result<Admitted, TurnError> {
        let mut state = self.lock();
        if state.closed {
            return Err(TurnError::ShuttingDown);
        }
        if state.active.contains_key(channel) {
            return Err(TurnError::ChannelBusy);
        }
        let ending = Ending::default();
        state.active.insert(channel.to_owned(), ending.clone());
        Ok(Admitted {
            reset: state.fresh.get(channel).copied(),
            channel: channel.to_owned(),
            admission: self.clone(),
            ending,
        })
    }

    pub fn request_fresh(&self, channel: &str) {
        let mut state = self.lock();
        state.fresh_requests += 1;
        let request = state.fresh_requests;
        state.fresh.insert(channel.to_owned(), request);
    }

    pub fn stop(&self, channel: &str) -> bool {
        let ending = self.lock().active.get(channel).cloned();
        // Cancelling runs wakers, which is nothing to do under a lock.
        ending.inspect(|ending| ending.end(Cause::Stopped)).is_some()
    }

    pub fn busy(&self) -> Vec<String> {
        self.lock().active.keys().cloned().collect()
    }

    /// Admits nothing any more and ends every turn.
    pub fn close(&self) {
        let endings: Vec<Ending> = {
            let mut state = self.lock();
            state.closed = true;
            state.active.values().cloned().collect()
        };
        for ending in endings {
            ending.end(Cause::ShuttingDown);
        }
    }

    /// Every change is completed before the lock is let go, so a panic elsewhere breaks nothing.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A channel taken for one turn; dropping it frees the channel.
#[derive(Debug)]
pub(crate) struct Admitted {
    admission: Arc<Admission>,
    channel: String,
    /// The request to start afresh that this turn fulfils if it succeeds.
    reset: Option<u64>,
    ending: Ending,
}

impl Admitted {
    pub fn channel(&self) -> &str {
        &self.channel
    }

    pub fn ending(&self) -> &Ending {
        &self.ending
    }

    /// Whether the turn ignores the channel's history.
    pub fn reset(&self) -> bool {
        self.reset.is_some()
    }

    /// The turn succeeded: its request to start afresh is fulfilled, unless a later one was made.
    pub fn succeeded(&self) {
        let mut state = self.admission.lock();
        if self.reset.is_some() && state.fresh.get(&self.channel).copied() == self.reset {
            state.fresh.remove(&self.channel);
        }
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.admission.lock().active.remove(&self.channel);
    }
}
