//! One turn: what it is given, what it leaves, how it ends.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::Duration;

use serde_json::Value;
use turnjail_driver::ExitReason;
use turnjail_runtime::{
    EventKind, Speaker, TurnError, TurnRequest, WorkspaceMode, channel_workspace, event_channel,
};

use crate::common::{
    Place, Scripted, Verdict, eventually, in_space, paused, request, start, tests,
};

tests![
    a_turn_is_answered_and_leaves_nothing_but_its_workspace,
    a_worker_is_told_no_principal,
    every_kind_of_end_leaves_nothing,
    each_bad_request_is_refused_before_anything_is_started,
    lengths_are_counted_in_utf16_units,
    a_turn_may_run_as_long_as_the_timeout_and_no_longer,
    stop_ends_a_running_turn,
    a_second_turn_of_a_channel_is_refused,
    dispose_ends_everything_and_refuses_more,
    events_tell_what_happens,
    a_deaf_driver_is_given_up_and_said,
    a_late_success_counts,
    a_workspace_whose_permissions_the_worker_took_works_again,
    a_workspace_that_is_no_directory_is_refused_and_not_followed,
];

fn a_turn_is_answered_and_leaves_nothing_but_its_workspace() {
    let (place, driver) = (Place::new(), Scripted::new());
    paused(async {
        let options = place.options().prompt("Be kind.").time_zone("Europe/Vienna");
        let runtime = start(options.memory_mb(128).pids(9).cpus(0.5), &driver).await;
        let result = runtime.run_turn(request("chat:1", "auto:Ok")).await.unwrap();
        assert!(result.reply.ok);
        assert_eq!(result.reply.text, "re: auto:Ok");
        assert_eq!(result.receipt.run.exit, ExitReason::Ok);
        assert_eq!(result.receipt.turn.len(), 16);
        assert!(!result.receipt.reset);
        assert!(runtime.busy().is_empty());
    });
    let run = &driver.runs()[0];
    let turn: Value = serde_json::from_str(&run.json).unwrap();
    assert_eq!(turn["text"], "auto:Ok");
    assert_eq!(turn["model"], "model-1");
    assert_eq!(turn["prompt"], "Be kind.");
    assert_eq!(turn["timeZone"], "Europe/Vienna");
    assert_eq!(turn["reset"], false);
    assert_eq!(turn["tools"], Value::Array(vec![]));
    let limits = run.spec.limits;
    assert_eq!((limits.memory_mb, limits.pids, limits.cpus), (128, 9, 0.5));
    assert_eq!(limits.time_ms, 120_000);
    assert_eq!(run.spec.image, "worker:1");
    let hash = channel_workspace("chat:1");
    assert_eq!(run.spec.workspace_dir, place.workspace_root().canonicalize().unwrap().join(&hash));
    assert_eq!(run.spec.channel_dir, None);
    let (before, random) = run.spec.name.rsplit_once('-').unwrap();
    assert_eq!(before, format!("roundtable-sandbox-{}", &hash[..16]));
    assert!(random.len() == 8 && random.bytes().all(|byte| byte.is_ascii_hexdigit()), "{random}");
    assert_eq!(place.run_directories(), [""; 0]);
    assert_eq!(place.workspaces(), [hash]);
    driver.assert_orderly();
}

