//! Many channels of many guilds at once, some of which go wrong.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use turnjail_protocol::Files;
use turnjail_runtime::{WorkspaceMode, channel_state, guild_workspace};

use crate::stage::{Stage, request, run};
use turnjail_tests::model::{Answer, Model, last_message, last_result};

const GUILDS: usize = 20;
const CHANNELS: usize = 200;

/// Three in ten turns go wrong, by the word they begin with.
fn word(channel: usize) -> &'static str {
    match channel % 10 {
        3 => "fail",
        5 => "stop",
        8 => "drop",
        _ => "note",
    }
}

fn mind(request: &Value) -> Answer {
    let message = last_message(request);
    let channel = message.split_once(' ').expect("two words").1.to_owned();
    match (message.split_once(' ').expect("two words").0, last_result(request)) {
        ("fail", _) => Answer::Fails,
        ("stop" | "drop", _) => Answer::Hangs,
        (_, None) => Answer::Calls(vec![
            ("memory_set", json!({"scope": "channel", "key": channel, "text": "was here"})),
            (
                "files_write",
                json!({"path": "log.txt", "text": format!("{channel}\n"), "append": true}),
            ),
        ]),
        (_, Some(_)) => Answer::Says(format!("hello {channel}")),
    }
}

pub fn guilds() {
    run(async {
        let model = Model::start(mind).await;
        let stage = Stage::start(
            model,
            |broker| broker.retries = 0,
            |options| {
                options
                    .workspace(WorkspaceMode::Server)
                    .files(Files::default())
                    .max_waiting(100)
                    .max_wait(Duration::from_secs(600))
                    .turn_timeout(Duration::from_secs(120))
            },
        )
        .await;
        let outcomes = all_at_once(&stage).await;
        assert_eq!(outcomes.get("ok"), Some(&(CHANNELS * 7 / 10)), "{outcomes:?}");
        assert_eq!(outcomes.get("worker_failed"), Some(&(CHANNELS / 10)), "{outcomes:?}");
        assert_eq!(outcomes.get("stopped"), Some(&(CHANNELS / 10)), "{outcomes:?}");
        assert_eq!(outcomes.get("dropped"), Some(&(CHANNELS / 10)), "{outcomes:?}");
        stage.runtime.dispose().await;
        assert!(stage.runtime.busy().is_empty());
        assert_eq!(stage.run_directories(), 0);
        check_files(&stage);
    });
}

async fn all_at_once(stage: &Stage) -> BTreeMap<&'static str, usize> {
    let stopper = tokio::spawn(stop_hanging(stage.runtime.clone()));
    let turns: Vec<_> = (0..CHANNELS)
        .map(|channel| {
            let (space, name) = (format!("guild-{}", channel % GUILDS), format!("chat:{channel}"));
            let text = format!("{} {channel}", word(channel));
            let turn = stage.runtime.run_turn(request(Some(&space), &name, &text));
            let runtime = stage.runtime.clone();
            tokio::spawn(async move {
                if word(channel) == "drop" {
                    // At different moments: waiting, starting, running.
                    tokio::time::sleep(Duration::from_millis(channel as u64 * 3)).await;
                    drop(turn);
                    while runtime.busy().contains(&name) {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                    return "dropped";
                }
                match turn.await {
                    Ok(result) => {
                        assert_eq!(result.reply.text, format!("hello {channel}"));
                        "ok"
                    }
                    Err(error) => error.code(),
                }
            })
        })
        .collect();
    let mut outcomes = BTreeMap::new();
    for turn in turns {
        *outcomes.entry(turn.await.expect("no panic")).or_default() += 1;
    }
    stopper.abort();
    outcomes
}

/// Stops the turns that hang, at different moments.
async fn stop_hanging(runtime: turnjail_runtime::SandboxRuntime) {
    let rounds = AtomicU64::new(0);
    loop {
        let round = rounds.fetch_add(1, Ordering::Relaxed);
        for channel in (5..CHANNELS).step_by(10) {
            if round * 7 > channel as u64 {
                runtime.stop(&format!("chat:{channel}"));
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Each guild's memory and file hold exactly the channels that succeeded, and every file is whole.
fn check_files(stage: &Stage) {
    for guild in 0..GUILDS {
        let workspace = stage.kept(&guild_workspace("chat", &format!("guild-{guild}")));
        let succeeded = (guild..CHANNELS).step_by(GUILDS).filter(|c| word(*c) == "note");
        let mut expected: Vec<String> = succeeded.map(|channel| channel.to_string()).collect();
        expected.sort();
        let memory = read(&workspace.join("memory.json"));
        let mut keys: Vec<String> = memory
            .as_array()
            .into_iter()
            .flatten()
            .map(|entry| entry["key"].as_str().expect("a key").to_owned())
            .collect();
        keys.sort();
        assert_eq!(keys, expected, "guild {guild}");
        let log = std::fs::read_to_string(workspace.join("files/log.txt")).unwrap_or_default();
        let mut lines: Vec<String> = log.lines().map(str::to_owned).collect();
        lines.sort();
        assert_eq!(lines, expected, "guild {guild}");
    }
    for channel in 0..CHANNELS {
        let history =
            read(&stage.kept(&channel_state(&format!("chat:{channel}"))).join("history.json"));
        let entries = history.as_array().map_or(0, Vec::len);
        assert_eq!(entries, if word(channel) == "note" { 2 } else { 0 }, "channel {channel}");
    }
}

/// A file's JSON; null when there is none.
fn read(path: &std::path::Path) -> Value {
    match std::fs::read_to_string(path) {
        Ok(text) => serde_json::from_str(&text).expect("whole"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Value::Null,
        Err(error) => panic!("{}: {error}", path.display()),
    }
}
