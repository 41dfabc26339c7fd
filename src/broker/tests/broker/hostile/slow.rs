//! Clients that take their time, or never come to an end.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::*;
use crate::support::bench::{hello, tool};
use crate::support::{Answered, exchange_within, post};

#[tokio::test]
async fn a52_the_seventeenth_connection_is_closed_and_the_others_stay() {
    let upstream = upstream().await;
    let turn = open(&upstream).await;
    let mut held = Vec::new();
    for _ in 0..16 {
        let mut stream = UnixStream::connect(&turn.socket).await.unwrap();
        stream.write_all(b"POST /mod").await.unwrap();
        held.push(stream);
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut one_more = UnixStream::connect(&turn.socket).await.unwrap();
    let mut answer = Vec::new();
    let closed =
        tokio::time::timeout(Duration::from_secs(2), one_more.read_to_end(&mut answer)).await;
    assert!(closed.is_ok() && answer.is_empty());
    // One that was there first can still go on.
    let mut first = held.remove(0);
    let rest = post("/model", hello().to_string().as_bytes()).split_off("POST /mod".len());
    first.write_all(&rest).await.unwrap();
    first.read_to_end(&mut answer).await.unwrap();
    assert_eq!(Answered::parse(&answer).unwrap().status, 200);
    drop(held);
    tokio::time::sleep(Duration::from_millis(100)).await;
    answers(&turn).await;
}

#[tokio::test]
async fn a52_slow_heads_are_cut_after_ten_seconds() {
    let upstream = upstream().await;
    let turn = open(&upstream).await;
    let slow = async |bytes: &[u8]| {
        let before = Instant::now();
        let mut stream = UnixStream::connect(&turn.socket).await.unwrap();
        for byte in bytes.iter().cycle() {
            if stream.write_all(&[*byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
            if before.elapsed() > Duration::from_secs(20) {
                break;
            }
        }
        before.elapsed()
    };
    let silent = async {
        let before = Instant::now();
        let mut stream = UnixStream::connect(&turn.socket).await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
        before.elapsed()
    };
    let (dripped, silent) = tokio::join!(slow(b"POST /model HTTP/1.1\r\naccept: x"), silent);
    for time in [dripped, silent] {
        assert!(time > Duration::from_secs(9) && time < Duration::from_secs(13), "{time:?}");
    }
    answers(&turn).await;
}

#[tokio::test]
async fn a52_slow_bodies_and_answers_nobody_reads_end_with_the_request() {
    let upstream = upstream().await;
    let turn = open_with(&upstream, |settings| {
        settings.model_timeout = Duration::from_secs(1);
        settings.tools.push(tool("large", |_, _| async { Ok("x".repeat(1_000_000)) }));
    })
    .await;
    // A body that does not come: answered as a failure after the call's time.
    let before = Instant::now();
    let headers = "content-length: 100\r\n";
    let dribble = raw("POST /model HTTP/1.1", headers, "{");
    let answer = exchange_within(&turn.socket, &dribble, Duration::from_secs(10)).await.unwrap();
    assert_eq!(Answered::parse(&answer).unwrap().status, 502);
    assert!(before.elapsed() > Duration::from_secs(4) && before.elapsed() < Duration::from_secs(8));
    // An answer that nobody reads: cut, and the connection is free again.
    let before = Instant::now();
    let mut deaf = UnixStream::connect(&turn.socket).await.unwrap();
    deaf.write_all(&post("/tools/large", b"{}")).await.unwrap();
    while turn.broker.summary().answer_bytes < 1_000_000 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::sleep(Duration::from_secs(7)).await;
    let mut read = Vec::new();
    let _ = deaf.read_to_end(&mut read).await;
    assert!(read.len() < 1_000_000, "{}", read.len());
    assert!(before.elapsed() < Duration::from_secs(10));
    answers(&turn).await;
}

#[tokio::test]
async fn a52_half_closing_and_vanishing_wedge_nothing() {
    let upstream = upstream().await;
    let turn = open(&upstream).await;
    for step in 0..200 {
        let mut stream = UnixStream::connect(&turn.socket).await.unwrap();
        let request = post("/tools/echo", b"{}");
        let part = &request[..request.len() * (step % 11) / 10];
        let _ = stream.write_all(part).await;
        if step % 2 == 0 {
            let _ = stream.shutdown().await;
        }
    }
    answers_soon(&turn).await;
}
