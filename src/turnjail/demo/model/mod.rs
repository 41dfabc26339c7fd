//! A model server for the demonstration: OpenAI-compatible, on loopback, wanting its own key.
//!
//! It is no language model. It reads the conversation it is sent, as any model would, and decides by
//! rules ([`mind`]) which tool to call or what to say, so that the demonstration needs no account and
//! always says the same. Nothing else knows that: broker, worker and jail treat it like any endpoint.

mod conversation;
mod mind;

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use conversation::Conversation;
use mind::Answer;

/// The name that the endpoint answers to.
pub const NAME: &str = "turnjail-demo";
const PATH: &str = "/v1/chat/completions";
/// The largest request that the broker forwards is smaller.
const REQUEST_BYTES: usize = 1024 * 1024;

/// The running server; it ends when this is dropped.
pub struct DemoModel {
    address: SocketAddr,
    key: Arc<str>,
    serving: JoinHandle<()>,
}

impl DemoModel {
    /// Listens on a free port of loopback, for requests that carry a fresh random key.
    pub async fn start() -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let key: Arc<str> = random_key()?.into();
        let serving = tokio::spawn(serve(listener, Arc::clone(&key)));
        Ok(Self { address, key, serving })
    }

    /// The endpoint.
    pub fn url(&self) -> String {
        format!("http://{}{PATH}", self.address)
    }

    /// The key that it wants.
    pub fn key(&self) -> Arc<str> {
        Arc::clone(&self.key)
    }
}

impl Drop for DemoModel {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn random_key() -> std::io::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
    Ok(format!("demo-key-{:032x}", u128::from_le_bytes(bytes)))
}

/// Accepts until it is aborted; its connections end with it.
async fn serve(listener: TcpListener, key: Arc<str>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        while connections.try_join_next().is_some() {}
        let key = Arc::clone(&key);
        connections.spawn(async move {
            let service = service_fn(move |request| answer(request, Arc::clone(&key)));
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(stream), service);
            // A client that hangs up is no concern of the server's.
            let _ = connection.await;
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    key: Arc<str>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (status, body) = match completion(request, &key).await {
        Ok(body) => (StatusCode::OK, body),
        Err((status, message)) => (status, json!({ "error": { "message": message } })),
    };
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = status;
    let json = hyper::header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    Ok(response)
}

type Refusal = (StatusCode, &'static str);

async fn completion(request: Request<Incoming>, key: &str) -> Result<Value, Refusal> {
    if request.method() != Method::POST || request.uri().path() != PATH {
        return Err((StatusCode::NOT_FOUND, "there is only POST /v1/chat/completions"));
    }
    let wanted = format!("Bearer {key}");
    if request
        .headers()
        .get(AUTHORIZATION)
        .is_none_or(|given| given.as_bytes() != wanted.as_bytes())
    {
        return Err((StatusCode::UNAUTHORIZED, "the key is missing or wrong"));
    }
    let body = Limited::new(request.into_body(), REQUEST_BYTES).collect().await;
    let body =
        body.map_err(|_| (StatusCode::PAYLOAD_TOO_LARGE, "the request is cut or too large"))?;
    let body = serde_json::from_slice(&body.to_bytes())
        .map_err(|_| (StatusCode::BAD_REQUEST, "the request is not JSON"))?;
    let conversation = Conversation::read(&body)
        .ok_or((StatusCode::BAD_REQUEST, "the request has no user message"))?;
    Ok(choice(mind::decide(&conversation), conversation.results.len()))
}

/// A completion in the endpoint's words.
fn choice(answer: Answer, step: usize) -> Value {
    let (message, reason) = match answer {
        Answer::Say(text) => (json!({ "role": "assistant", "content": text }), "stop"),
        Answer::Call { name, arguments } => {
            let call = json!({
                "id": format!("call_{step}"),
                "type": "function",
                "function": { "name": name, "arguments": arguments.to_string() },
            });
            (json!({ "role": "assistant", "content": null, "tool_calls": [call] }), "tool_calls")
        }
    };
    json!({
        "object": "chat.completion",
        "model": NAME,
        "choices": [{ "index": 0, "message": message, "finish_reason": reason }],
    })
}

#[cfg(test)]
mod tests;
