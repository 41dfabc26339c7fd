//! One call of a turn, from the host's side: who it is for, how long it may take, how it asks upstreams.

use std::borrow::Cow;
use std::time::Duration;

use hyper::header::HeaderMap;
use serde_json::Value;
use tokio::time::Instant;

use crate::credential::{CredentialError, CredentialRequest, Slot};
use crate::events::CallOutcome;
use crate::handler::TurnState;
use crate::rules::Refusal;
use crate::tools::ToolContext;
use crate::upstream::{Attempts, Endpoint, RetryOn, UpstreamError};

/// Why a call gives nothing: what the guest is told, how the call is counted, and what the host's log says.
#[derive(Debug)]
pub(crate) struct Failure {
    pub refusal: Refusal,
    pub outcome: CallOutcome,
    pub cause: Cow<'static, str>,
}

impl Failure {
    /// A failure behind the rules: the guest gets the same words for all of them.
    pub fn failed(outcome: CallOutcome, cause: impl Into<Cow<'static, str>>) -> Self {
        Self { refusal: Refusal::Failed, outcome, cause: cause.into() }
    }

    /// A failure of an upstream, named for the host's log.
    pub fn upstream(endpoint: &Endpoint, error: &UpstreamError) -> Self {
        Self::failed(error.outcome(), format!("{}: {error}", endpoint.name()))
    }

    /// A request that asks for something it may not have.
    pub fn refused(refusal: Refusal) -> Self {
        Self { refusal, outcome: CallOutcome::Refused, cause: refusal.text().into() }
    }
}

impl From<CredentialError> for Failure {
    fn from(error: CredentialError) -> Self {
        Self::failed(CallOutcome::Credential, error.to_string())
    }
}

/// A call in flight.
pub(crate) struct Call<'a> {
    pub turn: &'a TurnState,
    /// When its answer must have come.
    pub deadline: Instant,
}

impl Call<'_> {
    pub fn time_left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// What a tool is told about the turn; its `cancel` is the tool's own.
    pub fn tool_context(&self) -> ToolContext {
        let context = &self.turn.context;
        ToolContext {
            channel: context.channel.clone(),
            space: context.space.clone(),
            speaker: context.speaker.clone(),
            tool_result_bytes: context.tool_result_bytes,
            cancel: context.cancel.child_token(),
        }
    }

    /// For whom credentials are asked.
    pub fn asker(&self) -> CredentialRequest<'_> {
        self.turn.asker()
    }

    /// Asks for an endpoint's credential, remembers it, and puts it into `headers`.
    pub async fn authorize(
        &self,
        slot: Option<&Slot>,
        headers: &mut HeaderMap,
    ) -> Result<(), Failure> {
        if let Some(slot) = slot {
            let secret = self.turn.secrets.ask(slot, self.asker()).await?;
            headers.insert(slot.header().clone(), slot.header_value(&secret)?);
        }
        Ok(())
    }

    /// Posts JSON to something that may act on it, so that only a connection that never stood is tried again.
    pub async fn post_once(
        &self,
        endpoint: &Endpoint,
        slot: Option<&Slot>,
        body: &Value,
    ) -> Result<Value, Failure> {
        let mut headers = HeaderMap::new();
        self.authorize(slot, &mut headers).await?;
        let mut retried = 0;
        self.post(endpoint, headers, body, RetryOn::Unsent, &mut retried).await
    }

    /// Posts JSON and reads a JSON answer, all within the call's time.
    pub async fn post(
        &self,
        endpoint: &Endpoint,
        headers: HeaderMap,
        body: &Value,
        retry_on: RetryOn,
        retried: &mut u32,
    ) -> Result<Value, Failure> {
        let retries = self.turn.shared.policy.model.retries;
        let attempts = Attempts { retries, retry_on, deadline: self.deadline };
        let answered = self.turn.shared.upstream.post(endpoint, headers, body, attempts, retried);
        answered.await.map_err(|error| Failure::upstream(endpoint, &error))
    }
}
