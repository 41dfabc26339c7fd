//! Turns that share a workspace, and runtimes that share roots.

use std::time::Duration;

use serde_json::Value;
use turnjail_protocol::{Budgets, Files};
use turnjail_runtime::{
    TurnError, WorkspaceMode, channel_state, channel_workspace, guild_workspace,
};

use crate::common::{
    Place, Scripted, Verdict, eventually, in_space, paused, request, start, tests,
};

tests![
    guild_channels_share_a_workspace_and_keep_their_state,
    waiting_turns_run_in_order_and_hold_nothing,
    a_full_queue_refuses,
    a_stopped_waiting_turn_leaves_the_order_of_the_others,
    a_turn_waits_no_longer_than_max_wait,
    the_timeout_starts_when_the_turn_runs,
    another_runtime_on_the_same_roots_is_respected,
    a_channels_state_is_locked_with_its_guilds_workspace,
];

fn guild_channels_share_a_workspace_and_keep_their_state() {
    let (place, driver) = (Place::new(), Scripted::new());
    paused(async {
        let options = place
            .options()
            .workspace(WorkspaceMode::Server)
            .files(Files::default())
            .budgets(Budgets { tool_result_bytes: Some(8_192), ..Budgets::default() });
        let runtime = start(options, &driver).await;
        runtime.run_turn(in_space("guild", "chat:1", "auto:Ok")).await.unwrap();
        runtime.run_turn(in_space("guild", "chat:2", "auto:Ok")).await.unwrap();
        runtime.run_turn(request("chat:3", "auto:Ok")).await.unwrap();
    });
    let guild = guild_workspace("chat", "guild");
    let mut expected = vec![
        guild.clone(),
        channel_state("chat:1"),
        channel_state("chat:2"),
        channel_workspace("chat:3"),
    ];
    expected.sort();
    assert_eq!(place.workspaces(), expected);
    let runs = driver.runs();
    assert!(runs[0].spec.workspace_dir.ends_with(&guild));
    assert!(runs[0].spec.channel_dir.as_ref().unwrap().ends_with(channel_state("chat:1")));
    let turn: Value = serde_json::from_str(&runs[0].json).unwrap();
    assert_eq!(turn["historyDir"], "/channel");
    assert_eq!(turn["budgets"], serde_json::json!({"toolResultBytes": 8_192}));
    assert_eq!(turn["files"]["maxFileBytes"], 262_144);
    let alone: Value = serde_json::from_str(&runs[2].json).unwrap();
    assert_eq!(alone.get("historyDir"), None, "a channel without a space has its own workspace");
}

