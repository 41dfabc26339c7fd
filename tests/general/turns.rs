//! Turns of a runtime whose workers are general images: with the real broker, its rules, and tools.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use turnjail_broker::{BrokerSettings, Credential, HostTool, ToolContext, ToolError};
use turnjail_jail::{JailDriver, JailOptions};
use turnjail_protocol::ToolSpec;
use turnjail_runtime::{SandboxOptions, SandboxRuntime, Speaker, TurnRequest};
use turnjail_tests::general::General;
use turnjail_tests::jails::private_dir;
use turnjail_tests::model::{Answer, Model, last_result};

use crate::{store, typescript};

/// A host tool that says who asks.
struct WhoAsks(ToolSpec);

#[async_trait]
impl HostTool for WhoAsks {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(
        &self,
        _: Map<String, Value>,
        context: &ToolContext,
    ) -> Result<String, ToolError> {
        Ok(format!("asked by {}", context.speaker.principal_id))
    }
}

/// Says these texts in one channel, one turn each, and gives the replies.
fn say(
    (store, image): (PathBuf, String),
    mind: impl Fn(&Value) -> Answer + Send + Sync + 'static,
    texts: &[&str],
) -> Vec<String> {
    let directory = private_dir();
    let (run, work) = (directory.path().join("run"), directory.path().join("work"));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let model = Model::start(mind).await;
        let mut broker = BrokerSettings::new("model-1", model.url(), Credential::None);
        broker.allow_http = true;
        let tool = WhoAsks(ToolSpec::new("who", "Says who asks.", Map::new()));
        broker.tools = vec![Arc::new(tool).into()];
        let driver = JailDriver::start(JailOptions::new(store)).await.expect("a driver");
        let options = SandboxOptions::new(&image, run, work, broker);
        let runtime = SandboxRuntime::new(options, Arc::new(driver)).await.expect("a runtime");
        runtime.verify_image().await.expect("the image");
        let mut replies = Vec::new();
        for &text in texts {
            let (id, name) = ("ann".to_owned(), "Ann".to_owned());
            let principal_id = "principal-of-ann".to_owned();
            let turn = runtime.run_turn(TurnRequest {
                channel: "test:1".to_owned(),
                space: None,
                speaker: Speaker { id, name, principal_id },
                text: text.to_owned(),
            });
            let result = turn.await.unwrap_or_else(|error| panic!("{image}, {text}: {error}"));
            let run = &result.receipt.run;
            assert_eq!((run.profile, result.reply.ok), (Some("general"), true), "{result:?}");
            replies.push(result.reply.text);
        }
        runtime.dispose().await;
        replies
    })
}

/// What the model gets from workers in other languages is as the broker's rules want it.
pub fn languages() {
    for image in [General::Python, General::Node, General::Bun] {
        let (name, text) = match image {
            General::Python => ("worker.py", store::PYTHON),
            _ => ("worker.mjs", store::JAVASCRIPT),
        };
        let replies =
            say(store::worker(image, name, text), |_| Answer::Says("hi".into()), &["you"]);
        assert_eq!(replies, ["you hi"], "{}", image.name());
    }
}

/// The TypeScript worker remembers, calls a host tool, and knows the conversation in the next turn.
pub fn of_the_typescript_worker() {
    let mind = |request: &Value| {
        let messages = request["messages"].to_string();
        match last_result(request) {
            None if messages.contains("remember") && !messages.contains("and now") => {
                Answer::Calls(vec![
                    (
                        "memory_set",
                        json!({"scope": "channel", "key": "where", "text": "the blue house"}),
                    ),
                    ("host_who", json!({})),
                ])
            }
            Some(result) => Answer::Says(result),
            None => Answer::Says(messages),
        }
    };
    let replies = say(typescript::image(), mind, &["remember", "and now"]);
    assert_eq!(replies[0], r#"{"text":"asked by principal-of-ann"}"#);
    assert!(replies[1].contains("the blue house"), "the note is there: {}", replies[1]);
    assert!(replies[1].contains("asked by principal-of-ann"), "the history is: {}", replies[1]);
}
