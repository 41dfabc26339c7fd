//! Conversations: what one turn leaves to the next, and to whom.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use turnjail_broker::{CallOutcome, CallRoute, HostTool, ToolContext, ToolError};
use turnjail_protocol::ToolSpec;
use turnjail_runtime::{TurnError, WorkspaceMode, channel_state, guild_workspace};

use crate::stage::{Stage, request, run};
use turnjail_tests::model::{Answer, Model, last_message, last_result};

/// Says back how many messages it was sent, and the last.
fn echo(request: &Value) -> Answer {
    let count = request["messages"].as_array().map_or(0, Vec::len);
    Answer::Says(format!("{count}: {}", last_message(request)))
}

pub fn remembers() {
    run(async {
        let stage = Stage::start(Model::start(echo).await, |_| {}, |options| options).await;
        assert_eq!(stage.say("chat:1", "one").await, "2: one");
        assert_eq!(stage.say("chat:1", "two").await, "4: two");
        assert_eq!(stage.say("chat:2", "three").await, "2: three", "another channel's own");
        let asked = stage.model.requests();
        let text = asked[1]["messages"].to_string();
        assert!(text.contains("2: one"), "the second turn saw the first reply: {text}");
        assert!(!text.contains("principal"), "no worker knows the principal: {text}");
    });
}

pub fn fresh() {
    run(async {
        let stage = Stage::start(Model::start(echo).await, |_| {}, |options| options).await;
        stage.say("chat:1", "one").await;
        stage.runtime.start_fresh("chat:1");
        assert_eq!(stage.say("chat:1", "two").await, "2: two");
        assert_eq!(stage.say("chat:1", "three").await, "4: three", "the new conversation goes on");
    });
}

pub fn guild() {
    let mind = |request: &Value| match (last_message(request).as_str(), last_result(request)) {
        (_, Some(result)) => Answer::Says(result),
        ("note", None) => Answer::Calls(vec![(
            "memory_set",
            json!({"scope": "channel", "key": "where", "text": "the blue house"}),
        )]),
        _ => Answer::Says(request["messages"].to_string()),
    };
    run(async {
        let model = Model::start(mind).await;
        let options =
            |options: turnjail_runtime::SandboxOptions| options.workspace(WorkspaceMode::Server);
        let stage = Stage::start(model, |_| {}, options).await;
        let say = async |space, channel, text| {
            let turn = stage.runtime.run_turn(request(space, channel, text));
            turn.await.expect("a reply").reply.text
        };
        assert_eq!(say(Some("g"), "chat:1", "note").await, "Saved.");
        let seen = say(Some("g"), "chat:2", "look").await;
        assert!(seen.contains("the blue house"), "the guild's memory is shared: {seen}");
        assert!(!seen.contains("Saved."), "and the conversation is not: {seen}");
        let elsewhere = say(Some("h"), "chat:3", "look").await;
        assert!(!elsewhere.contains("the blue house"), "another guild: {elsewhere}");
        let alone = say(None, "chat:4", "look").await;
        assert!(!alone.contains("the blue house"), "a channel of its own: {alone}");

        let workspace = stage.kept(&guild_workspace("chat", "g"));
        assert!(workspace.join("memory.json").exists());
        assert!(!workspace.join("history.json").exists());
        assert!(stage.kept(&channel_state("chat:1")).join("history.json").exists());
    });
}

/// A tool that never ends by itself and counts its calls that run.
struct Waiting {
    spec: ToolSpec,
    running: Arc<AtomicUsize>,
}

struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl HostTool for Waiting {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(
        &self,
        _: Map<String, Value>,
        context: &ToolContext,
    ) -> Result<String, ToolError> {
        assert_eq!(context.speaker.principal_id, "principal-of-ann");
        self.running.fetch_add(1, Ordering::SeqCst);
        let _counted = Counted(Arc::clone(&self.running));
        std::future::pending().await
    }
}

