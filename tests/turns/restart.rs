//! A warden that dies takes its turns along; the next turn finds another.

use std::fs;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use turnjail_tests::model::{Answer, Model};

use crate::stage::{Stage, request, run};

/// Waits for a condition without a deadline of its own: the test is stopped from outside if ever.
async fn until(mut condition: impl FnMut() -> bool) {
    while !condition() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn mind(request: &Value) -> Answer {
    let messages = request["messages"].as_array().cloned().unwrap_or_default();
    let last = messages.last().map(Value::to_string).unwrap_or_default();
    if last.contains("wait for ever") { Answer::Hangs } else { Answer::Says("here".to_owned()) }
}

fn children(pid: i32) -> Vec<i32> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

pub fn after_death() {
    run(async {
        let stage = Stage::start(Model::start(mind).await, |_| {}, |options| options).await;
        assert_eq!(stage.say("room:1", "Hello!").await, "here");
        for round in 0..3 {
            let asked = stage.model.requests().len();
            let turn = stage.runtime.run_turn(request(None, "room:2", "wait for ever"));
            let keeper = stage.driver.keeper();
            let killing = async {
                until(|| stage.model.requests().len() > asked).await;
                let wardens = children(keeper);
                assert_eq!(wardens.len(), 1, "round {round}: {wardens:?}");
                let jails = children(wardens[0]);
                assert!(!jails.is_empty(), "round {round}");
                kill(Pid::from_raw(wardens[0]), Signal::SIGKILL).expect("killed");
                jails
            };
            let (ended, jails) = tokio::join!(turn, killing);
            ended.expect_err("its warden died");
            let there = |pid: &i32| fs::exists(format!("/proc/{pid}")).unwrap_or(true);
            until(|| !jails.iter().any(there)).await;
            for channel in ["room:1", "room:2", "room:3"] {
                assert_eq!(stage.say(channel, "Hello!").await, "here", "round {round}");
            }
            assert_ne!(stage.driver.keeper(), keeper, "round {round}");
            until(|| !there(&keeper)).await;
        }
    });
}
