//! Hostile code in a sealed jail sends its broker the largest requests, one after another: the host's
//! memory stays as it was. A program of its own: it measures its whole process.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;

use serde_json::json;
use tokio_util::sync::CancellationToken;
use turnjail_broker::{Broker, BrokerSettings, Credential, Principal, TurnContext, event_channel};
use turnjail_jail::Profile;
use turnjail_protocol::limits::BROKER_REQUEST_BYTES;
use turnjail_tests::jails::Bench;
use turnjail_tests::{Test, harness};

const SOCKET: &str = "/broker/broker.sock";
/// The most calls that a turn can be allowed.
const REQUESTS: u32 = 1000;
/// What an allocator may keep for later; a leak of one request in sixteen would be seen.
const FLAT_KIB: u64 = 16 * 1024;
const ANSWER: &str = r#"{"choices":[{"message":{"content":"Hello."}}]}"#;

fn main() -> ExitCode {
    harness(&[Test::new("a_thousand_of_the_largest_requests_leave_memory_flat", flood)])
}

fn flood() {
    let bench = Bench::new();
    let upstream = upstream();
    // The first turn brings pools, threads and allocator to their working size.
    assert_eq!(turn(&bench, &upstream, 100), 100);
    let before = resident_kib();
    assert_eq!(turn(&bench, &upstream, REQUESTS), REQUESTS);
    let after = resident_kib();
    println!("resident before {before} KiB, after {REQUESTS} requests {after} KiB");
    assert!(after < before + FLAT_KIB, "{before} KiB before, {after} KiB after");
}

/// One turn whose probe sends `count` requests of the largest size; how many were answered well.
fn turn(bench: &Bench, upstream: &str, count: u32) -> u32 {
    let mut settings = BrokerSettings::new("model", upstream.to_owned(), Credential::None);
    settings.allow_http = true;
    settings.max_calls = count;
    let socket = bench.path("run").join("broker.sock");
    let (broker, turn) = bench.runtime().block_on(async {
        let broker = Broker::start(settings).await.expect("a broker");
        let turn = broker.open(context(), &socket).await.expect("a turn");
        (broker, turn)
    });
    let acts = json!([["times", count, ["talk", SOCKET, largest()]]]);
    let mut spec = bench.spec(Profile::Sealed, &["-"]);
    spec.limits.time_ms = 300_000;
    let report = bench.acts_in(&spec, acts.to_string().as_bytes());
    let summary = bench.runtime().block_on(turn.close());
    drop(broker);
    assert_eq!(summary.calls, count, "every request was a call");
    let outcome = report.lines.first().unwrap_or_else(|| panic!("no report: {report:?}"));
    let last = outcome["last"]["text"].as_str().unwrap_or_default();
    assert!(last.starts_with("HTTP/1.1 200 ") && last.ends_with(ANSWER), "{last}");
    outcome["equal"].as_u64().and_then(|equal| u32::try_from(equal).ok()).unwrap_or(0)
}

/// A model call whose body has exactly the largest size.
fn largest() -> String {
    let body =
        |filler: &str| json!({"messages": [{"role": "user", "content": filler}]}).to_string();
    let body = body(&"x".repeat(BROKER_REQUEST_BYTES - body("").len()));
    assert_eq!(body.len(), BROKER_REQUEST_BYTES);
    format!(
        "POST /model HTTP/1.1\r\nhost: broker\r\nauthorization: Bearer sandbox-dummy-key\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
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

/// A model on loopback that reads requests, keeps nothing and answers the same to all.
fn upstream() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(stream));
        }
    });
    format!("http://{address}/v1/chat/completions")
}

fn serve(mut stream: TcpStream) -> Option<()> {
    let mut buffer = vec![0; 65_536];
    loop {
        let mut request = Vec::new();
        let (head, length) = loop {
            let read = stream.read(&mut buffer).ok().filter(|&read| read > 0)?;
            request.extend_from_slice(&buffer[..read]);
            if let Some(end) = request.windows(4).position(|window| window == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&request[..end]).to_lowercase();
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
                break (end + 4, length.parse::<usize>().ok()?);
            }
        };
        let mut left = (head + length).checked_sub(request.len())?;
        while left > 0 {
            left = left.checked_sub(stream.read(&mut buffer).ok().filter(|&read| read > 0)?)?;
        }
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", ANSWER.len());
        stream.write_all(head.as_bytes()).ok()?;
        stream.write_all(ANSWER.as_bytes()).ok()?;
    }
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the status");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("its line");
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
}
