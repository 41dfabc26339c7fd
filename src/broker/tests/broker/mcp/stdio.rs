//! Servers that are child processes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::json;
use turnjail_broker::{Broker, CallOutcome, McpServer, McpTool, McpTransport};

use super::*;
use crate::support::bench::Turn;

/// A server in shell: the handshake is done for it, `calls` says what happens on a call of id `$id`.
fn shell_server(calls: &str) -> McpServer {
    listing_server(":", calls)
}

/// The same; `list` says what happens when it is asked for its tools.
fn listing_server(list: &str, calls: &str) -> McpServer {
    let script = format!(
        r#"while read -r line; do
            id=$(printf %s "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
            case "$line" in
            *'"method":"initialize"'*) echo '{{"jsonrpc":"2.0","id":'"$id"',"result":{{"protocolVersion":"2025-06-18","capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"x","version":"1"}}}}}}';;
            *'"method":"tools/list"'*) {list};;
            *'"method":"tools/call"'*) {calls}
            esac
        done"#
    );
    let argv = ["sh", "-c", &script].map(str::to_owned).to_vec();
    McpServer::new("s", McpTransport::Stdio { argv, env: BTreeMap::new() }, vec![declared("t")])
}

const ANSWER: &str = r#"echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"content":[{"type":"text","text":"fine"}]}}';"#;

