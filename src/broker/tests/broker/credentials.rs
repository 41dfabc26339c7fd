//! Credentials: asked for on every call, kept out of everything, and withheld when they come back.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use turnjail_broker::{
    Broker, BrokerSettings, CallOutcome, CommandTool, Credential, CredentialError,
    CredentialRequest, CredentialSource, EventKind, McpServer, McpTool, McpTransport, Secret, Tool,
};
use turnjail_protocol::ToolSpec;

use crate::logs::Logs;
use crate::support::bench::{Turn, hello, settings, tool};
use crate::support::{Reply, Upstream};

fn ok() -> Reply {
    Reply::json(200, &json!({ "choices": [] }))
}

type Disguise = fn(&str) -> String;

/// An upstream that sends the bearer back in a word after it has been through `disguise`.
async fn mirror(disguise: Disguise) -> Upstream {
    Upstream::start(move |request| async move {
        let bearer = request.headers.get("authorization").cloned().unwrap_or_default();
        let key = bearer.strip_prefix("Bearer ").unwrap_or_default();
        Reply::json(200, &json!({ "id": 1, "result": { "x": format!("<{}>", disguise(key)) } }))
    })
    .await
}

#[tokio::test]
async fn a_file_is_trimmed_and_read_again_when_it_changes() {
    let upstream = Upstream::always(ok()).await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("key");
    std::fs::write(&file, " \n first-key-1 \n").unwrap();
    let mut settings = settings(&upstream);
    settings.credential = Credential::File(file.clone());
    let turn = Turn::with(settings).await;
    let bearer = async || {
        let status = turn.call("/model", &hello()).await.status;
        (status, upstream.take().pop().map(|sent| sent.headers["authorization"].clone()))
    };
    assert_eq!(bearer().await, (200, Some("Bearer first-key-1".into())));
    // Of the same length, and renamed over the old one as secret stores do.
    let next = directory.path().join("next");
    std::fs::write(&next, " \n other-key-2 \n").unwrap();
    std::fs::rename(&next, &file).unwrap();
    assert_eq!(bearer().await, (200, Some("Bearer other-key-2".into())));
    std::fs::write(&file, "third-key-3").unwrap();
    assert_eq!(bearer().await, (200, Some("Bearer third-key-3".into())));
    for bad in [&b""[..], b" \n", b"\xff\xfe-key-123", &vec![b'x'; 70_000]] {
        std::fs::write(&file, bad).unwrap();
        assert_eq!(bearer().await, (502, None));
    }
    // A pipe that nobody writes to.
    std::fs::remove_file(&file).unwrap();
    nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert_eq!(bearer().await, (502, None));
    std::fs::remove_file(&file).unwrap();
    std::fs::write(&file, "a key\nwith a line end").unwrap();
    assert_eq!(bearer().await, (502, None));
    std::fs::remove_file(&file).unwrap();
    assert_eq!(bearer().await, (502, None));
    std::fs::write(&file, "fourth-key-4").unwrap();
    assert_eq!(bearer().await, (200, Some("Bearer fourth-key-4".into())));
}

#[tokio::test]
async fn a_command_is_told_for_whom_on_its_standard_input_alone() {
    let upstream = Upstream::always(ok()).await;
    let directory = tempfile::tempdir().unwrap();
    let seen = directory.path().join("seen");
    let script =
        format!("cat > {0}; env | sed 's/=.*//' >> {0}; echo ' command-key-1 '", seen.display());
    let mut wanted = settings(&upstream);
    wanted.credential = Credential::Command(["sh", "-c", &script].map(str::to_owned).to_vec());
    let turn = Turn::with(wanted).await;
    assert_eq!(turn.call("/model", &hello()).await.status, 200);
    assert_eq!(upstream.take()[0].headers["authorization"], "Bearer command-key-1");
    let seen = std::fs::read_to_string(&seen).unwrap();
    let end = seen.find('}').unwrap();
    let told: Value = serde_json::from_str(&seen[..=end + 1]).unwrap_or_else(|_| panic!("{seen}"));
    let speaker = json!({ "id": "7", "name": "Ada", "principalId": "owner" });
    assert_eq!(told, json!({ "channel": "fake:one", "space": "fake:space", "speaker": speaker }));
    let shells_own = ["_", "PWD", "SHLVL", "OLDPWD"];
    let names: Vec<&str> =
        seen[end + 2..].split_whitespace().filter(|name| !shells_own.contains(name)).collect();
    assert_eq!(names, ["PATH"]);
    for script in ["exit 1", "true", "head -c 100000 /dev/zero", "echo key; exit 1"] {
        let mut wanted = settings(&upstream);
        wanted.credential = Credential::Command(["sh", "-c", script].map(str::to_owned).to_vec());
        assert_eq!(Turn::with(wanted).await.call("/model", &hello()).await.status, 502, "{script}");
    }
    assert!(upstream.take().is_empty());
}

