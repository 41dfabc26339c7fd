//! The model's endpoint as it is in the field: retries, bounds, certificates, proxies, odd wishes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use turnjail_broker::{
    Broker, BrokerSettings, CallOutcome, Credential, CredentialHeader, EventKind, OutputLimitField,
};

use crate::support::bench::{Turn, hello, settings};
use crate::support::{Reply, Upstream};

pub fn ok() -> Reply {
    Reply::json(200, &json!({ "choices": [] }))
}

fn with_headers(status: u16, headers: &[(&str, &str)]) -> Reply {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Reply::Answer {
        status,
        headers: headers.collect(),
        body: Bytes::from_static(b"{\"choices\":[]}"),
    }
}

/// Answers in turn, the last one for good.
async fn script(replies: Vec<Reply>) -> Upstream {
    let next = Arc::new(AtomicUsize::new(0));
    Upstream::start(move |_| {
        let place = next.fetch_add(1, Ordering::SeqCst).min(replies.len() - 1);
        std::future::ready(replies[place].clone())
    })
    .await
}

pub async fn ask(settings: BrokerSettings) -> (u16, CallOutcome, u32) {
    let mut turn = Turn::with(settings).await;
    let answer = turn.call("/model", &hello()).await;
    assert_eq!(turn.broker.summary().calls, 1);
    if answer.status != 200 {
        assert_eq!(answer.text(), "broker call failed");
    }
    while let Some(event) = turn.events.try_recv() {
        if let EventKind::CallEnded { outcome, retries, .. } = event.kind {
            return (answer.status, outcome, retries);
        }
    }
    panic!("the call has not ended");
}

#[tokio::test]
async fn passing_failures_are_retried_and_count_once() {
    for status in [429, 500, 502, 503, 504] {
        let upstream = script(vec![with_headers(status, &[("retry-after", "0")]), ok()]).await;
        let mut settings = settings(&upstream);
        settings.retries = 2;
        assert_eq!(ask(settings).await, (200, CallOutcome::Ok, 1), "{status}");
        let sent = upstream.take();
        assert_eq!((sent.len(), &sent[0].body), (2, &sent[1].body));
    }
    let upstream = script(vec![Reply::Hang, Reply::Hang, ok()]).await;
    let mut settings = settings(&upstream);
    settings.retries = 2;
    assert_eq!(ask(settings).await, (200, CallOutcome::Ok, 2));
}

#[tokio::test]
async fn failures_that_stay_are_not_retried_or_not_for_ever() {
    for status in [301, 400, 401, 403, 404, 408, 422, 501] {
        let upstream = script(vec![with_headers(status, &[("location", "/x")]), ok()]).await;
        let mut settings = settings(&upstream);
        settings.retries = 2;
        assert_eq!(ask(settings).await, (502, CallOutcome::Upstream, 0), "{status}");
        assert_eq!(upstream.take().len(), 1);
    }
    let upstream = script(vec![with_headers(503, &[("retry-after", "0")])]).await;
    let mut settings = settings(&upstream);
    settings.retries = 2;
    assert_eq!(ask(settings).await, (502, CallOutcome::Upstream, 2));
    assert_eq!(upstream.take().len(), 3);
}

#[tokio::test]
async fn retry_after_is_honoured_within_the_deadline() {
    let upstream = script(vec![with_headers(429, &[("retry-after", "1")]), ok()]).await;
    let mut wanted = settings(&upstream);
    wanted.retries = 1;
    let before = Instant::now();
    assert_eq!(ask(wanted).await, (200, CallOutcome::Ok, 1));
    assert!(before.elapsed() >= Duration::from_secs(1));
    let tomorrow = httpdate(Duration::from_secs(86_400));
    for later in ["3600", "18446744073709551615", "999999999999999999999", &*tomorrow] {
        let upstream = script(vec![with_headers(429, &[("retry-after", later)]), ok()]).await;
        let mut wanted = settings(&upstream);
        wanted.retries = 1;
        let before = Instant::now();
        let (status, ..) = ask(wanted).await;
        // A number nobody can wait for is no number.
        assert_eq!(status, if later.len() == 21 { 200 } else { 502 }, "{later}");
        assert!(before.elapsed() < Duration::from_secs(1));
    }
}

fn httpdate(from_now: Duration) -> String {
    httpdate::fmt_http_date(std::time::SystemTime::now() + from_now)
}

