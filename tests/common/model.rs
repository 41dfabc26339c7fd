//! A model server on loopback whose answers the test decides.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

/// What the model does with a request.
pub enum Answer {
    /// Says this; the turn ends.
    Says(String),
    /// Calls these functions, with their arguments.
    Calls(Vec<(&'static str, Value)>),
    /// Answers with a status of failure.
    Fails,
    /// Answers with what is no model's answer.
    Babbles,
    /// Never answers.
    Hangs,
}

type Mind = Arc<dyn Fn(&Value) -> Answer + Send + Sync>;

/// The running server; it ends when this is dropped.
pub struct Model {
    url: String,
    requests: Arc<Mutex<Vec<Value>>>,
    serving: JoinHandle<()>,
}

impl Model {
    /// Serves with this mind, which sees each request's body.
    ///
    /// # Panics
    /// When there is no port to serve on.
    pub async fn start(mind: impl Fn(&Value) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let url = format!("http://{}/v1/chat/completions", listener.local_addr().expect("it"));
        let requests = Arc::default();
        let serving = tokio::spawn(serve(listener, Arc::new(mind), Arc::clone(&requests)));
        Self { url, requests, serving }
    }

    /// Where it serves.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The bodies of all requests so far.
    pub fn requests(&self) -> Vec<Value> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(listener: TcpListener, mind: Mind, requests: Arc<Mutex<Vec<Value>>>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (mind, requests) = (Arc::clone(&mind), Arc::clone(&requests));
        connections.spawn(async move {
            let service = service_fn(|request| answer(request, &mind, &requests));
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    mind: &Mind,
    requests: &Mutex<Vec<Value>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let Ok(body) = request.into_body().collect().await else {
        return Ok(plain(StatusCode::BAD_REQUEST, ""));
    };
    let body: Value = serde_json::from_slice(&body.to_bytes()).unwrap_or_default();
    let answer = mind(&body);
    requests.lock().unwrap_or_else(PoisonError::into_inner).push(body);
    Ok(match answer {
        Answer::Says(text) => message(&json!({"role": "assistant", "content": text})),
        Answer::Calls(calls) => message(&json!({
            "role": "assistant",
            "content": "",
            "tool_calls": calls.iter().enumerate().map(|(index, (name, arguments))| json!({
                "id": format!("call-{index}"),
                "type": "function",
                "function": {"name": name, "arguments": arguments.to_string()},
            })).collect::<Vec<_>>(),
        })),
        Answer::Fails => plain(StatusCode::FORBIDDEN, "no"),
        Answer::Babbles => plain(StatusCode::OK, "<html>"),
        Answer::Hangs => std::future::pending().await,
    })
}

fn message(message: &Value) -> Response<Full<Bytes>> {
    let usage = json!({"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107});
    plain(StatusCode::OK, &json!({"choices": [{"message": message}], "usage": usage}).to_string())
}

fn plain(status: StatusCode, body: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body.to_owned())));
    *response.status_mut() = status;
    response
}

/// The message that a turn's request ends with, as the guest wrote it.
///
/// # Panics
/// When it is no request of turnjail's worker.
pub fn last_message(request: &Value) -> String {
    let messages = request["messages"].as_array().expect("messages");
    let user = messages.iter().rev().find(|message| message["role"] == "user").expect("a user");
    let entry: Value =
        serde_json::from_str(user["content"].as_str().expect("text")).expect("an entry");
    entry["message"].as_str().expect("a message").to_owned()
}

/// The result of the last tool call, when the request ends with one.
pub fn last_result(request: &Value) -> Option<String> {
    let message = request["messages"].as_array()?.last()?;
    (message["role"] == "tool").then(|| message["content"].as_str().map(str::to_owned))?
}