pub fn host_call() {
    run(async {
        let running = Arc::new(AtomicUsize::new(0));
        let tool =
            Waiting { spec: ToolSpec::new("wait", "", Map::new()), running: Arc::clone(&running) };
        let model = Model::start(|_| Answer::Calls(vec![("host_wait", json!({}))])).await;
        let stage = Stage::start(
            model,
            |broker| broker.tools.push(Arc::new(tool).into()),
            |options| options.turn_timeout(Duration::from_secs(20)),
        )
        .await;
        // Ended in each way, the turn is over only when the tool's call is.
        for round in 0..3 {
            let turn = stage.runtime.run_turn(request(None, "chat:1", "wait"));
            let begun = tokio::time::Instant::now();
            while running.load(Ordering::SeqCst) == 0 {
                assert!(begun.elapsed() < Duration::from_secs(20), "the tool is called");
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            if round == 0 {
                assert!(stage.runtime.stop("chat:1"));
                assert!(matches!(turn.await, Err(TurnError::Stopped { waiting: false })));
            } else {
                drop(turn);
                while !stage.runtime.busy().is_empty() {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            }
            assert_eq!(running.load(Ordering::SeqCst), 0);
            assert_eq!(stage.run_directories(), 0);
        }
    });
}

pub fn receipt() {
    run(async {
        let mind = |request: &Value| match last_result(request) {
            Some(_) => Answer::Says("done".to_owned()),
            None => Answer::Calls(vec![("host_fail", json!({}))]),
        };
        let tool = Failing(ToolSpec::new("fail", "", Map::new()));
        let stage = Stage::start(
            Model::start(mind).await,
            |broker| broker.tools.push(Arc::new(tool).into()),
            |options| options,
        )
        .await;
        let turn = stage.runtime.run_turn(request(None, "chat:1", "go"));
        let receipt = turn.await.expect("a reply").receipt;
        let calls = &receipt.calls;
        assert_eq!((calls.calls, calls.model_calls, calls.failed), (3, 2, 1));
        let ended: Vec<_> =
            calls.ended.iter().map(|call| (call.route.clone(), call.outcome)).collect();
        let tool = CallRoute::Tool { name: "fail".into() };
        let model = (CallRoute::Model, CallOutcome::Ok);
        assert_eq!(ended, [model.clone(), (tool, CallOutcome::Tool), model]);
        assert!(calls.ended.iter().all(|call| call.request_bytes > 0 && call.answer_bytes > 0));
        let tokens = calls.tokens.expect("the model tells its cost");
        assert_eq!((tokens.prompt, tokens.completion), (200, 14));
        assert_eq!(receipt.run.driver, "jail");
        assert!(receipt.run.walls.iter().any(|wall| wall.name.contains("network")));
        assert!(receipt.took >= Duration::from_micros(receipt.run.timing.run_us));
    });
}

/// A tool that fails.
struct Failing(ToolSpec);

#[async_trait]
impl HostTool for Failing {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: Map<String, Value>, _: &ToolContext) -> Result<String, ToolError> {
        Err(ToolError::failed("on purpose"))
    }
}

pub fn failing_model() {
    run(async {
        let mind = |request: &Value| match last_message(request).as_str() {
            "fail" => Answer::Fails,
            "babble" => Answer::Babbles,
            "hang" => Answer::Hangs,
            _ => Answer::Says("fine".to_owned()),
        };
        let stage = Stage::start(
            Model::start(mind).await,
            |broker| broker.retries = 0,
            |options| options.turn_timeout(Duration::from_secs(2)),
        )
        .await;
        for (text, code) in
            [("fail", "worker_failed"), ("babble", "worker_failed"), ("hang", "timeout")]
        {
            let turn = stage.runtime.run_turn(request(None, "chat:1", text));
            let error = turn.await.expect_err("no reply");
            assert_eq!(error.code(), code, "{text}: {error}");
            if let TurnError::WorkerFailed { code, .. } = error {
                assert_eq!(code.as_deref(), Some("model_refused"), "{text}");
            }
            assert_eq!(stage.run_directories(), 0);
        }
        // Failed turns leave no trace in the conversation.
        assert_eq!(stage.say("chat:1", "well?").await, "fine");
        let asked = stage.model.requests();
        assert_eq!(asked.last().expect("asked")["messages"].as_array().expect("them").len(), 2);
    });
}
