//! A turn's broker from opening to closing: one call at a time, so many in all, nothing afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::sync::Notify;
use tracing::Instrument;
use turnjail_broker::{Broker, CallOutcome, CallRoute, EventKind};

use crate::logs::Logs;
use crate::support::bench::{Turn, hello, settings, tool};
use crate::support::{Reply, Upstream, call, post};

fn answered() -> Reply {
    Reply::json(200, &json!({ "choices": [] }))
}

/// A tool that waits to be let go, and tells when its context was cancelled.
fn waiting_tool(go: Arc<Notify>, cancelled: Arc<AtomicBool>) -> turnjail_broker::Tool {
    tool("wait", move |_, context| {
        let (go, cancelled) = (Arc::clone(&go), Arc::clone(&cancelled));
        tokio::spawn({
            let cancel = context.cancel.clone();
            async move {
                cancel.cancelled().await;
                cancelled.store(true, Ordering::SeqCst);
            }
        });
        async move {
            go.notified().await;
            Ok("done".into())
        }
    })
}

async fn eventually(what: impl Fn() -> bool) {
    for _ in 0..500 {
        if what() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it did not happen");
}

#[tokio::test]
async fn a_second_call_while_one_runs_is_refused_and_costs_nothing() {
    let upstream = Upstream::always(answered()).await;
    let mut settings = settings(&upstream);
    let go = Arc::new(Notify::new());
    settings.tools.push(waiting_tool(Arc::clone(&go), Arc::default()));
    settings.max_calls = 2;
    let turn = Turn::with(settings).await;
    let first = tokio::spawn({
        let socket = turn.socket.clone();
        async move { call(&socket, "/tools/wait", &json!({})).await }
    });
    eventually(|| turn.broker.summary().calls == 1).await;
    for _ in 0..3 {
        let second = turn.call("/model", &hello()).await;
        assert_eq!((second.status, second.text().as_str()), (429, "call budget exhausted or busy"));
    }
    // Requests that are refused before they count do not care.
    assert_eq!(turn.call("/nowhere", &json!({})).await.status, 404);
    go.notify_one();
    assert_eq!(first.await.unwrap().json(), json!({ "text": "done" }));
    assert_eq!(turn.call("/model", &hello()).await.status, 200);
    assert_eq!(turn.call("/model", &hello()).await.status, 429);
    assert_eq!(turn.broker.close().await.calls, 2);
}

#[tokio::test]
async fn a_worker_that_hangs_up_cancels_its_call_and_gets_no_refund() {
    let upstream = Upstream::always(answered()).await;
    let mut settings = settings(&upstream);
    let cancelled = Arc::new(AtomicBool::new(false));
    settings.tools.push(waiting_tool(Arc::new(Notify::new()), Arc::clone(&cancelled)));
    let turn = Turn::with(settings).await;
    let mut stream = UnixStream::connect(&turn.socket).await.unwrap();
    stream.write_all(&post("/tools/wait", b"{}")).await.unwrap();
    eventually(|| turn.broker.summary().calls == 1).await;
    drop(stream);
    eventually(|| cancelled.load(Ordering::SeqCst)).await;
    eventually(|| turn.broker.summary().failed == 1).await;
    assert_eq!(turn.call("/model", &hello()).await.status, 200);
    assert_eq!(turn.broker.close().await.calls, 2);
}

#[tokio::test]
async fn the_end_of_a_turn_cancels_its_call_and_refuses_later_ones() {
    let upstream = Upstream::always(answered()).await;
    let mut settings = settings(&upstream);
    let cancelled = Arc::new(AtomicBool::new(false));
    settings.tools.push(waiting_tool(Arc::new(Notify::new()), Arc::clone(&cancelled)));
    let turn = Turn::with(settings).await;
    let running = tokio::spawn({
        let socket = turn.socket.clone();
        async move { call(&socket, "/tools/wait", &json!({})).await }
    });
    eventually(|| turn.broker.summary().calls == 1).await;
    turn.cancel.cancel();
    let ended = running.await.unwrap();
    assert_eq!((ended.status, ended.text().as_str()), (502, "broker call failed"));
    eventually(|| cancelled.load(Ordering::SeqCst)).await;
    let late = turn.call("/model", &hello()).await;
    assert_eq!((late.status, late.text().as_str()), (410, "turn ended"));
    assert_eq!(turn.call("/nowhere", &json!({})).await.status, 404);
}

#[tokio::test]
async fn closing_leaves_nothing_and_comes_back_soon() {
    let upstream = Upstream::always(answered()).await;
    let mut settings = settings(&upstream);
    settings.tools.push(waiting_tool(Arc::new(Notify::new()), Arc::default()));
    let broker = Broker::start(settings).await.unwrap();
    let mut turn = Turn::open(&broker).await;
    // A connection in the middle of its head, one in a call, one that only stands there.
    let mut half = UnixStream::connect(&turn.socket).await.unwrap();
    half.write_all(b"POST /model HT").await.unwrap();
    let mut busy = UnixStream::connect(&turn.socket).await.unwrap();
    busy.write_all(&post("/tools/wait", b"{}")).await.unwrap();
    let _idle = UnixStream::connect(&turn.socket).await.unwrap();
    eventually(|| turn.broker.summary().calls == 1).await;
    let before = std::time::Instant::now();
    let other = Turn::open(&broker).await;
    let closing = std::mem::replace(&mut turn.broker, other.broker);
    let summary = closing.close().await;
    assert!(before.elapsed() < Duration::from_secs(2));
    assert_eq!((summary.calls, summary.failed), (1, 1));
    assert!(turn.is_clean());
    assert!(UnixStream::connect(&turn.socket).await.is_err());
}

#[tokio::test]
async fn dropping_ends_it_in_the_background() {
    let upstream = Upstream::always(answered()).await;
    let turn = Turn::with(settings(&upstream)).await;
    let socket = turn.socket.clone();
    drop(turn.broker);
    eventually(|| !socket.exists()).await;
}

#[tokio::test]
async fn the_socket_is_for_the_hosts_user_alone_and_never_replaces_anything() {
    use std::os::unix::fs::PermissionsExt;
    let upstream = Upstream::always(answered()).await;
    let broker = Broker::start(settings(&upstream)).await.unwrap();
    let turn = Turn::open(&broker).await;
    let mode = turn.socket.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
    let context = turnjail_broker::TurnContext {
        channel: "fake:two".into(),
        space: None,
        speaker: turnjail_broker::Principal::default(),
        tool_result_bytes: 4096,
        cancel: turn.cancel.clone(),
        events: turnjail_broker::EventSender::discard(),
    };
    let error = broker.open(context.clone(), &turn.socket).await.unwrap_err();
    assert!(
        error.to_string().contains("broker.sock") && error.to_string().contains("bind"),
        "{error}"
    );
    assert_eq!(turn.call("/model", &hello()).await.status, 200);
    let long = turn.socket.with_file_name("x".repeat(200));
    assert!(broker.open(context, &long).await.is_err());
}

#[tokio::test]
async fn every_call_is_told_with_sizes_and_outcome_and_without_content() {
    let upstream = Upstream::always(answered()).await;
    let mut settings = settings(&upstream);
    settings.tools.push(tool("echo", |_, _| async { Ok("a very particular text".into()) }));
    let mut turn = Turn::with(settings).await;
    let body = hello();
    turn.call("/model", &body).await;
    turn.call("/tools/echo", &json!({ "very": "particular" })).await;
    turn.call("/model", &json!([])).await;
    let mut events = Vec::new();
    while let Some(event) = turn.events.try_recv() {
        events.push(event);
    }
    let told = serde_json::to_string(&events).unwrap();
    assert!(!told.contains("particular") && !told.contains("Hello"), "{told}");
    let kinds: Vec<&EventKind> = events.iter().map(|event| &event.kind).collect();
    assert_eq!(kinds[0], &EventKind::CallStarted { call: 1, route: CallRoute::Model });
    let EventKind::CallEnded { outcome, request_bytes, answer_bytes, .. } = kinds[1] else {
        panic!()
    };
    assert_eq!((*outcome, *request_bytes), (CallOutcome::Ok, body.to_string().len()));
    assert_eq!(*answer_bytes, json!({ "choices": [] }).to_string().len());
    let name = CallRoute::Tool { name: "echo".into() };
    assert_eq!(kinds[2], &EventKind::CallStarted { call: 2, route: name });
    let EventKind::CallEnded { outcome, .. } = kinds[5] else { panic!("{kinds:?}") };
    assert_eq!(*outcome, CallOutcome::Refused);
    assert_eq!(kinds.len(), 6);
    let first: Value = serde_json::to_value(&events[1]).unwrap();
    assert_eq!((&first["event"], &first["route"]), (&json!("call-ended"), &json!("model")));
    assert!(first["tookMicros"].as_u64().unwrap() > 0 && first["atMicros"].is_u64());
}

#[tokio::test]
async fn a_reader_that_does_not_read_slows_nothing() {
    let (sender, mut events) = turnjail_broker::event_channel();
    for _ in 0..1000 {
        sender.emit(EventKind::TurnStarted);
    }
    let mut read = 0;
    while events.try_recv().is_some() {
        read += 1;
    }
    assert_eq!(read + events.missed(), 1000);
    assert!(read > 0 && events.missed() > 0);
}

#[tokio::test]
async fn what_is_logged_of_a_turn_stands_in_the_callers_span() {
    let logs = Logs::default();
    let _guard = logs.listen();
    let upstream = Upstream::always(Reply::json(500, &json!({}))).await;
    let broker = Broker::start(settings(&upstream)).await.unwrap();
    let before = logs.ours().len();
    let turn = Turn::open(&broker).instrument(tracing::info_span!("turn", id = "turn-77")).await;
    assert_eq!(turn.call("/model", &hello()).await.status, 502);
    turn.broker.close().await;
    let lines = logs.ours().split_off(before);
    assert!(lines.iter().any(|line| line.contains("a call failed")), "{lines:?}");
    assert!(lines.iter().all(|line| line.contains("turn-77")), "{lines:?}");
}