#[tokio::test]
async fn a_command_that_takes_its_time_is_ended_after_ten_seconds() {
    let upstream = Upstream::always(ok()).await;
    let mut wanted = settings(&upstream);
    wanted.credential = Credential::Command(["sleep", "3621.5"].map(str::to_owned).to_vec());
    let turn = Turn::with(wanted).await;
    let before = Instant::now();
    assert_eq!(turn.call("/model", &hello()).await.status, 502);
    assert!(
        before.elapsed() > Duration::from_secs(9) && before.elapsed() < Duration::from_secs(13)
    );
}

struct PerChannel;

#[async_trait]
impl CredentialSource for PerChannel {
    async fn credential(
        &self,
        request: CredentialRequest<'_>,
    ) -> Result<Option<Secret>, CredentialError> {
        match request.channel {
            "fake:one" => Ok(Some(Secret::new(format!("key-of-{}", request.speaker.principal_id)))),
            "fake:none" => Ok(None),
            channel => Err(CredentialError::new(format!("no key for {channel}"))),
        }
    }
}

#[tokio::test]
async fn a_source_is_asked_by_channel_and_speaker_and_may_have_none() {
    let upstream = Upstream::always(ok()).await;
    let mut wanted = settings(&upstream);
    wanted.credential = Credential::Source(Arc::new(PerChannel));
    let broker = Broker::start(wanted).await.unwrap();
    for (channel, status) in [("fake:one", 200), ("fake:none", 502), ("fake:other", 502)] {
        let turn = Turn::open_in(&broker, channel).await;
        assert_eq!(turn.call("/model", &hello()).await.status, status, "{channel}");
    }
    let sent = upstream.take();
    assert_eq!((sent.len(), &*sent[0].headers["authorization"]), (1, "Bearer key-of-owner"));
}

#[tokio::test]
async fn an_endpoint_without_a_credential_gets_no_header_and_is_not_searched() {
    let upstream = Upstream::start(|request| async move {
        assert!(!request.headers.contains_key("authorization"));
        Reply::json(200, &json!({ "x": "sandbox-dummy-key" }))
    })
    .await;
    let turn = Turn::with(settings(&upstream)).await;
    assert_eq!(turn.call("/model", &hello()).await.status, 200);
}

#[tokio::test]
async fn a_credential_that_comes_back_in_any_dress_fails_the_call() {
    let disguises: [(&str, Disguise); 5] = [
        ("as it is", str::to_owned),
        ("reversed", |key| key.chars().rev().collect()),
        ("percent-encoded", |key| {
            key.bytes().fold(String::new(), |text, byte| format!("{text}%{byte:02x}"))
        }),
        ("escaped twice", |key| json!(json!(key).to_string()).to_string()),
        ("hexadecimal", |key| {
            key.bytes().fold(String::new(), |text, byte| format!("{text}{byte:02X}"))
        }),
    ];
    for (name, disguise) in disguises {
        let upstream = mirror(disguise).await;
        let mut wanted = settings(&upstream);
        wanted.credential = Credential::Source(Arc::new(PerChannel));
        let mut turn = Turn::with(wanted).await;
        let answer = turn.call("/model", &hello()).await;
        assert_eq!((answer.status, &*answer.text()), (502, "broker call failed"), "{name}");
        let ended = std::iter::from_fn(|| turn.events.try_recv()).last().unwrap();
        let EventKind::CallEnded { outcome, .. } = ended.kind else { panic!() };
        assert_eq!(outcome, CallOutcome::Reflected, "{name}");
    }
}

#[tokio::test]
async fn every_answer_is_searched_for_every_credential_of_the_turn() {
    let upstream = Upstream::always(ok()).await;
    let server = mirror(|_| "model-key-123456".into()).await;
    let directory = tempfile::tempdir().unwrap();
    let keys = ["model-key-123456", "mcp-key-123456"].map(|key| {
        let path = directory.path().join(key);
        std::fs::write(&path, key).unwrap();
        Credential::File(path)
    });
    let mut wanted = settings(&upstream);
    wanted.credential = keys[0].clone();
    let transport = McpTransport::Json { url: server.url("/rpc") };
    let mut mcp =
        McpServer::new("s", transport, vec![McpTool::named("t").declare("d", Map::new())]);
    mcp.credential = keys[1].clone();
    wanted.mcp.push(mcp);
    wanted.tools.push(tool("tell", |input, _| async move {
        Ok(input["say"].as_str().unwrap().to_owned())
    }));
    let broker = Broker::start(wanted).await.unwrap();
    // In a fresh turn each, so that nothing has been asked for before.
    let tell = async |text: &str| {
        let turn = Turn::open(&broker).await;
        turn.call("/tools/tell", &json!({ "say": text })).await.status
    };
    assert_eq!(tell("model-key-123456").await, 502);
    assert_eq!(tell("bXYgbWNwLWtleS0xMjM0NTY").await, 502);
    assert_eq!(tell("model-key-12345").await, 200);
    let turn = Turn::open(&broker).await;
    let call = json!({ "method": "tools/call", "params": { "name": "t", "arguments": {} } });
    assert_eq!(turn.call("/mcp/s", &call).await.status, 502);
}

