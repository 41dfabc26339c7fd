//! The broker's socket with a scripted model behind it.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use turnjail_protocol::json::{self, Value};

use super::Fault;

/// What the model does with a call.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    /// Says this, and nothing more.
    Says(String),
    /// Answers with a status of failure.
    Refuses,
    /// Never answers.
    Hangs,
}

/// What a worker has done with the socket.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    /// The bodies of its calls, in order.
    pub calls: Vec<Value>,
    /// How many calls have neither been answered nor hung up on.
    pub open: usize,
}

/// A served socket; dropping it ends it.
pub(super) struct Model {
    seen: Arc<watch::Sender<Seen>>,
    serving: JoinHandle<()>,
}

impl Model {
    /// Listens at `socket`. Calls past the script hang.
    pub fn serve(socket: &Path, script: Vec<Answer>) -> Result<Self, Fault> {
        let failed = |error| Fault::new(format!("the suite cannot listen at {socket:?}: {error}"));
        let listener = UnixListener::bind(socket).map_err(failed)?;
        std::fs::set_permissions(socket, PermissionsExt::from_mode(0o600)).map_err(failed)?;
        let seen = Arc::new(watch::Sender::new(Seen::default()));
        let script = Arc::new(Mutex::new(VecDeque::from(script)));
        let serving = tokio::spawn(accept(listener, seen.clone(), script));
        Ok(Self { seen, serving })
    }

    pub fn seen(&self) -> Seen {
        self.seen.borrow().clone()
    }

    /// Returns when this holds of what the worker has done.
    pub async fn until(&self, holds: impl FnMut(&Seen) -> bool) {
        let _ = self.seen.subscribe().wait_for(holds).await;
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

type Script = Arc<Mutex<VecDeque<Answer>>>;

async fn accept(listener: UnixListener, seen: Arc<watch::Sender<Seen>>, script: Script) {
    // Dropped with this task, which ends every connection.
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (seen, script) = (seen.clone(), script.clone());
        connections.spawn(async move {
            let service = service_fn(|request| answer(request, seen.clone(), script.clone()));
            // A worker that hangs up is not this side's error.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

/// A call that is not yet over; dropping it, also because the worker hung up, ends it.
struct Open(Arc<watch::Sender<Seen>>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.send_modify(|seen| seen.open -= 1);
    }
}

async fn answer(
    request: Request<Incoming>,
    seen: Arc<watch::Sender<Seen>>,
    script: Script,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let Ok(body) = request.into_body().collect().await else {
        return Ok(plain(StatusCode::BAD_REQUEST));
    };
    let body = json::parse(&String::from_utf8_lossy(&body.to_bytes())).unwrap_or(Value::Null);
    seen.send_modify(|seen| {
        seen.calls.push(body);
        seen.open += 1;
    });
    let _open = Open(seen);
    let answer = script.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    Ok(match answer {
        Some(Answer::Says(text)) => said(&text),
        Some(Answer::Refuses) => plain(StatusCode::BAD_GATEWAY),
        Some(Answer::Hangs) | None => std::future::pending().await,
    })
}

fn said(text: &str) -> Response<Full<Bytes>> {
    let body =
        serde_json::json!({"choices": [{"message": {"role": "assistant", "content": text}}]});
    let mut response = Response::new(Full::new(Bytes::from(json::stringify(&body))));
    let json = hyper::header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(hyper::header::CONTENT_TYPE, json);
    response
}

fn plain(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(b"broker call failed")));
    *response.status_mut() = status;
    response
}
