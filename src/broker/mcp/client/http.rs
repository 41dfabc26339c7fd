//! A server over Streamable HTTP, through the same client as every other upstream.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming as Body;
use hyper::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use rmcp::model::{ClientJsonRpcMessage, GetExtensions, JsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    HttpStatusError, SseError, StreamableHttpClient, StreamableHttpError,
    StreamableHttpPostResponse,
};
use sse_stream::{Sse, SseStream};
use tokio::time::Instant;
use turnjail_protocol::text;

use super::{MAX_MESSAGE, wire};
use crate::credential::{CredentialError, Secret, Slot};
use crate::upstream::{self, Attempts, Endpoint, RetryOn, Upstream, UpstreamError};

/// Bytes of one answer that comes as a stream of events, progress included.
const MAX_STREAM: usize = 4 * MAX_MESSAGE;
/// How long a connection is tried for.
const CONNECT_TIME: Duration = Duration::from_secs(20);
/// The head of a session, in both directions.
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// A call's own credential, carried by its request. It never reaches the wire but as a header.
#[derive(Debug, Clone)]
pub(super) struct Authorization(pub HeaderName, pub HeaderValue);

impl Authorization {
    pub fn new(slot: &Slot, secret: &Secret) -> Result<Self, CredentialError> {
        Ok(Self(slot.header().clone(), slot.header_value(secret)?))
    }
}

/// The client of one session.
#[derive(Clone)]
pub(super) struct SessionClient {
    pub upstream: Upstream,
    pub endpoint: Endpoint,
    pub retries: u32,
    /// The credential of messages that belong to no call: the last one that was used.
    pub latest: Arc<Mutex<Option<Authorization>>>,
}

type Failure = StreamableHttpError<UpstreamError>;

impl SessionClient {
    async fn send(
        &self,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<Body>, Failure> {
        let attempts = Attempts {
            retries: self.retries,
            retry_on: RetryOn::Unsent,
            deadline: Instant::now() + CONNECT_TIME,
        };
        let mut retried = 0;
        let sent = attempts.run(&mut retried, || {
            let mut request = Request::new(Full::new(body.clone()));
            *request.method_mut() = method.clone();
            *request.uri_mut() = self.endpoint.uri().clone();
            *request.headers_mut() = headers.clone();
            self.upstream.send(&self.endpoint, request)
        });
        let response = sent.await.map_err(StreamableHttpError::Client)?;
        if response.headers().get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
            return Err(invalid("the answer is compressed, which was not asked for"));
        }
        Ok(response)
    }

    /// The headers of a request: the protocol's, the session's, and the credential.
    fn headers(
        &self,
        protocol: HashMap<HeaderName, HeaderValue>,
        session: Option<&str>,
        own: Option<Authorization>,
    ) -> Result<HeaderMap, Failure> {
        let mut headers: HeaderMap = protocol.into_iter().collect();
        if let Some(session) = session {
            let value = HeaderValue::from_str(session)
                .map_err(|_| invalid("the session's id cannot stand in a header"))?;
            headers.insert(SESSION, value);
        }
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if own.is_some() {
            *latest = own;
        }
        if let Some(Authorization(name, value)) = &*latest {
            headers.insert(name.clone(), value.clone());
        }
        Ok(headers)
    }
}

impl StreamableHttpClient for SessionClient {
    type Error = UpstreamError;

