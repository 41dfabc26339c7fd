//! One turn's account of its calls: one at a time, at most so many, each told as an event.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::events::{CallOutcome, CallRoute, EventKind, EventSender};
use crate::rules::Refusal;
use crate::turn::{CallRecord, CallSummary, TokenUsage};

/// The account.
pub(crate) struct Ledger {
    max_calls: u32,
    events: EventSender,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    busy: bool,
    summary: CallSummary,
}

impl Ledger {
    pub fn new(max_calls: u32, events: EventSender) -> Self {
        Self { max_calls, events, state: Mutex::default() }
    }

    /// Counts a call, unless one is in flight or the budget is used up. What fails later has been counted:
    /// a worker gets no refund for asking badly or hanging up.
    pub fn admit(&self, route: CallRoute) -> Result<Entry<'_>, Refusal> {
        let mut state = self.state();
        if state.busy || state.summary.calls >= self.max_calls {
            return Err(Refusal::Busy);
        }
        state.busy = true;
        state.summary.calls += 1;
        Ok(Entry {
            ledger: self,
            call: state.summary.calls,
            route,
            started: Instant::now(),
            told: false,
            request_bytes: 0,
            answer_bytes: 0,
            retries: 0,
            tokens: None,
            outcome: CallOutcome::Cancelled,
        })
    }

    pub fn summary(&self) -> CallSummary {
        self.state().summary.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call in flight. Dropping it ends the call, as cancelled unless an outcome was set.
pub(crate) struct Entry<'a> {
    ledger: &'a Ledger,
    pub call: u32,
    pub route: CallRoute,
    started: Instant,
    told: bool,
    pub request_bytes: usize,
    pub answer_bytes: usize,
    pub retries: u32,
    pub tokens: Option<TokenUsage>,
    pub outcome: CallOutcome,
}

impl Entry<'_> {
    /// Tells that the call has begun, once it is known what it is.
    pub fn tell_started(&mut self) {
        if !self.told {
            self.told = true;
            self.ledger
                .events
                .emit(EventKind::CallStarted { call: self.call, route: self.route.clone() });
        }
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.tell_started();
        let took = self.started.elapsed();
        {
            let mut state = self.ledger.state();
            state.busy = false;
            let summary = &mut state.summary;
            summary.model_calls += u32::from(self.route == CallRoute::Model);
            summary.failed += u32::from(self.outcome != CallOutcome::Ok);
            summary.request_bytes += self.request_bytes as u64;
            summary.answer_bytes += self.answer_bytes as u64;
            if let Some(tokens) = self.tokens {
                summary.tokens = Some(summary.tokens.unwrap_or_default().plus(tokens));
            }
            summary.ended.push(CallRecord {
                route: self.route.clone(),
                outcome: self.outcome,
                took,
                request_bytes: self.request_bytes,
                answer_bytes: self.answer_bytes,
                retries: self.retries,
            });
        }
        self.ledger.events.emit(EventKind::CallEnded {
            call: self.call,
            route: self.route.clone(),
            outcome: self.outcome,
            took,
            request_bytes: self.request_bytes,
            answer_bytes: self.answer_bytes,
            retries: self.retries,
        });
    }
}
