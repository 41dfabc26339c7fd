//! Whole turns through the runtime: with containers as with jails.

use std::sync::Arc;

use turnjail_broker::{BrokerSettings, Credential};
use turnjail_driver::ContainerDriver;
use turnjail_images::BUILTIN;
use turnjail_jail::{JailDriver, JailOptions};
use turnjail_runtime::{SandboxOptions, SandboxRuntime, Speaker, TurnRequest, WorkspaceMode};
use turnjail_tests::jails::private_dir;
use turnjail_tests::model::{Answer, Model, last_message};

use crate::docker::{block_on, driver};

/// A conversation of three turns in a guild, and what the model was sent for it.
async fn conversation(driver: Arc<dyn ContainerDriver>) -> (Vec<String>, Vec<serde_json::Value>) {
    let model = Model::start(|request| {
        let asked = last_message(request);
        let earlier = request["messages"].as_array().map_or(0, Vec::len);
        Answer::Says(format!("{asked} (after {earlier} messages)"))
    })
    .await;
    let place = private_dir();
    let mut broker = BrokerSettings::new("model-1", model.url(), Credential::None);
    broker.allow_http = true;
    let (run, work) = (place.path().join("run"), place.path().join("work"));
    let options = SandboxOptions::new(BUILTIN, run, work, broker)
        .workspace(WorkspaceMode::Server)
        .prompt("Answer.");
    let runtime = SandboxRuntime::new(options, driver).await.expect("a runtime");
    runtime.verify_image().await.expect("a worker of protocol 2");
    let mut replies = Vec::new();
    for (channel, text) in [("t:one", "first"), ("t:one", "second"), ("t:two", "third")] {
        let request = TurnRequest {
            channel: channel.to_owned(),
            space: Some("guild".to_owned()),
            speaker: Speaker {
                id: "ann".to_owned(),
                name: "Ann".to_owned(),
                principal_id: "t:ann".to_owned(),
            },
            text: text.to_owned(),
        };
        replies.push(runtime.run_turn(request).await.expect("a reply").reply.text);
    }
    runtime.dispose().await;
    (replies, model.requests())
}

pub fn same() {
    block_on(async {
        let docker = conversation(Arc::new(driver().await)).await;
        let store = private_dir();
        let jails = JailDriver::start(JailOptions::new(store.path().to_owned())).await;
        let jail = conversation(Arc::new(jails.expect("jails"))).await;
        assert_eq!(docker.0, jail.0);
        assert!(docker.0[1].starts_with("second (after 4 messages)"), "{:?}", docker.0);
        let without_time = |requests: Vec<serde_json::Value>| {
            let text = serde_json::to_string(&requests).expect("JSON");
            let lines = text.split("\\n").filter(|line| !line.starts_with("Current time"));
            lines.collect::<Vec<_>>().join("\\n")
        };
        assert_eq!(without_time(docker.1), without_time(jail.1));
    });
}
