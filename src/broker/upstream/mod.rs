//! Calls from the host to what the operator named: HTTP/1.1 with pooled connections, bounded in time and
//! size, no redirects, no proxies but a declared one.

mod answer;
mod connect;
mod endpoint;
mod request;
mod retry;
mod tls;

#[cfg(feature = "mcp-client")]
pub(crate) use answer::read_body;
pub(crate) use endpoint::Endpoint;
pub(crate) use retry::{Attempts, RetryOn};

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::HeaderMap;
use hyper::{Request, Response};
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyperlocal::UnixConnector;
use serde_json::Value;
use turnjail_protocol::limits::BROKER_ANSWER_BYTES;

use crate::error::SetupError;
use crate::events::CallOutcome;
use crate::settings::BrokerSettings;
use connect::Connector;
use request::PreparedPost;

/// How long an idle connection is kept. Servers commonly close theirs after a minute.
const POOL_IDLE: Duration = Duration::from_secs(30);
/// Idle connections kept to one endpoint.
const POOL_SIZE: usize = 64;
/// Bytes of an upstream's response head.
const MAX_HEAD: usize = 64 * 1024;

/// Why an upstream gave no answer. Never shown to a guest.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpstreamError {
    /// No byte of the request was sent.
    #[error("cannot connect: {0}")]
    Connect(String),
    /// The connection failed before a byte of an answer came.
    #[error("no answer: {0}")]
    NoAnswer(String),
    /// The connection failed in the middle of an answer.
    #[error("the answer broke off: {0}")]
    Broken(String),
    /// The answer's status is not one of success.
    #[error("status {status}")]
    Status {
        /// The HTTP status.
        status: u16,
        /// When the upstream wants to be asked again, counted from its answer.
        retry_after: Option<Duration>,
    },
    /// The answer is over its size.
    #[error("the answer is over {0} bytes")]
    TooLarge(usize),
    /// The answer is not what was asked for.
    #[error("{0}")]
    Invalid(&'static str),
    /// The time for the call ran out.
    #[error("no answer within the time for the call")]
    Timeout,
}

impl UpstreamError {
    pub fn outcome(&self) -> CallOutcome {
        match self {
            Self::Connect(_) => CallOutcome::Unreachable,
            Self::NoAnswer(_) | Self::Broken(_) | Self::Status { .. } | Self::Invalid(_) => {
                CallOutcome::Upstream
            }
            Self::TooLarge(_) => CallOutcome::TooLarge,
            Self::Timeout => CallOutcome::Timeout,
        }
    }
}

/// The client that every call goes through.
#[derive(Clone)]
pub(crate) struct Upstream {
    network: Client<Connector, Full<Bytes>>,
    local: Client<UnixConnector, Full<Bytes>>,
}

impl Upstream {
    /// Makes the client; certificates are read once, and only when some endpoint needs them.
    pub fn new(settings: &BrokerSettings, needs_tls: bool) -> Result<Self, SetupError> {
        let connector = Connector::new(settings, needs_tls)?;
        Ok(Self { network: builder().build(connector), local: builder().build(UnixConnector) })
    }

    /// Posts JSON and reads a JSON answer, all within the deadline.
    pub async fn post(
        &self,
        endpoint: &Endpoint,
        headers: HeaderMap,
        body: &Value,
        attempts: Attempts,
        retried: &mut u32,
    ) -> Result<Value, UpstreamError> {
        let request = PreparedPost::new(endpoint, headers, body);
        let tried = attempts.run(retried, || self.exchange(endpoint, &request));
        tokio::time::timeout_at(attempts.deadline, tried)
            .await
            .unwrap_or(Err(UpstreamError::Timeout))
    }

    async fn exchange(
        &self,
        endpoint: &Endpoint,
        request: &PreparedPost,
    ) -> Result<Value, UpstreamError> {
        let response = self.send(endpoint, request.to_request()).await?;
        let response = answer::accept_success(response)?;
        let body = answer::read_body(response.into_body(), BROKER_ANSWER_BYTES).await?;
        answer::parse_json(&body)
    }

    /// Sends a request and returns the head of the answer; the caller reads the body within its bounds.
    pub async fn send(
        &self,
        endpoint: &Endpoint,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, UpstreamError> {
        let sent = match endpoint {
            Endpoint::Network { .. } => self.network.request(request),
            Endpoint::Local { .. } => self.local.request(request),
        };
        sent.await.map_err(|error| classify(&error))
    }
}

fn builder() -> legacy::Builder {
    let mut builder = Client::builder(TokioExecutor::new());
    builder
        .pool_idle_timeout(POOL_IDLE)
        .pool_max_idle_per_host(POOL_SIZE)
        .pool_timer(TokioTimer::new())
        .http1_max_buf_size(MAX_HEAD);
    builder
}

fn classify(error: &legacy::Error) -> UpstreamError {
    let text = chain(error);
    if error.is_connect() { UpstreamError::Connect(text) } else { UpstreamError::NoAnswer(text) }
}

/// An error and its causes in one line: the interesting part is often the innermost.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