    async fn post_message(
        &self,
        _: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _: Option<String>,
        protocol: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Failure> {
        let own = match &message {
            JsonRpcMessage::Request(request) => {
                request.request.extensions().get::<Authorization>().cloned()
            }
            _ => None,
        };
        let mut headers = self.headers(protocol, session.as_deref(), own)?;
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        let body = Bytes::from(wire::write(&message)?);
        let response = self.send(Method::POST, headers, body).await?;
        let expects_answer = matches!(message, JsonRpcMessage::Request(_));
        read_answer(response, session.is_some(), expects_answer).await
    }

    async fn delete_session(
        &self,
        _: Arc<str>,
        session: Arc<str>,
        _: Option<String>,
        protocol: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Failure> {
        let headers = self.headers(protocol, Some(&session), None)?;
        let response = self.send(Method::DELETE, headers, Bytes::new()).await?;
        match response.status() {
            StatusCode::METHOD_NOT_ALLOWED => {
                Err(StreamableHttpError::ServerDoesNotSupportDeleteSession)
            }
            _ => Ok(()),
        }
    }

    async fn get_stream(
        &self,
        _: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        _: Option<String>,
        protocol: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Failure> {
        // Only to go on with an answer that broke off: what a server wants to ask by itself is not heard.
        let Some(last_event) = last_event else {
            return Err(StreamableHttpError::ServerDoesNotSupportSse);
        };
        let mut headers = self.headers(protocol, session.as_deref(), None)?;
        let last_event = HeaderValue::from_str(&last_event)
            .map_err(|_| invalid("the event's id cannot stand in a header"))?;
        headers.insert(LAST_EVENT, last_event);
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        let response = self.send(Method::GET, headers, Bytes::new()).await?;
        match (response.status(), media_type(&response)) {
            (status, MediaType::Events) if status.is_success() => Ok(events(response)),
            (StatusCode::METHOD_NOT_ALLOWED, _) => {
                Err(StreamableHttpError::ServerDoesNotSupportSse)
            }
            (status, _) => Err(HttpStatusError::new(status.as_u16(), None).into()),
        }
    }
}

/// Reads the answer to a POST in whichever of its forms it comes.
async fn read_answer(
    response: Response<Body>,
    in_session: bool,
    expects_answer: bool,
) -> Result<StreamableHttpPostResponse, Failure> {
    let status = response.status();
    if status == StatusCode::NOT_FOUND && in_session {
        return Err(StreamableHttpError::SessionExpired);
    }
    let session =
        response.headers().get(SESSION).and_then(|id| id.to_str().ok()).map(str::to_owned);
    let media_type = media_type(&response);
    if !status.is_success() {
        // Servers refuse a handshake with a JSON-RPC error under a status of failure.
        let error = match media_type {
            MediaType::Json => read_json(response).await.ok(),
            _ => None,
        };
        return match error {
            Some(error @ JsonRpcMessage::Error(_)) => {
                Ok(StreamableHttpPostResponse::Json(error, session))
            }
            _ => Err(HttpStatusError::new(status.as_u16(), None).into()),
        };
    }
    match media_type {
        _ if !expects_answer => Ok(StreamableHttpPostResponse::Accepted),
        MediaType::Events => Ok(StreamableHttpPostResponse::Sse(events(response), session)),
        MediaType::Json => {
            Ok(StreamableHttpPostResponse::Json(read_json(response).await?, session))
        }
        MediaType::Other => Err(invalid("the answer is neither JSON nor a stream of events")),
    }
}

async fn read_json(response: Response<Body>) -> Result<super::Incoming, Failure> {
    let body = upstream::read_body(response.into_body(), MAX_MESSAGE)
        .await
        .map_err(StreamableHttpError::Client)?;
    wire::read(&text::decode(&body))
        .ok_or_else(|| invalid("the answer is no message of the protocol"))
}

/// The events of an answer, bounded as a whole, with texts that any JSON reader takes.
fn events(response: Response<Body>) -> BoxStream<'static, Result<Sse, SseError>> {
    let body = Limited::new(response.into_body(), MAX_STREAM).map_err(std::io::Error::other);
    SseStream::new(body)
        .map(|event| {
            event.map(|mut event| {
                if let Some(mended) = event.data.as_deref().and_then(wire::mend) {
                    event.data = Some(mended);
                }
                event
            })
        })
        .boxed()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum MediaType {
    Json,
    Events,
    Other,
}

fn media_type(response: &Response<Body>) -> MediaType {
    let value = response.headers().get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let essence = value.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    if essence.eq_ignore_ascii_case(b"application/json") {
        MediaType::Json
    } else if essence.eq_ignore_ascii_case(b"text/event-stream") {
        MediaType::Events
    } else {
        MediaType::Other
    }
}

fn invalid(problem: &'static str) -> Failure {
    StreamableHttpError::Client(UpstreamError::Invalid(problem))
}