fn a_worker_is_told_no_principal() {
    let (place, driver) = (Place::new(), Scripted::new());
    paused(async {
        let runtime = place.runtime(&driver).await;
        runtime.run_turn(request("chat:1", "auto:Ok")).await.unwrap();
    });
    let run = &driver.runs()[0];
    assert!(run.json.contains(r#""speaker":{"id":"ann","name":"Ann"}"#), "{}", run.json);
    assert!(!run.json.contains("principal"), "{}", run.json);
}

fn every_kind_of_end_leaves_nothing() {
    let (place, driver) = (Place::new(), Scripted::new());
    paused(async {
        let runtime = place.runtime(&driver).await;
        for verdict in [
            Verdict::Ok,
            Verdict::NotOk,
            Verdict::Fail,
            Verdict::Start,
            Verdict::Panic,
            Verdict::Cleanup,
            Verdict::Memory,
        ] {
            let result = runtime.run_turn(request("chat:1", &verdict.text())).await;
            match (verdict, result) {
                (Verdict::Ok, Ok(result)) => assert!(result.reply.ok),
                (Verdict::NotOk, Ok(result)) => assert!(!result.reply.ok),
                (Verdict::Fail, Err(error)) => {
                    assert_eq!(error.code(), "worker_failed");
                    let TurnError::WorkerFailed { code, receipt, .. } = error else { panic!() };
                    assert_eq!(code.as_deref(), Some("model_refused"));
                    assert_eq!(receipt.exit, ExitReason::WorkerFailed);
                }
                (Verdict::Memory, Err(error)) => {
                    assert_eq!(error.code(), "memory");
                    assert!(error.remedy().unwrap().contains("memory_mb"));
                }
                (Verdict::Start, Err(error)) => {
                    assert_eq!(error.code(), "userns-disabled");
                    assert_eq!(error.remedy(), Some("turn them on"));
                }
                (Verdict::Cleanup, Err(error)) => assert_eq!(error.code(), "cleanup"),
                (Verdict::Panic, Err(error)) => {
                    assert_eq!(error.to_string(), "the driver scripted panicked");
                }
                (verdict, result) => panic!("{verdict:?}: {result:?}"),
            }
            assert_eq!(place.run_directories(), [""; 0], "{verdict:?}");
            assert!(runtime.busy().is_empty(), "{verdict:?}");
        }
    });
}

fn each_bad_request_is_refused_before_anything_is_started() {
    let (place, driver) = (Place::new(), Scripted::new());
    let long = "x".repeat(257);
    let speaker = |id: &str, name: &str, principal_id: &str| Speaker {
        id: id.to_owned(),
        name: name.to_owned(),
        principal_id: principal_id.to_owned(),
    };
    let of = |speaker| TurnRequest { speaker, ..request("chat:1", "") };
    paused(async {
        let runtime = place.runtime(&driver).await;
        for (request, code, says) in [
            (request("", ""), "refused", "the channel must have 1 to 256"),
            (request(&format!("chat:{long}"), ""), "refused", "the channel must have 1 to 256"),
            (request("chat:1\n", ""), "refused", "no control character"),
            (request("chat:\u{85}", ""), "refused", "no control character"),
            (request("chat", ""), "refused", "`surface:id`"),
            (request(":1", ""), "refused", "`surface:id`"),
            (request("chat:", ""), "refused", "`surface:id`"),
            (in_space("", "chat:1", ""), "refused", "the space must have 1 to 256"),
            (in_space("a\0b", "chat:1", ""), "refused", "the space must have"),
            (in_space(&long, "chat:1", ""), "refused", "the space must have"),
            (of(speaker("ann", "Ann", "")), "refused", "no principal"),
            (of(speaker(&long, "Ann", "p")), "too-large", "the speaker's id has 257"),
            (of(speaker("ann", &long, "p")), "too-large", "the speaker's name has 257"),
            (of(speaker("ann", "Ann", &long)), "too-large", "the speaker's principal has 257"),
            (request("chat:1", &"x".repeat(32_001)), "too-large", "the message has 32001"),
        ] {
            let error = runtime.run_turn(request).await.unwrap_err();
            assert_eq!(error.code(), code, "{error}");
            assert!(error.to_string().contains(says), "{error}");
        }
    });
    assert!(driver.runs().is_empty());
    assert_eq!(place.workspaces(), [""; 0]);
}

fn lengths_are_counted_in_utf16_units() {
    let (place, driver) = (Place::new(), Scripted::new());
    paused(async {
        let runtime = place.runtime(&driver).await;
        let astral = |count| request("chat:1", &"😀".repeat(count));
        let turn = runtime.run_turn(astral(16_000));
        eventually("it runs", || driver.running() == 1).await;
        drop(turn);
        let error = runtime.run_turn(astral(16_001)).await.unwrap_err();
        assert!(error.to_string().contains("32002 UTF-16 code units"), "{error}");
    });
}

fn a_turn_may_run_as_long_as_the_timeout_and_no_longer() {
    let (place, driver) = (Place::new(), Scripted::new());
    paused(async {
        let runtime = start(place.options().turn_timeout(Duration::from_secs(5)), &driver).await;
        let begun = tokio::time::Instant::now();
        let error = runtime.run_turn(request("chat:1", "hang")).await.unwrap_err();
        assert_eq!(error.code(), "timeout");
        assert_eq!(error.to_string(), "the turn was not finished within 5 s");
        let took = begun.elapsed();
        assert!((5.0..5.1).contains(&took.as_secs_f64()), "{took:?}");
        assert_eq!(place.run_directories(), [""; 0]);
        assert_eq!(driver.running(), 0);
    });
}

fn stop_ends_a_running_turn() {
    let (place, driver) = (Place::new(), Scripted::new());
    paused(async {
        let runtime = place.runtime(&driver).await;
        assert!(!runtime.stop("chat:1"), "nothing to stop");
        let turn = runtime.run_turn(request("chat:1", "hang"));
        eventually("it runs", || driver.running() == 1).await;
        assert_eq!(runtime.busy(), ["chat:1"]);
        assert_eq!(place.run_directories().len(), 1);
        assert!(runtime.stop("chat:1"));
        let error = turn.await.unwrap_err();
        assert!(matches!(error, TurnError::Stopped { waiting: false }), "{error:?}");
        assert_eq!(error.to_string(), "the turn was stopped");
        assert_eq!(place.run_directories(), [""; 0]);
        assert!(!runtime.stop("chat:1"));
    });
}

fn a_second_turn_of_a_channel_is_refused() {
    let (place, driver) = (Place::new(), Scripted::new());
    paused(async {
        let runtime = place.runtime(&driver).await;
        let first = runtime.run_turn(request("chat:1", "one"));
        let error = runtime.run_turn(request("chat:1", "two")).await.unwrap_err();
        assert_eq!(error.code(), "channel-busy");
        assert!(error.is_busy());
        // Another channel does not mind, and the refused one has not taken the first one's place.
        runtime.run_turn(request("chat:2", "auto:Ok")).await.unwrap();
        eventually("the first runs", || driver.finish("one", Verdict::Ok)).await;
        first.await.unwrap();
        runtime.run_turn(request("chat:1", "auto:Ok")).await.unwrap();
    });
    driver.assert_orderly();
}

fn dispose_ends_everything_and_refuses_more() {
    let (place, driver) = (Place::new(), Scripted::new());
    paused(async {
        let runtime = start(place.options().workspace(WorkspaceMode::Server), &driver).await;
        let running = runtime.run_turn(in_space("g", "chat:0", "0"));
        let waiting = runtime.run_turn(in_space("g", "chat:1", "1"));
        let other = runtime.run_turn(request("chat:2", "2"));
        eventually("two run", || driver.running() == 2).await;
        runtime.dispose().await;
        assert_eq!(driver.running(), 0);
        assert_eq!(place.run_directories(), [""; 0]);
        assert!(runtime.busy().is_empty());
        for turn in [running, waiting, other] {
            assert_eq!(turn.await.unwrap_err().code(), "shutting-down");
        }
        let error = runtime.run_turn(request("chat:3", "auto:Ok")).await.unwrap_err();
        assert_eq!(error.code(), "shutting-down");
        runtime.dispose().await;
    });
}

fn events_tell_what_happens() {
    let (place, driver) = (Place::new(), Scripted::new());
    paused(async {
        let runtime = place.runtime(&driver).await;
        let (sender, mut receiver) = event_channel();
        runtime.run_turn_observed(request("chat:1", "auto:Ok"), sender).await.unwrap();
        let mut kinds = Vec::new();
        while let Some(event) = receiver.recv().await {
            kinds.push(event.kind);
        }
        assert!(
            matches!(
                kinds[..],
                [
                    EventKind::TurnStarted,
                    EventKind::JailReady { .. },
                    EventKind::TurnEnded { ok: true }
                ]
            ),
            "{kinds:?}"
        );
    });
}

fn a_deaf_driver_is_given_up_and_said() {
    let (place, driver) = (Place::new(), Scripted::new());
    paused(async {
        let runtime = start(place.options().turn_timeout(Duration::from_secs(5)), &driver).await;
        let begun = tokio::time::Instant::now();
        let error = runtime.run_turn(request("chat:1", "deaf")).await.unwrap_err();
        assert_eq!(error.code(), "cleanup");
        assert_eq!(
            error.to_string(),
            "the worker run by scripted did not end within 10 s of being told"
        );
        assert_eq!(begun.elapsed().as_secs(), 15);
        assert_eq!(driver.running(), 0, "its future was dropped");
        runtime.run_turn(request("chat:1", "auto:Ok")).await.unwrap();
    });
}

fn a_late_success_counts() {
    let (place, driver) = (Place::new(), Scripted::new());
    paused(async {
        let runtime = place.runtime(&driver).await;
        runtime.start_fresh("chat:1");
        let turn = runtime.run_turn(request("chat:1", "late"));
        eventually("it runs", || driver.running() == 1).await;
        runtime.stop("chat:1");
        assert!(turn.await.unwrap().reply.ok, "the worker was done before it could be stopped");
        runtime.run_turn(request("chat:1", "auto:Ok")).await.unwrap();
    });
    let resets: Vec<bool> = driver.runs().iter().map(|run| run.turn.reset).collect();
    assert_eq!(resets, [true, false]);
}

fn a_workspace_whose_permissions_the_worker_took_works_again() {
    let (place, driver) = (Place::new(), Scripted::new());
    paused(async {
        let runtime = place.runtime(&driver).await;
        runtime.run_turn(request("chat:1", "auto:Ok")).await.unwrap();
        let workspace = place.workspace_root().join(channel_workspace("chat:1"));
        for mode in [0, 0o777, 0o4755] {
            std::fs::set_permissions(&workspace, PermissionsExt::from_mode(mode)).unwrap();
            runtime.run_turn(request("chat:1", "auto:Ok")).await.unwrap();
        }
    });
    driver.assert_orderly();
}

fn a_workspace_that_is_no_directory_is_refused_and_not_followed() {
    let (place, driver) = (Place::new(), Scripted::new());
    paused(async {
        let runtime = place.runtime(&driver).await;
        let elsewhere = place.path().join("elsewhere");
        std::fs::create_dir(&elsewhere).unwrap();
        std::fs::set_permissions(&elsewhere, PermissionsExt::from_mode(0o755)).unwrap();
        let workspace = place.workspace_root().join(channel_workspace("chat:1"));
        symlink(&elsewhere, &workspace).unwrap();
        let error = runtime.run_turn(request("chat:1", "auto:Ok")).await.unwrap_err();
        assert_eq!(error.code(), "host");
        assert!(error.to_string().ends_with("is no directory"), "{error}");
        assert!(error.to_string().contains(&channel_workspace("chat:1")), "{error}");
        let mode = std::fs::metadata(&elsewhere).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755, "untouched");
        std::fs::remove_file(&workspace).unwrap();
        runtime.run_turn(request("chat:1", "auto:Ok")).await.unwrap();
    });
    assert_eq!(driver.runs().len(), 1);
}