#[tokio::test]
async fn nothing_is_followed_decompressed_or_read_without_end() {
    let large = |length: usize| Reply::Answer {
        status: 200,
        headers: Vec::new(),
        body: vec![b' '; length].into(),
    };
    for (reply, outcome) in [
        (with_headers(302, &[("location", "/elsewhere")]), CallOutcome::Upstream),
        (with_headers(200, &[("content-encoding", "gzip")]), CallOutcome::Upstream),
        (large(1_048_577), CallOutcome::TooLarge),
        (large(10), CallOutcome::Upstream),
        (Reply::json(204, &json!({})), CallOutcome::Upstream),
    ] {
        let upstream = script(vec![reply]).await;
        assert_eq!(ask(settings(&upstream)).await, (502, outcome, 0));
        assert_eq!(upstream.take().len(), 1);
    }
    let upstream = script(vec![with_headers(200, &[("content-encoding", "identity")])]).await;
    assert_eq!(ask(settings(&upstream)).await.0, 200);
}

/// A server that sends bytes as they are and then goes, or stays silent.
async fn raw(answer: &'static [u8], stay: bool) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = [0; 4096];
                let _ = stream.read(&mut request).await;
                let _ = stream.write_all(answer).await;
                if stay {
                    tokio::time::sleep(Duration::from_secs(60)).await;
                }
            });
        }
    });
    format!("http://{address}/")
}

fn to(url: &str) -> BrokerSettings {
    let mut settings = BrokerSettings::new("m", url, Credential::None);
    settings.allow_http = true;
    settings.retries = 0;
    settings.model_timeout = Duration::from_secs(1);
    settings
}

#[tokio::test]
async fn every_fault_of_an_upstream_becomes_one_bounded_failure() {
    use CallOutcome::{Timeout, Upstream as Failed};
    for (answer, stay, outcome) in [
        (&b""[..], true, Timeout),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"a\":", true, Timeout),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"a\":", false, Failed),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 5\r\n\r\n{}", false, Failed),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{}", false, Failed),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n", false, Failed),
        (b"HTTP/1.1 999 What\r\ncontent-length: 2\r\n\r\n{}", false, Failed),
        (b"SSH-2.0-OpenSSH_9.2\r\n", false, Failed),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n<html", false, Failed),
        (b"HTTP/1.1 100 Continue\r\n\r\n", true, Timeout),
        (
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
            false,
            Failed,
        ),
    ] {
        let before = Instant::now();
        let url = raw(answer, stay).await;
        let (status, got, _) = ask(to(&url)).await;
        assert_eq!((status, got), (502, outcome), "{}", String::from_utf8_lossy(answer));
        assert!(before.elapsed() < Duration::from_secs(4));
    }
}

#[tokio::test]
async fn an_upstream_that_is_not_there_is_unreachable() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    assert_eq!(ask(to(&url)).await, (502, CallOutcome::Unreachable, 0));
    assert_eq!(ask(to("http://name.that.is.invalid/")).await.0, 502);
}

