//! Hostile code in a sealed jail speaks to the broker itself, past the worker.
//!
//! What it may send is in the broker's own tests; here is that the same holds from where it counts.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use turnjail_broker::{
    Broker, BrokerSettings, Credential, Principal, TurnBroker, TurnContext, event_channel,
};
use turnjail_jail::Profile;
use turnjail_tests::jails::Bench;
use turnjail_tests::{Test, harness};

const SOCKET: &str = "/broker/broker.sock";
/// What the upstream says and no guest may see.
const UPSTREAM_WORDS: &str = "words-of-the-upstream";

fn main() -> ExitCode {
    harness(&[
        Test::new("only_what_is_declared_is_served", declared),
        Test::new("model_and_address_cannot_be_changed", pinned),
        Test::new("one_call_runs_at_a_time", single),
        Test::new("nothing_of_an_upstream_failure_is_seen", failure),
        Test::new("connections_that_hang_do_not_wedge_the_listener", hanging),
    ])
}

/// A bench whose run directory has a turn's broker, and what its upstream was sent.
struct Stage {
    bench: Bench,
    sent: Arc<Mutex<Vec<String>>>,
    _broker: Broker,
    _turn: TurnBroker,
}

impl Stage {
    fn new() -> Self {
        let bench = Bench::new();
        let sent = Arc::new(Mutex::new(Vec::new()));
        let mut settings = BrokerSettings::new("pinned", upstream(&sent), Credential::None);
        settings.allow_http = true;
        settings.retries = 0;
        let socket = bench.path("run").join("broker.sock");
        let (broker, turn) = bench.runtime().block_on(async {
            let broker = Broker::start(settings).await.expect("a broker");
            let turn = broker.open(context(), &socket).await.expect("a turn");
            (broker, turn)
        });
        Self { bench, sent, _broker: broker, _turn: turn }
    }

    /// The answers to what is said in one jail, in order.
    fn answers(&self, acts: &[Value]) -> Vec<String> {
        let report = self.bench.acts(Profile::Sealed, acts);
        assert_eq!(report.lines.len(), acts.len(), "{report:?}");
        let text = |line: &Value| line["text"].as_str().unwrap_or_default().to_owned();
        report.lines.iter().map(text).collect()
    }
}

fn context() -> TurnContext {
    let word = || "a".to_owned();
    TurnContext {
        channel: "test:1".to_owned(),
        space: None,
        speaker: Principal { id: word(), name: word(), principal_id: word() },
        tool_result_bytes: 4_096,
        cancel: CancellationToken::new(),
        events: event_channel().0,
    }
}

/// A model on loopback that keeps what it is sent: it fails when told to, and takes its time when told.
fn upstream(sent: &Arc<Mutex<Vec<String>>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let sent = Arc::clone(sent);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let sent = Arc::clone(&sent);
            std::thread::spawn(move || answer(stream, &sent));
        }
    });
    format!("http://{address}/v1/chat/completions")
}

fn answer(mut stream: TcpStream, sent: &Mutex<Vec<String>>) {
    let mut request = Vec::new();
    let mut part = [0; 4096];
    while !complete(&request) {
        match stream.read(&mut part) {
            Ok(read @ 1..) => request.extend_from_slice(&part[..read]),
            _ => return,
        }
    }
    let request = String::from_utf8_lossy(&request).into_owned();
    if request.contains("please be slow") {
        std::thread::sleep(Duration::from_secs(1));
    }
    let (status, body) = if request.contains("please fail") {
        ("500 Internal Server Error", UPSTREAM_WORDS.to_owned())
    } else {
        ("200 OK", json!({"choices": [{"message": {"content": "Hello."}}]}).to_string())
    };
    sent.lock().expect("the list").push(request);
    let length = body.len();
    let head =
        format!("HTTP/1.1 {status}\r\nx-upstream: {UPSTREAM_WORDS}\r\nconnection: close\r\n");
    let _ = write!(stream, "{head}content-length: {length}\r\n\r\n{body}");
}

fn complete(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    length.and_then(|length| length.parse().ok()).is_some_and(|length: usize| body.len() >= length)
}

fn post(path: &str, body: &Value) -> String {
    let body = body.to_string();
    format!(
        "POST {path} HTTP/1.1\r\nhost: broker\r\nauthorization: Bearer sandbox-dummy-key\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn messages(text: &str) -> Value {
    json!({"messages": [{"role": "user", "content": text}]})
}

fn talk(text: &str) -> Value {
    json!(["talk", SOCKET, text])
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or("none")
}

fn declared() {
    let stage = Stage::new();
    let answers = stage.answers(&[
        talk(&post("/model", &messages("hi"))),
        talk(&post("/tools/undeclared", &json!({}))),
        talk(&post("/mcp/undeclared", &json!({}))),
        talk(&post("/v1/chat/completions", &messages("hi"))),
        talk(&post("http://127.0.0.1/model", &messages("hi"))),
        talk("GET /model HTTP/1.1\r\nhost: broker\r\n\r\n"),
    ]);
    assert_eq!(status(&answers[0]), "200", "{answers:?}");
    assert!(answers[1..].iter().all(|answer| status(answer).starts_with('4')), "{answers:?}");
    assert_eq!(stage.sent.lock().expect("the list").len(), 1, "one request went on");
}

fn pinned() {
    let stage = Stage::new();
    let mut body = messages("hi");
    body["model"] = "another".into();
    body["base_url"] = "http://127.0.0.1:1/".into();
    body["max_tokens"] = 1_000_000.into();
    let answers = stage.answers(&[talk(&post("/model", &body))]);
    assert_eq!(status(&answers[0]), "200", "{answers:?}");
    let sent = stage.sent.lock().expect("the list").concat();
    assert!(
        sent.contains("\"model\":\"pinned\"") && sent.contains("\"max_tokens\":4096"),
        "{sent}"
    );
    assert!(!sent.contains("another") && !sent.contains("base_url"), "{sent}");
}

fn single() {
    let stage = Stage::new();
    let slow = json!(["hang", SOCKET, post("/model", &messages("please be slow"))]);
    // The broker reads the first before the second is made: a request in between makes sure.
    let between = talk(&post("/tools/undeclared", &json!({})));
    let second = talk(&post("/model", &messages("hi")));
    let answers = stage.answers(&[slow, between, second]);
    assert_eq!(status(&answers[2]), "429", "{answers:?}");
}

fn failure() {
    let stage = Stage::new();
    let answers = stage.answers(&[talk(&post("/model", &messages("please fail")))]);
    assert_eq!(status(&answers[0]), "502", "{answers:?}");
    assert!(answers[0].ends_with("broker call failed"), "{answers:?}");
    assert!(!answers[0].contains(UPSTREAM_WORDS), "{answers:?}");
}

fn hanging() {
    let stage = Stage::new();
    let mut acts = vec![json!(["hang", SOCKET, "POST /model HTTP/1.1\r\n"]); 40];
    acts.push(json!(["connect", SOCKET]));
    let report = stage.bench.acts(Profile::Sealed, &acts);
    assert!(!report.lines.is_empty(), "{report:?}");
    // The jail is gone, and so are its connections: the next one is served.
    let answers = stage.answers(&[talk(&post("/model", &messages("hi")))]);
    assert_eq!(status(&answers[0]), "200", "{answers:?}");
}
