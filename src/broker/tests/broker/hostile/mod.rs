//! A worker that is somebody else's code, speaking to the socket as it likes. Each test has the number
//! of its attack in its name.

mod content;
mod framing;
mod slow;

use std::time::Duration;

use serde_json::json;
use turnjail_broker::BrokerSettings;

use crate::support::bench::{Turn, hello, settings, tool};
use crate::support::{Reply, Upstream, exchange, post};

pub async fn upstream() -> Upstream {
    Upstream::always(Reply::json(200, &json!({ "choices": [] }))).await
}

pub async fn open(upstream: &Upstream) -> Turn {
    open_with(upstream, |_| ()).await
}

pub async fn open_with(upstream: &Upstream, change: impl FnOnce(&mut BrokerSettings)) -> Turn {
    let mut settings = settings(upstream);
    settings.max_calls = 1000;
    settings.tools.push(tool("echo", |_, _| async { Ok("allowed".into()) }));
    change(&mut settings);
    Turn::with(settings).await
}

pub const HEAD: &str =
    "host: broker\r\ncontent-type: application/json\r\nauthorization: Bearer sandbox-dummy-key\r\n";

pub fn raw(request_line: &str, headers: &str, body: &str) -> Vec<u8> {
    format!("{request_line}\r\n{HEAD}{headers}\r\n{body}").into_bytes()
}

pub async fn answers(turn: &Turn) {
    assert_eq!(turn.call("/model", &hello()).await.status, 200);
}

/// Connections of clients that are gone may take a moment to be noticed.
pub async fn answers_soon(turn: &Turn) {
    for _ in 0..100 {
        let answer = exchange(&turn.socket, &post("/tools/echo", b"{}")).await;
        if answer.is_some_and(|answer| answer.status == 200) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("no answer any more");
}
