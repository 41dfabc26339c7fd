//! An upstream on loopback that answers as a test says and remembers what it was sent.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt, Collected, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Received {
    pub method: String,
    pub target: String,
    pub headers: BTreeMap<String, String>,
    pub body: Value,
}

/// What to answer.
#[derive(Debug, Clone)]
pub enum Reply {
    /// An answer.
    Answer { status: u16, headers: Vec<(String, String)>, body: Bytes },
    /// The connection is closed without a byte.
    Hang,
}

impl Reply {
    pub fn json(status: u16, body: &Value) -> Self {
        Self::Answer { status, headers: Vec::new(), body: body.to_string().into() }
    }
}

type Respond =
    dyn Fn(Received) -> std::pin::Pin<Box<dyn Future<Output = Reply> + Send>> + Send + Sync;

/// The server. It ends with the test's runtime.
pub struct Upstream {
    pub address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
    connections: Arc<Mutex<usize>>,
}

impl Upstream {
    /// Starts a server that answers by `respond`.
    pub async fn start<F>(respond: impl Fn(Received) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Reply> + Send + 'static,
    {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let received = Arc::new(Mutex::new(Vec::new()));
        let connections = Arc::new(Mutex::new(0));
        let respond: Arc<Respond> = Arc::new(move |request| Box::pin(respond(request)));
        let (seen, count) = (Arc::clone(&received), Arc::clone(&connections));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                *count.lock().unwrap() += 1;
                let (respond, seen) = (Arc::clone(&respond), Arc::clone(&seen));
                tokio::spawn(async move {
                    let service = service_fn(|request| serve(request, &respond, &seen));
                    let _ =
                        http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { address, received, connections }
    }

    /// A server that always answers the same.
    pub async fn always(reply: Reply) -> Self {
        Self::start(move |_| std::future::ready(reply.clone())).await
    }

    /// The server's URL with a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Takes what has been received so far.
    pub fn take(&self) -> Vec<Received> {
        std::mem::take(&mut self.received.lock().unwrap())
    }

    /// How many connections have been made.
    pub fn connections(&self) -> usize {
        *self.connections.lock().unwrap()
    }
}

async fn serve(
    request: Request<Incoming>,
    respond: &Arc<Respond>,
    seen: &Mutex<Vec<Received>>,
) -> Result<Response<Full<Bytes>>, std::io::Error> {
    let received = read(request).await;
    seen.lock().unwrap().push(received.clone());
    match respond(received).await {
        Reply::Answer { status, headers, body } => {
            let mut response = Response::builder().status(status);
            for (name, value) in headers {
                response = response.header(name, value);
            }
            Ok(response.body(Full::new(body)).unwrap())
        }
        Reply::Hang => Err(std::io::Error::other("as the test says")),
    }
}

async fn read(request: Request<Incoming>) -> Received {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
    Received {
        method: parts.method.to_string(),
        target: parts.uri.to_string(),
        headers: parts
            .headers
            .iter()
            .map(|(name, value)| {
                (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
            })
            .collect(),
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
    }
}