#[tokio::test]
async fn credentials_under_eight_bytes_are_not_searched_for() {
    let upstream = mirror(str::to_owned).await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("key");
    std::fs::write(&file, "short12").unwrap();
    let mut wanted = settings(&upstream);
    wanted.credential = Credential::File(file);
    let logs = Logs::default();
    let _guard = logs.listen();
    let turn = Turn::with(wanted).await;
    assert_eq!(turn.call("/model", &hello()).await.status, 200);
    assert!(logs.text().contains("under 8 bytes") && !logs.text().contains("short12"));
}

const SECRET: &str = "very-secret-credential-5f1e";

/// Every environment of every process but this one, which has the secret in a file only.
fn environments() -> String {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let read = |entry: std::fs::DirEntry| {
        let environ = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&[environ, line].concat()).into_owned()
    };
    entries.map(read).collect()
}

#[tokio::test]
async fn the_secret_is_in_no_log_error_debug_event_or_environment() {
    let logs = Logs::default();
    let _guard = logs.listen();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("key");
    std::fs::write(&file, SECRET).unwrap();
    let replies = Arc::new(Mutex::new(vec![
        ok(),
        Reply::json(401, &json!({ "error": format!("bad key {SECRET}") })),
        Reply::json(200, &json!({ "x": SECRET })),
        Reply::Hang,
        Reply::json(200, &json!(SECRET)),
    ]));
    let upstream = Upstream::start(move |_| {
        let mut replies = replies.lock().unwrap();
        let reply = if replies.len() > 1 { replies.remove(0) } else { replies[0].clone() };
        std::future::ready(reply)
    })
    .await;
    let mut wanted: BrokerSettings = settings(&upstream);
    wanted.credential = Credential::File(file.clone());
    wanted.extra_headers.push(("x-org".into(), format!("{SECRET}-header")));
    let argv = ["sh", "-c", "sleep 0.3; echo ok"].map(str::to_owned).to_vec();
    let mut command = CommandTool::new(ToolSpec::new("run", "d", Map::new()), argv);
    command.env.insert("TOOL_KEY".into(), "tool-key-of-its-own".into());
    wanted.tools.push(Tool::Command(command));
    let mut seen = vec![format!("{wanted:?}{:?}", Secret::new(SECRET))];
    let broker = Broker::start(wanted.clone()).await.unwrap();
    let mut turn = Turn::open(&broker).await;
    seen.push(format!("{broker:?}{:?}", turn.broker));
    for _ in 0..5 {
        seen.push(turn.call("/model", &hello()).await.text());
    }
    let nothing = json!({});
    let (answer, environments) = tokio::join!(turn.call("/tools/run", &nothing), async {
        tokio::time::sleep(Duration::from_millis(150)).await;
        environments()
    });
    assert_eq!(answer.status, 200);
    assert!(environments.contains("TURNJAIL_CONTEXT") && !environments.contains(SECRET));
    while let Some(event) = turn.events.try_recv() {
        seen.push(format!("{event:?}{}", serde_json::to_string(&event).unwrap()));
    }
    seen.push(format!("{:?}", turn.broker.close().await));
    std::fs::write(&file, "").unwrap();
    let error = Broker::start(wanted).await.unwrap_err();
    seen.push(format!("{error}{error:?}"));
    let seen = seen.concat();
    assert!(!seen.contains(SECRET), "{seen}");
    assert!(!seen.contains("tool-key-of-its-own"), "{seen}");
    // Logs of this crate at every level. The libraries below log at their own, which is not ours to say.
    let logged = logs.text();
    let ours: Vec<&str> = logged.lines().filter(|line| line.contains("turnjail_broker")).collect();
    assert!(ours.iter().any(|line| line.contains("held a credential")), "{ours:?}");
    assert!(!logged.contains(SECRET), "{logged}");
}
