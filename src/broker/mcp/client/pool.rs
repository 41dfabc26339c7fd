//! Who shares a session: the turns of one channel, or all. Idle sessions end, lost ones are begun again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::time::Instant;

use super::dial::Dialer;
use super::http::Authorization;
use super::session::{CallFault, Session};
use crate::call::{Call, Failure};
use crate::credential::{CredentialRequest, Slot};
use crate::events::CallOutcome;
use crate::mcp::pin::{Offer, without_secret};
use crate::mcp::server::answer;
use crate::mcp::settings::McpScope;
use crate::turn::Principal;
use crate::upstream::Upstream;

/// Sessions with one server that live at once.
const MAX_SESSIONS: usize = 64;
/// A session that nobody has used for so long ends.
const IDLE: Duration = Duration::from_secs(300);
/// How often idle sessions are looked for.
const SWEEP: Duration = Duration::from_secs(30);
/// The longest wait before a lost session is begun again.
const MAX_BACK_OFF: Duration = Duration::from_secs(60);

/// The sessions with one server.
pub(in crate::mcp) struct Pool {
    dialer: Dialer,
    scope: McpScope,
    places: Mutex<HashMap<String, Arc<Place>>>,
}

/// One channel's place, with or without a session in it.
struct Place {
    state: tokio::sync::Mutex<State>,
    used: Mutex<Instant>,
}

#[derive(Default)]
struct State {
    session: Option<Arc<Session>>,
    failures: u32,
    not_before: Option<Instant>,
}

impl Pool {
    pub fn new(dialer: Dialer, scope: McpScope) -> Self {
        Self { dialer, scope, places: Mutex::default() }
    }

    pub fn dialer(&self) -> &Dialer {
        &self.dialer
    }

    /// Begins a first session to see whether the server is there, and asks for its tools when wanted. A
    /// session for the whole host is kept.
    pub async fn greet(
        self: &Arc<Self>,
        credential: Option<&Slot>,
        upstream: &Upstream,
        list: bool,
    ) -> Result<Vec<Offer>, String> {
        let nobody = Principal::default();
        let (authorization, secret) = match credential {
            Some(slot) => {
                let secret = slot.get(CredentialRequest::at_start(&nobody)).await;
                let secret = secret.map_err(|error| error.to_string())?;
                let authorization = Authorization::new(slot, &secret);
                (Some(authorization.map_err(|error| error.to_string())?), Some(secret))
            }
            None => (None, None),
        };
        let session = self.dialer.dial(upstream, authorization).await?;
        let offers = if list { session.list_tools().await? } else { Vec::new() };
        let offers = without_secret(offers, secret.as_ref())?;
        match self.scope {
            McpScope::Host => {
                if let Ok(place) = self.place("") {
                    place.state.lock().await.session = Some(Arc::new(session));
                }
            }
            McpScope::Channel => session.close().await,
        }
        tokio::spawn(sweep(Arc::downgrade(self)));
        Ok(offers)
    }

    /// Calls a tool in the session of the turn's channel.
    pub async fn call(
        &self,
        remote: &str,
        arguments: Map<String, Value>,
        credential: Option<&Slot>,
        call: &Call<'_>,
    ) -> Result<Value, Failure> {
        let authorization = match credential {
            Some(slot) => {
                let secret = call.turn.secrets.ask(slot, call.asker()).await?;
                Some(Authorization::new(slot, &secret)?)
            }
            None => None,
        };
        let key = match self.scope {
            McpScope::Channel => call.turn.context.channel.as_str(),
            McpScope::Host => "",
        };
        let place = self.place(key)?;
        let called = async {
            let session =
                self.session(&place, authorization.clone(), &call.turn.shared.upstream).await?;
            let answered = session.call(remote, arguments, authorization).await;
            if !matches!(answered, Ok(_) | Err(CallFault::Odd(_))) || !session.is_alive() {
                place.forget(&session).await;
            }
            answered.map_err(Failure::from)
        };
        let answered = tokio::time::timeout_at(call.deadline, called).await;
        place.touch();
        let (kind, value) = answered.map_err(|_| {
            Failure::failed(
                CallOutcome::Timeout,
                "the MCP server gave no answer within the time for the call",
            )
        })??;
        Ok(answer(kind, value))
    }

