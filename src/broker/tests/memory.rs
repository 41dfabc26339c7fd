//! What a hostile worker may do over and over leaves memory and descriptors as they were. A program of its
//! own: it measures its whole process.

mod support;

use serde_json::json;
use std::path::Path;
use std::time::Duration;
use support::bench::{Turn, settings, tool};
use support::{Reply, Upstream, exchange, post};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;

async fn upstream() -> Upstream {
    Upstream::always(Reply::json(200, &json!({ "choices": [] }))).await
}

async fn open(upstream: &Upstream) -> Turn {
    let mut settings = settings(upstream);
    settings.max_calls = 1000;
    settings.tools.push(tool("echo", |_, _| async { Ok("allowed".into()) }));
    Turn::with(settings).await
}

/// Connections of clients that are gone may take a moment to be noticed.
async fn answers_soon(turn: &Turn) {
    for _ in 0..100 {
        let answer = exchange(&turn.socket, &post("/tools/echo", b"{}")).await;
        if answer.is_some_and(|answer| answer.status == 200) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("no answer any more");
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

async fn storm(socket: &Path, number: usize) {
    for step in 0..number {
        let Ok(mut stream) = UnixStream::connect(socket).await else { continue };
        if step % 3 == 0 {
            let _ = stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a52_ten_thousand_connections_leave_memory_and_descriptors_flat() {
    let upstream = upstream().await;
    let turn = open(&upstream).await;
    storm(&turn.socket, 1000).await;
    answers_soon(&turn).await;
    let (descriptors_before, memory_before) = (descriptors(), resident_kib());
    storm(&turn.socket, 10_000).await;
    answers_soon(&turn).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(descriptors() < descriptors_before + 50, "{} {descriptors_before}", descriptors());
    assert!(resident_kib() < memory_before + 16 * 1024, "{} {memory_before}", resident_kib());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a54_a_thousand_requests_of_the_largest_size_leave_memory_flat() {
    let upstream = upstream().await;
    let turn = open(&upstream).await;
    let largest = {
        let mut body = json!({ "messages": [], "x": "" }).to_string();
        let room = 262_144 - body.len();
        body.insert_str(body.len() - 2, &"\u{1f600}".repeat(room / 4));
        post("/tools/echo", body.as_bytes())
    };
    for _ in 0..50 {
        assert_eq!(exchange(&turn.socket, &largest).await.unwrap().status, 200);
    }
    let before = resident_kib();
    for _ in 0..900 {
        assert_eq!(exchange(&turn.socket, &largest).await.unwrap().status, 200);
    }
    assert!(resident_kib() < before + 16 * 1024, "{} {before}", resident_kib());
}