#[tokio::test]
async fn an_answer_may_be_json_with_anything_a_reader_can_mend() {
    let body = b"\xef\xbb\xbf{\"a\":\"\\ud83d\",\"b\":1,\"b\":1e21,\"c\":1.0}";
    let reply = Reply::Answer { status: 200, headers: Vec::new(), body: Bytes::from_static(body) };
    let upstream = Upstream::always(reply).await;
    let turn = Turn::with(settings(&upstream)).await;
    let answer = turn.call("/model", &hello()).await;
    assert_eq!(answer.text(), "{\"a\":\"\u{fffd}\",\"b\":1e+21,\"c\":1}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
}

#[tokio::test]
async fn connections_are_shared_by_all_turns() {
    let upstream = Upstream::always(ok()).await;
    let broker = Broker::start(settings(&upstream)).await.unwrap();
    for _ in 0..20 {
        let turn = Turn::open(&broker).await;
        assert_eq!(turn.call("/model", &hello()).await.status, 200);
        turn.broker.close().await;
    }
    assert!(upstream.connections() <= 2, "{}", upstream.connections());
}

#[tokio::test]
async fn endpoints_get_what_they_wish_for() {
    let upstream = Upstream::always(ok()).await;
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("key");
    std::fs::write(&key, "azure-key-0123456789\n").unwrap();
    let mut settings = settings(&upstream);
    settings.credential = Credential::File(key);
    settings.credential_header = CredentialHeader::Named("api-key".into());
    settings.output_limit_field = OutputLimitField::MaxCompletionTokens;
    settings.max_output_tokens = 77;
    settings.extra_fields.insert("temperature".into(), json!(0.25));
    settings.extra_fields.insert("reasoning".into(), json!({ "effort": "low" }));
    settings.extra_headers.push(("OpenAI-Organization".into(), "org-1".into()));
    let turn = Turn::with(settings).await;
    assert_eq!(turn.call("/model", &hello()).await.status, 200);
    let sent = upstream.take().remove(0);
    let expected = json!({
        "model": "m", "messages": [{ "role": "user", "content": "Hello" }], "stream": false,
        "max_completion_tokens": 77, "temperature": 0.25, "reasoning": { "effort": "low" },
    });
    assert_eq!(sent.body, expected);
    assert_eq!(sent.headers["api-key"], "azure-key-0123456789");
    assert_eq!(sent.headers["openai-organization"], "org-1");
    assert!(
        !sent.headers.contains_key("authorization") && !sent.headers.contains_key("user-agent")
    );
}

#[tokio::test]
async fn every_setting_is_checked_with_its_name_and_range() {
    let upstream = Upstream::always(ok()).await;
    let refuse = async |change: &dyn Fn(&mut BrokerSettings), words: &[&str]| {
        let mut settings = settings(&upstream);
        change(&mut settings);
        let error = Broker::start(settings).await.unwrap_err();
        let text = error.to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
        assert_eq!(text.lines().count(), 1);
    };
    refuse(&|s| s.model = "  ".into(), &["model "]).await;
    refuse(&|s| s.max_calls = 0, &["max_calls is 0", "1 to 1000"]).await;
    refuse(&|s| s.max_calls = 1001, &["max_calls"]).await;
    refuse(&|s| s.max_output_tokens = 32_769, &["max_output_tokens", "1 to 32768"]).await;
    refuse(&|s| s.retries = 11, &["retries", "0 to 10"]).await;
    refuse(
        &|s| s.model_timeout = Duration::from_millis(999),
        &["model_timeout is 0.999 s", "1 to 600 s"],
    )
    .await;
    refuse(&|s| s.model_timeout = Duration::from_secs(601), &["model_timeout"]).await;
    for url in [
        "",
        "x",
        "/v1",
        "ftp://h/",
        "https://",
        "https://h:x/",
        "https://h:99999/",
        "https://a@h/",
        "https://h/#f",
        "https://h /",
    ] {
        refuse(&|s| s.model_url = url.into(), &["model_url must"]).await;
    }
    refuse(&|s| s.allow_http = false, &["model_url", "allow_http"]).await;
    for field in
        ["messages", "tools", "model", "stream", "n", "max_tokens", "max_completion_tokens"]
    {
        refuse(
            &|s| drop(s.extra_fields.insert(field.into(), Value::Null)),
            &["extra_fields", field],
        )
        .await;
    }
    for name in ["host", "Content-Length", "a b", "", "transfer-encoding", "connection"] {
        refuse(&|s| s.extra_headers.push((name.into(), "x".into())), &["extra_headers"]).await;
    }
    refuse(&|s| s.extra_headers.push(("x".into(), "a\nb".into())), &["extra_headers", "`x`"]).await;
    refuse(
        &|s| s.extra_headers = vec![("x".into(), "1".into()), ("X".into(), "2".into())],
        &["extra_headers", "twice"],
    )
    .await;
    refuse(
        &|s| s.credential_header = CredentialHeader::Named("host".into()),
        &["credential_header"],
    )
    .await;
    refuse(
        &|s| s.credential = Credential::Env("TURNJAIL_TEST_NOT_SET".into()),
        &["credential", "TURNJAIL_TEST_NOT_SET"],
    )
    .await;
    refuse(&|s| s.credential = Credential::Env("A=B".into()), &["credential"]).await;
    refuse(
        &|s| s.credential = Credential::File("/no/such/file".into()),
        &["credential", "/no/such/file"],
    )
    .await;
    refuse(&|s| s.credential = Credential::Command(Vec::new()), &["credential", "program"]).await;
}
