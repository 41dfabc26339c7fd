//! One turn's requests: admitted by the rules, counted, performed, answered. Knows nothing of sockets.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Body;
use serde_json::{Map, Value};
use tokio::time::Instant;
use turnjail_protocol::limits::{BROKER_ANSWER_BYTES, BROKER_REQUEST_BYTES};
use turnjail_protocol::{json, text};

use crate::broker::Shared;
use crate::call::{Call, Failure};
use crate::credential::CredentialRequest;
use crate::events::{CallOutcome, CallRoute};
use crate::ledger::{Entry, Ledger};
use crate::model;
use crate::rules::{self, Refusal, RequestHead, Route};
use crate::secrets::TurnSecrets;
use crate::turn::{TokenUsage, TurnContext};
use crate::upstream::RetryOn;

/// What a call may take beyond an upstream's own time: for reading its body and handing things over.
const CALL_MARGIN: Duration = Duration::from_secs(4);

/// An answer to the worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub status: u16,
    pub content_type: &'static str,
    pub body: Bytes,
}

impl Answer {
    fn json(body: Bytes) -> Self {
        Self { status: 200, content_type: "application/json", body }
    }

    pub fn refusal(refusal: Refusal) -> Self {
        Self {
            status: refusal.status(),
            content_type: "text/plain; charset=utf-8",
            body: Bytes::from_static(refusal.text().as_bytes()),
        }
    }
}

/// A turn as its requests see it.
pub(crate) struct TurnState {
    pub shared: Arc<Shared>,
    pub context: TurnContext,
    pub secrets: TurnSecrets,
    pub ledger: Ledger,
}

impl TurnState {
    pub fn new(shared: Arc<Shared>, context: TurnContext) -> Self {
        let ledger = Ledger::new(shared.policy.max_calls, context.events.clone());
        Self { shared, context, secrets: TurnSecrets::default(), ledger }
    }