fn waiting_turns_run_in_order_and_hold_nothing() {
    let (place, driver) = (Place::new(), Scripted::new());
    paused(async {
        let runtime = start(place.options().workspace(WorkspaceMode::Server), &driver).await;
        let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let mut turns = vec![runtime.run_turn(in_space("g", "chat:0", "0"))];
        eventually("the first runs", || driver.running() == 1).await;
        let before = descriptors();
        for index in 1..=4 {
            let text = index.to_string();
            turns.push(runtime.run_turn(in_space("g", &format!("chat:{index}"), &text)));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(place.run_directories().len(), 1, "waiting turns have no run directory");
        // Other tests run in this process, so that only the own waiting turns' absence can be told
        // by what they would each need: a directory, a socket, a lock.
        assert!(descriptors() < before + 100);
        assert_eq!((runtime.load().running, runtime.load().waiting), (1, 4));
        for (index, turn) in turns.into_iter().enumerate() {
            let text = index.to_string();
            eventually("it runs", || driver.texts().last() == Some(&text)).await;
            assert!(driver.finish(&text, Verdict::Ok));
            let result = turn.await.unwrap();
            assert_eq!(result.receipt.waited.is_zero(), index == 0, "{:?}", result.receipt);
        }
        assert_eq!((runtime.load().running, runtime.load().waiting), (0, 0));
    });
    assert_eq!(driver.texts(), ["0", "1", "2", "3", "4"]);
    driver.assert_orderly();
}

fn a_full_queue_refuses() {
    let (place, driver) = (Place::new(), Scripted::new());
    paused(async {
        let options = place.options().workspace(WorkspaceMode::Server).max_waiting(1);
        let runtime = start(options, &driver).await;
        let _running = runtime.run_turn(in_space("g", "chat:0", "0"));
        let _waiting = runtime.run_turn(in_space("g", "chat:1", "1"));
        let error = runtime.run_turn(in_space("g", "chat:2", "2")).await.unwrap_err();
        assert_eq!(error.code(), "queue-full");
        assert_eq!(error.to_string(), "1 turns wait for the workspace already");
        assert!(error.is_busy());
        assert_eq!(runtime.busy().len(), 2, "the refused channel is free");
        // Another guild, and a channel of its own, are not concerned.
        runtime.run_turn(in_space("h", "chat:2", "auto:Ok")).await.unwrap();
        runtime.run_turn(request("chat:3", "auto:Ok")).await.unwrap();
    });
    let (place, driver) = (Place::new(), Scripted::new());
    paused(async {
        let options = place.options().workspace(WorkspaceMode::Server).max_waiting(0);
        let runtime = start(options, &driver).await;
        let _running = runtime.run_turn(in_space("g", "chat:0", "0"));
        let error = runtime.run_turn(in_space("g", "chat:1", "1")).await.unwrap_err();
        assert_eq!(error.code(), "queue-full");
    });
}

fn a_stopped_waiting_turn_leaves_the_order_of_the_others() {
    let (place, driver) = (Place::new(), Scripted::new());
    paused(async {
        let runtime = start(place.options().workspace(WorkspaceMode::Server), &driver).await;
        let channel = |index: usize| format!("chat:{index}");
        let turns: Vec<_> = (0..4)
            .map(|index| runtime.run_turn(in_space("g", &channel(index), &index.to_string())))
            .collect();
        assert!(runtime.stop(&channel(2)));
        let mut turns = turns.into_iter();
        let [zero, one, two, three] = std::array::from_fn(|_| turns.next().unwrap());
        let error = two.await.unwrap_err();
        assert!(matches!(error, TurnError::Stopped { waiting: true }), "{error:?}");
        assert_eq!(error.to_string(), "the turn was stopped while waiting for its workspace");
        for (text, turn) in [("0", zero), ("1", one), ("3", three)] {
            eventually("it runs", || driver.finish(text, Verdict::Ok)).await;
            turn.await.unwrap();
        }
    });
    assert_eq!(driver.texts(), ["0", "1", "3"]);
}

fn a_turn_waits_no_longer_than_max_wait() {
    let (place, driver) = (Place::new(), Scripted::new());
    paused(async {
        let options = place
            .options()
            .workspace(WorkspaceMode::Server)
            .turn_timeout(Duration::from_secs(60))
            .max_wait(Duration::from_secs(2));
        let runtime = start(options, &driver).await;
        let running = runtime.run_turn(in_space("g", "chat:0", "0"));
        let begun = tokio::time::Instant::now();
        let error = runtime.run_turn(in_space("g", "chat:1", "1")).await.unwrap_err();
        assert_eq!(error.code(), "waited-too-long");
        assert!(error.is_busy());
        assert_eq!(begun.elapsed().as_secs(), 2);
        assert!(driver.finish("0", Verdict::Ok));
        running.await.unwrap();
    });
    assert_eq!(driver.texts(), ["0"]);
}

fn the_timeout_starts_when_the_turn_runs() {
    let (place, driver) = (Place::new(), Scripted::new());
    paused(async {
        let options = place
            .options()
            .workspace(WorkspaceMode::Server)
            .turn_timeout(Duration::from_secs(10))
            .max_wait(Duration::from_secs(100));
        let runtime = start(options, &driver).await;
        let first = runtime.run_turn(in_space("g", "chat:0", "0"));
        let second = runtime.run_turn(in_space("g", "chat:1", "1"));
        assert_eq!(first.await.unwrap_err().code(), "timeout");
        tokio::time::sleep(Duration::from_secs(9)).await;
        assert!(driver.finish("1", Verdict::Ok), "it still runs, 19 s after its call");
        let result = second.await.unwrap();
        assert_eq!(result.receipt.waited.as_secs(), 10);
        assert_eq!(result.receipt.took.as_secs(), 9);
    });
}

fn another_runtime_on_the_same_roots_is_respected() {
    let (place, driver) = (Place::new(), Scripted::new());
    paused(async {
        let first = place.runtime(&driver).await;
        let turn = first.run_turn(request("chat:1", "1"));
        eventually("it runs", || driver.running() == 1).await;
        // Its start sweeps nothing of the first one's.
        let second = place.runtime(&driver).await;
        assert_eq!(place.run_directories().len(), 1);
        let error = second.run_turn(request("chat:1", "auto:Ok")).await.unwrap_err();
        assert_eq!(error.code(), "workspace-busy");
        assert!(error.is_busy());
        let holder = format!("the workspace is in use by process {}", std::process::id());
        assert!(error.to_string().starts_with(&holder), "{error}");
        second.run_turn(request("chat:2", "auto:Ok")).await.unwrap();
        assert!(driver.finish("1", Verdict::Ok));
        turn.await.unwrap();
        second.run_turn(request("chat:1", "auto:Ok")).await.unwrap();
    });
    driver.assert_orderly();
}

fn a_channels_state_is_locked_with_its_guilds_workspace() {
    let (place, driver) = (Place::new(), Scripted::new());
    paused(async {
        let options = || place.options().workspace(WorkspaceMode::Server);
        let (first, second) = (start(options(), &driver).await, start(options(), &driver).await);
        let turn = first.run_turn(in_space("g", "chat:1", "1"));
        eventually("it runs", || driver.running() == 1).await;
        // Another guild's workspace, but the same channel's state.
        let error = second.run_turn(in_space("h", "chat:1", "auto:Ok")).await.unwrap_err();
        assert_eq!(error.code(), "workspace-busy");
        second.run_turn(in_space("h", "chat:2", "auto:Ok")).await.unwrap();
        assert!(driver.finish("1", Verdict::Ok));
        turn.await.unwrap();
        second.run_turn(in_space("h", "chat:1", "auto:Ok")).await.unwrap();
    });
}