#[tokio::test]
async fn a60_a_child_that_misbehaves_fails_calls_and_nothing_more() {
    use CallOutcome::{Ok, Timeout, Upstream as Failed};
    for (name, calls, status, outcome) in [
        ("answers", ANSWER.to_owned(), 200, Ok),
        ("prints other lines first", format!("echo hello; echo; echo '[]'; echo '{{}}'; {ANSWER}"), 200, Ok),
        ("answers twice", format!("{ANSWER} {ANSWER}"), 200, Ok),
        ("answers another first", format!("id=999; {ANSWER} id=$(printf %s \"$line\" | sed -n 's/.*\"id\":\\([0-9]*\\).*/\\1/p'); {ANSWER}"), 200, Ok),
        ("asks for a model first", format!("echo '{{\"jsonrpc\":\"2.0\",\"id\":77,\"method\":\"sampling/createMessage\",\"params\":{{\"messages\":[],\"maxTokens\":1}}}}'; {ANSWER}"), 200, Ok),
        ("sends a lone surrogate", r#"echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"content":[{"type":"text","text":"\ud83d"}]}}';"#.to_owned(), 200, Ok),
        ("never answers", ":;".to_owned(), 502, Timeout),
        ("ends", "exit 0;".to_owned(), 502, Failed),
        ("closes its output", "exec 1>&-;".to_owned(), 502, Failed),
        ("writes a line without end", "yes | tr -d '\\n';".to_owned(), 502, Failed),
        ("answers something else", r#"echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"tools":[]}}';"#.to_owned(), 502, Failed),
    ] {
        let mut turn = Turn::with(with(shell_server(&calls)).await).await;
        let before = Instant::now();
        let (got, answer, got_outcome) = ask(&mut turn).await;
        assert_eq!((got, got_outcome), (status, outcome), "{name}: {answer}");
        assert!(before.elapsed() < Duration::from_secs(6), "{name}");
        assert_eq!(turn.call("/mcp/s", &json!({})).await.status, 403, "{name}");
    }
}

#[tokio::test]
async fn a_lost_child_is_started_again_at_once_and_then_with_back_off() {
    let directory = tempfile::tempdir().unwrap();
    let gone = directory.path().join("gone");
    // Once the file is there, every new child ends before its handshake.
    let server = shell_server(&format!("if test -e {0}; then exit; fi; {ANSWER}", gone.display()));
    let McpTransport::Stdio { argv, .. } = &server.transport else { unreachable!() };
    let script = format!("if test -e {}; then exit 1; fi; {}", gone.display(), argv[2]);
    let argv = ["sh", "-c", &script].map(str::to_owned).to_vec();
    let server = McpServer::new(
        "s",
        McpTransport::Stdio { argv, env: BTreeMap::new() },
        vec![declared("t")],
    );
    let mut turn = Turn::with(with(server).await).await;
    assert_eq!(ask(&mut turn).await.0, 200);
    std::fs::write(&gone, "").unwrap();
    assert_eq!(ask(&mut turn).await.0, 502);
    // The next call tries to start it, later ones fail at once until the wait is over.
    assert_eq!(ask(&mut turn).await.2, CallOutcome::Unreachable);
    let before = Instant::now();
    assert_eq!(ask(&mut turn).await.2, CallOutcome::Unreachable);
    assert!(before.elapsed() < Duration::from_millis(500));
    std::fs::remove_file(&gone).unwrap();
    assert_eq!(ask(&mut turn).await.0, 502);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(ask(&mut turn).await.0, 200);
}

#[tokio::test]
async fn at_most_sixty_four_sessions_live() {
    let started = tempfile::tempdir().unwrap();
    let server = shell_server(ANSWER);
    let McpTransport::Stdio { argv, .. } = &server.transport else { unreachable!() };
    let script = format!("mktemp -p {} >/dev/null; {}", started.path().display(), argv[2]);
    let argv = ["sh", "-c", &script].map(str::to_owned).to_vec();
    let server = McpServer::new(
        "s",
        McpTransport::Stdio { argv, env: BTreeMap::new() },
        vec![declared("t")],
    );
    let broker = Broker::start(with(server).await).await.unwrap();
    let ask_in = async |channel: &str| ask(&mut Turn::open_in(&broker, channel).await).await.0;
    for number in 0..65 {
        assert_eq!(ask_in(&format!("fake:{number}")).await, 200);
    }
    let count = || started.path().read_dir().unwrap().count();
    // One was the greeting's; the first channel has lost its child to the last one, the second not.
    assert_eq!(count(), 66);
    assert_eq!(ask_in("fake:1").await, 200);
    assert_eq!(count(), 66);
    assert_eq!(ask_in("fake:0").await, 200);
    assert_eq!(count(), 67);
}

/// Whether any process has a word in its command line.
fn runs(word: &str) -> bool {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let mut lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.any(|line| memchr::memmem::find(&line, word.as_bytes()).is_some())
}

#[tokio::test]
async fn a_session_that_nobody_uses_ends_after_five_minutes() {
    let broker = Broker::start(with(shell_server(&format!("{ANSWER} : idle-ones-end;"))).await)
        .await
        .unwrap();
    let mut turn = Turn::open(&broker).await;
    assert_eq!(ask(&mut turn).await.0, 200);
    turn.broker.close().await;
    let pass = async |seconds| {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(seconds)).await;
        tokio::time::resume();
        tokio::time::sleep(Duration::from_millis(300)).await;
    };
    pass(290).await;
    assert!(runs("idle-ones-end"));
    // The longest time between two looks is half a minute.
    pass(41).await;
    for _ in 0..100 {
        if !runs("idle-ones-end") {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("it goes on");
}

/// A server whose tool is declared by name, so that it is asked for it at start-up.
fn asked(list: &str) -> McpServer {
    let mut server = listing_server(list, ":;");
    server.tools = vec![McpTool::named("t")];
    server
}

#[tokio::test]
async fn a_child_that_is_silent_about_its_tools_stops_start_up_in_half_a_minute() {
    let directory = tempfile::tempdir().unwrap();
    let mark = directory.path().join("asked");
    let settings = with(asked(&format!("touch {}", mark.display()))).await;
    let starting = tokio::spawn(Broker::start(settings));
    while !mark.exists() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(31)).await;
    tokio::time::resume();
    let ended = tokio::time::timeout(Duration::from_secs(10), starting).await.expect("it hangs");
    let text = ended.unwrap().unwrap_err().to_string();
    assert!(text.contains("MCP server s") && text.contains("30 s"), "{text}");
}

#[tokio::test]
async fn a_child_whose_list_has_no_end_stops_start_up() {
    let page =
        r#"echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"tools":[],"nextCursor":"'"$id"'"}}'"#;
    let error = Broker::start(with(asked(page)).await).await.unwrap_err();
    assert!(error.to_string().contains("pages"), "{error}");
}

#[tokio::test]
async fn what_a_child_says_is_in_no_error() {
    const KEY: &str = "sk-very-secret-123456";
    let refusal = r#"echo '{"jsonrpc":"2.0","id":'"$id"',"error":{"code":-32042,"message":"bad '"$KEY"'","data":"'"$KEY"'"}}'"#;
    let list = asked(refusal);
    let mut handshake = asked(refusal);
    let script = format!(
        r#"read -r line; id=$(printf %s "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p'); {refusal}; cat >/dev/null"#
    );
    handshake.transport = McpTransport::Stdio {
        argv: ["sh", "-c", &script].map(str::to_owned).to_vec(),
        env: BTreeMap::new(),
    };
    for mut server in [list, handshake] {
        let McpTransport::Stdio { env, .. } = &mut server.transport else { unreachable!() };
        env.insert("KEY".into(), KEY.into());
        let error = Broker::start(with(server).await).await.unwrap_err();
        let text = format!("{error}{error:?}");
        assert!(text.contains("-32042") && !text.contains(KEY), "{text}");
    }
}
