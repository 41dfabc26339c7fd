//! `start_fresh` beside running, waiting, failing and stopped turns.

use turnjail_runtime::{SandboxRuntime, WorkspaceMode};

use crate::common::{
    Place, Scripted, Verdict, eventually, in_space, paused, request, start, tests,
};

tests![
    the_next_successful_turn_resets,
    a_request_during_a_turn_stays_pending,
    a_second_request_during_the_resetting_turn_stays_pending,
    a_turn_that_fails_leaves_the_request_pending,
    a_waiting_turn_does_not_fulfil_a_later_request,
    requests_belong_to_their_channel,
    a_dropped_turn_leaves_the_request_pending,
];

/// Which turns of the driver's log were told to reset.
fn resets(driver: &Scripted) -> Vec<bool> {
    driver.runs().iter().map(|run| run.turn.reset).collect()
}

async fn answered(runtime: &SandboxRuntime, verdict: Verdict) {
    let _ = runtime.run_turn(request("chat:1", &verdict.text())).await;
}

fn the_next_successful_turn_resets() {
    let (place, driver) = (Place::new(), Scripted::new());
    paused(async {
        let runtime = place.runtime(&driver).await;
        answered(&runtime, Verdict::Ok).await;
        runtime.start_fresh("chat:1");
        runtime.start_fresh("chat:1");
        answered(&runtime, Verdict::Ok).await;
        answered(&runtime, Verdict::Ok).await;
    });
    assert_eq!(resets(&driver), [false, true, false]);
}

fn a_request_during_a_turn_stays_pending() {
    let (place, driver) = (Place::new(), Scripted::new());
    paused(async {
        let runtime = place.runtime(&driver).await;
        // Requested after the call and before its task ran at all, and again while it runs.
        let turn = runtime.run_turn(request("chat:1", "held"));
        runtime.start_fresh("chat:1");
        eventually("it ends", || driver.finish("held", Verdict::Ok)).await;
        turn.await.unwrap();
        answered(&runtime, Verdict::Ok).await;
        answered(&runtime, Verdict::Ok).await;
    });
    assert_eq!(resets(&driver), [false, true, false]);
}

fn a_second_request_during_the_resetting_turn_stays_pending() {
    let (place, driver) = (Place::new(), Scripted::new());
    paused(async {
        let runtime = place.runtime(&driver).await;
        runtime.start_fresh("chat:1");
        let turn = runtime.run_turn(request("chat:1", "held"));
        eventually("it runs", || driver.running() == 1).await;
        runtime.start_fresh("chat:1");
        assert!(driver.finish("held", Verdict::Ok));
        turn.await.unwrap();
        answered(&runtime, Verdict::Ok).await;
        answered(&runtime, Verdict::Ok).await;
    });
    assert_eq!(resets(&driver), [true, true, false]);
}

fn a_turn_that_fails_leaves_the_request_pending() {
    let (place, driver) = (Place::new(), Scripted::new());
    paused(async {
        let runtime = place.runtime(&driver).await;
        runtime.start_fresh("chat:1");
        for verdict in [Verdict::Fail, Verdict::NotOk, Verdict::Start, Verdict::Panic] {
            answered(&runtime, verdict).await;
        }
        let turn = runtime.run_turn(request("chat:1", "held"));
        eventually("it runs", || driver.running() == 1).await;
        runtime.stop("chat:1");
        turn.await.unwrap_err();
        answered(&runtime, Verdict::Ok).await;
        answered(&runtime, Verdict::Ok).await;
    });
    assert_eq!(resets(&driver), [true, true, true, true, true, true, false]);
}

fn a_waiting_turn_does_not_fulfil_a_later_request() {
    let (place, driver) = (Place::new(), Scripted::new());
    paused(async {
        let runtime = start(place.options().workspace(WorkspaceMode::Server), &driver).await;
        let first = runtime.run_turn(in_space("g", "chat:0", "0"));
        let waiting = runtime.run_turn(in_space("g", "chat:1", "1"));
        runtime.start_fresh("chat:1");
        for (text, turn) in [("0", first), ("1", waiting)] {
            eventually("it ends", || driver.finish(text, Verdict::Ok)).await;
            turn.await.unwrap();
        }
        runtime.run_turn(in_space("g", "chat:1", "auto:Ok")).await.unwrap();
    });
    assert_eq!(resets(&driver), [false, false, true]);
}

fn requests_belong_to_their_channel() {
    let (place, driver) = (Place::new(), Scripted::new());
    paused(async {
        let runtime = place.runtime(&driver).await;
        runtime.start_fresh("chat:2");
        answered(&runtime, Verdict::Ok).await;
        runtime.run_turn(request("chat:2", "auto:Ok")).await.unwrap();
    });
    assert_eq!(resets(&driver), [false, true]);
}

fn a_dropped_turn_leaves_the_request_pending() {
    let (place, driver) = (Place::new(), Scripted::new());
    paused(async {
        let runtime = place.runtime(&driver).await;
        runtime.start_fresh("chat:1");
        let turn = runtime.run_turn(request("chat:1", "held"));
        eventually("it runs", || driver.running() == 1).await;
        drop(turn);
        eventually("it is over", || runtime.busy().is_empty()).await;
        answered(&runtime, Verdict::Ok).await;
    });
    assert_eq!(resets(&driver), [true, true]);
}
