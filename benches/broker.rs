//! What the broker adds to a model call: the same request through a turn's socket, and straight to the
//! model, which answers at once on loopback.
//!
//! `cargo bench -p turnjail-bench --bench broker`

use std::path::PathBuf;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use turnjail_bench::{Contender, Scratch, report, side_by_side, upstream};
use turnjail_broker::{
    Broker, BrokerSettings, Credential, Principal, TurnBroker, TurnContext, event_channel,
};

const CALLS: usize = 2_000;

fn main() {
    let scratch = Scratch::new();
    let url = upstream::start();
    let mut contenders: Vec<Box<dyn Contender>> = vec![
        Box::new(Direct::new(&url)),
        Box::new(Brokered::new(&url, scratch.path().join("broker.sock"))),
    ];
    report("One model call", &side_by_side(&mut contenders, CALLS));
}

/// A request of the size that a turn's first call has.
fn body() -> Value {
    let tool = json!({"type": "function", "function": {
        "name": "memory_set",
        "description": "Remember a speaker fact or a channel note.",
        "parameters": {"type": "object", "properties": {"key": {"type": "string"}}},
    }});
    let messages = [
        json!({"role": "system", "content": "You assist the guests in this channel. ".repeat(20)}),
        json!({"role": "user", "content": "Hello!"}),
    ];
    json!({"messages": messages, "tools": [tool]})
}

struct Direct {
    runtime: Runtime,
    client: Client<HttpConnector, Full<Bytes>>,
    url: String,
}

impl Direct {
    fn new(url: &str) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Self {
            runtime: Runtime::new().expect("a runtime"),
            client: Client::builder(TokioExecutor::new()).build(connector),
            url: url.to_owned(),
        }
    }
}

impl Contender for Direct {
    fn name(&self) -> &'static str {
        "straight to the model"
    }

    fn start(&mut self) -> Duration {
        let body = serde_json::to_vec(&body()).expect("JSON");
        let request = hyper::Request::post(&self.url)
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))
            .expect("a request");
        let start = Instant::now();
        let answer = self.runtime.block_on(async {
            let response = self.client.request(request).await.expect("an answer");
            response.into_body().collect().await.expect("a body").to_bytes()
        });
        let time = start.elapsed();
        assert!(answer.starts_with(b"{\"choices\""));
        time
    }
}

struct Brokered {
    runtime: Runtime,
    broker: Broker,
    turn: Option<TurnBroker>,
    socket: PathBuf,
    left: u32,
}

impl Brokered {
    /// Calls that one turn may make.
    const A_TURN: u32 = 1_000;

    fn new(url: &str, socket: PathBuf) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let mut settings = BrokerSettings::new("model", url, Credential::None);
        settings.allow_http = true;
        settings.max_calls = Self::A_TURN;
        let broker = runtime.block_on(Broker::start(settings)).expect("a broker");
        Self { runtime, broker, turn: None, socket, left: 0 }
    }

    fn next_turn(&mut self) {
        let context = TurnContext {
            channel: "bench:1".to_owned(),
            space: None,
            speaker: Principal {
                id: "a".to_owned(),
                name: "A".to_owned(),
                principal_id: "a".to_owned(),
            },
            tool_result_bytes: 4_096,
            cancel: CancellationToken::new(),
            events: event_channel().0,
        };
        if let Some(turn) = self.turn.take() {
            self.runtime.block_on(turn.close());
        }
        let turn = self.runtime.block_on(self.broker.open(context, &self.socket));
        self.turn = Some(turn.expect("a turn"));
        self.left = Self::A_TURN;
    }
}

impl Contender for Brokered {
    fn name(&self) -> &'static str {
        "through the broker"
    }

    fn start(&mut self) -> Duration {
        if self.left == 0 {
            self.next_turn();
        }
        self.left -= 1;
        let body = body().to_string();
        let request = format!(
            "POST /model HTTP/1.1\r\nhost: broker\r\nauthorization: Bearer sandbox-dummy-key\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let start = Instant::now();
        let answer = self.runtime.block_on(async {
            let mut stream = UnixStream::connect(&self.socket).await.expect("the broker");
            stream.write_all(request.as_bytes()).await.expect("written");
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.expect("read");
            answer
        });
        let time = start.elapsed();
        assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
        time
    }
}