    /// For whom credentials are asked.
    pub fn asker(&self) -> CredentialRequest<'_> {
        CredentialRequest {
            channel: &self.context.channel,
            space: self.context.space.as_deref(),
            speaker: &self.context.speaker,
        }
    }

    /// Answers one request. Dropping the future cancels the call.
    pub async fn handle<B>(&self, head: &RequestHead<'_>, body: B) -> Answer
    where
        B: Body<Data = Bytes> + Unpin,
    {
        self.serve(head, body).await.map_or_else(Answer::refusal, Answer::json)
    }

    async fn serve<B>(&self, head: &RequestHead<'_>, body: B) -> Result<Bytes, Refusal>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let route = rules::route(head, &self.shared.policy.routes)?;
        if self.context.cancel.is_cancelled() {
            return Err(Refusal::Ended);
        }
        let mut entry = self.ledger.admit(self.describe(route))?;
        let limit = self.shared.policy.call_timeout + CALL_MARGIN;
        let performed = tokio::select! {
            biased;
            () = self.context.cancel.cancelled() => {
                Err(Failure::failed(CallOutcome::Cancelled, "the turn ended"))
            }
            performed = tokio::time::timeout(limit, self.perform(route, body, &mut entry)) => {
                performed.unwrap_or_else(|_| {
                    Err(Failure::failed(CallOutcome::Timeout, "no result within the time for the call"))
                })
            }
        };
        match performed {
            Ok(answer) => {
                entry.outcome = CallOutcome::Ok;
                entry.answer_bytes = answer.len();
                Ok(answer)
            }
            Err(failure) => {
                entry.outcome = failure.outcome;
                entry.answer_bytes = failure.refusal.text().len();
                log_failure(&entry, &failure);
                Err(failure.refusal)
            }
        }
    }

    fn describe(&self, route: Route) -> CallRoute {
        let routes = &self.shared.policy.routes;
        match route {
            Route::Model => CallRoute::Model,
            Route::Tool(place) => CallRoute::Tool { name: routes.tools[place].clone() },
            Route::Mcp(place) => {
                CallRoute::Mcp { server: routes.servers[place].clone(), tool: None }
            }
        }
    }

    async fn perform<B>(
        &self,
        route: Route,
        body: B,
        entry: &mut Entry<'_>,
    ) -> Result<Bytes, Failure>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let input = read_object(body, entry).await?;
        let deadline = Instant::now() + self.shared.policy.call_timeout;
        let call = Call { turn: self, deadline };
        match route {
            Route::Model => self.ask_model(&input, &call, entry).await,
            Route::Tool(place) => self.call_tool(place, input, &call, entry).await,
            Route::Mcp(place) => self.call_server(place, input, &call, entry).await,
        }
    }

    async fn ask_model(
        &self,
        input: &Map<String, Value>,
        call: &Call<'_>,
        entry: &mut Entry<'_>,
    ) -> Result<Bytes, Failure> {
        let input = model::normalize(input).ok_or(Failure::refused(Refusal::ModelPayload))?;
        entry.tell_started();
        let policy = &self.shared.policy.model;
        let mut headers = policy.headers.clone();
        call.authorize(policy.credential.as_ref(), &mut headers).await?;
        let request = model::request(input, policy);
        let answer = call
            .post(&policy.endpoint, headers, &request, RetryOn::Passing, &mut entry.retries)
            .await?;
        entry.tokens = TokenUsage::of_answer(&answer);
        self.release(&answer).await
    }

    async fn call_tool(
        &self,
        place: usize,
        input: Map<String, Value>,
        call: &Call<'_>,
        entry: &mut Entry<'_>,
    ) -> Result<Bytes, Failure> {
        entry.tell_started();
        let text = self.shared.policy.tools[place].call(input, call).await?;
        let mut answer = Map::new();
        answer.insert("text".to_owned(), Value::String(text));
        self.release(&Value::Object(answer)).await
    }

    async fn call_server(
        &self,
        place: usize,
        input: Map<String, Value>,
        call: &Call<'_>,
        entry: &mut Entry<'_>,
    ) -> Result<Bytes, Failure> {
        let server = &self.shared.policy.servers[place];
        let wanted = server.select(input).ok_or(Failure::refused(Refusal::McpPayload))?;
        if let CallRoute::Mcp { tool, .. } = &mut entry.route {
            *tool = Some(wanted.tool.spec.name.clone());
        }
        entry.tell_started();
        let answer = server.call(wanted, call).await?;
        self.release(&answer).await
    }

    /// Lets an answer out to the guest, unless it is too large or holds a credential.
    async fn release(&self, answer: &Value) -> Result<Bytes, Failure> {
        let shared = &self.shared;
        self.secrets.complete(&shared.policy.slots(), self.asker()).await;
        if self.secrets.are_in(answer) {
            return Err(Failure::failed(CallOutcome::Reflected, "the answer holds a credential"));
        }
        let text = json::stringify(answer);
        if text.len() > BROKER_ANSWER_BYTES {
            return Err(Failure::failed(CallOutcome::TooLarge, "the answer is over 1 MiB"));
        }
        Ok(text.into())
    }
}

/// Reads a request's body: a JSON object of at most 256 KiB.
async fn read_object<B>(mut body: B, entry: &mut Entry<'_>) -> Result<Map<String, Value>, Failure>
where
    B: Body<Data = Bytes> + Unpin,
{
    let too_large = || Failure::failed(CallOutcome::Refused, "the request is over 256 KiB");
    if body.size_hint().lower() > BROKER_REQUEST_BYTES as u64 {
        return Err(too_large());
    }
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame
            .map_err(|_| Failure::failed(CallOutcome::Refused, "the request's body broke off"))?;
        if let Ok(data) = frame.into_data() {
            if data.len() > BROKER_REQUEST_BYTES - whole.len() {
                return Err(too_large());
            }
            whole.extend_from_slice(&data);
        }
    }
    entry.request_bytes = whole.len();
    match json::parse(&text::decode(&whole)) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(Failure::refused(Refusal::NoObject)),
        Err(_) => Err(Failure::failed(CallOutcome::Refused, "the request is not JSON")),
    }
}

/// Tells the operator about a failed call: loudly about a credential on its way out, in passing about what
/// a guest asked for in vain.
fn log_failure(entry: &Entry<'_>, failure: &Failure) {
    let (route, call, cause) = (&entry.route, entry.call, &failure.cause);
    match failure.outcome {
        CallOutcome::Reflected => {
            tracing::error!(
                ?route,
                call,
                "an answer held a credential and was withheld from the guest"
            );
        }
        CallOutcome::Refused | CallOutcome::Cancelled => {
            tracing::debug!(?route, call, %cause, "a call was refused");
        }
        outcome => {
            tracing::warn!(?route, call, outcome = outcome.as_str(), %cause, "a call failed");
        }
    }
}