    /// The session of a place, begun when there is none or the last one is lost.
    async fn session(
        &self,
        place: &Place,
        authorization: Option<Authorization>,
        upstream: &Upstream,
    ) -> Result<Arc<Session>, Failure> {
        let mut state = place.state.lock().await;
        if let Some(session) = state.session.as_ref().filter(|session| session.is_alive()) {
            return Ok(Arc::clone(session));
        }
        state.session = None;
        if let Some(not_before) = state.not_before.filter(|not_before| *not_before > Instant::now())
        {
            let wait = not_before.duration_since(Instant::now()).as_secs_f32();
            return Err(Failure::failed(
                CallOutcome::Unreachable,
                format!("the MCP server is lost; it is tried again in {wait:.1} s"),
            ));
        }
        match self.dialer.dial(upstream, authorization).await {
            Ok(session) => {
                let session = Arc::new(session);
                *state = State { session: Some(Arc::clone(&session)), ..State::default() };
                Ok(session)
            }
            Err(problem) => {
                let back_off = Duration::from_secs(1 << state.failures.min(6)).min(MAX_BACK_OFF);
                state.failures += 1;
                state.not_before = Some(Instant::now() + back_off);
                Err(Failure::failed(CallOutcome::Unreachable, format!("the MCP server {problem}")))
            }
        }
    }

    /// The place of a key. When all are taken the one that was left longest ago goes, unless all are in use.
    fn place(&self, key: &str) -> Result<Arc<Place>, Failure> {
        let mut places = self.places();
        if let Some(place) = places.get(key) {
            return Ok(Arc::clone(place));
        }
        if places.len() >= MAX_SESSIONS {
            let idle = places.iter().filter(|(_, place)| Arc::strong_count(place) == 1);
            let oldest = idle.min_by_key(|(_, place)| place.used_at()).map(|(key, _)| key.clone());
            let oldest = oldest.ok_or_else(|| {
                Failure::failed(
                    CallOutcome::Unreachable,
                    format!("all {MAX_SESSIONS} sessions are in use"),
                )
            })?;
            places.remove(&oldest);
        }
        let place = Arc::new(Place {
            state: tokio::sync::Mutex::default(),
            used: Mutex::new(Instant::now()),
        });
        places.insert(key.to_owned(), Arc::clone(&place));
        Ok(place)
    }

    fn places(&self) -> MutexGuard<'_, HashMap<String, Arc<Place>>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    fn used_at(&self) -> Instant {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn touch(&self) {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Lets a lost session go, unless another has taken its place.
    async fn forget(&self, lost: &Arc<Session>) {
        let mut state = self.state.lock().await;
        if state.session.as_ref().is_some_and(|session| Arc::ptr_eq(session, lost)) {
            state.session = None;
        }
    }
}

/// Ends idle sessions for as long as the pool is there.
async fn sweep(pool: Weak<Pool>) {
    loop {
        tokio::time::sleep(SWEEP).await;
        let Some(pool) = pool.upgrade() else { return };
        if pool.scope == McpScope::Channel {
            let ended: Vec<Arc<Place>> = pool
                .places()
                .extract_if(|_, place| {
                    Arc::strong_count(place) == 1 && place.used_at().elapsed() > IDLE
                })
                .map(|(_, place)| place)
                .collect();
            drop(ended);
        }
    }
}

impl From<CallFault> for Failure {
    fn from(fault: CallFault) -> Self {
        match fault {
            CallFault::Lost(problem) => Self::failed(
                CallOutcome::Upstream,
                format!("the session with the MCP server is lost: {problem}"),
            ),
            CallFault::Odd(problem) => Self::failed(CallOutcome::Upstream, problem),
        }
    }
}
