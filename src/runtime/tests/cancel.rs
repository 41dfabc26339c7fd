//! Dropping a turn's future at any moment.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use turnjail_runtime::WorkspaceMode;

use crate::common::{
    Place, Scripted, Verdict, eventually, in_space, paused, request, start, tests, threaded,
};

tests![
    a_turn_dropped_at_any_moment_cleans_up_by_itself,
    the_workspace_is_free_only_after_the_clean_up,
    a_dropped_waiting_turn_never_runs,
    aborting_callers_at_random_moments_loses_nothing,
    a_future_is_of_use_after_its_runtime_is_dropped,
];

struct Ignore;

impl Wake for Ignore {
    fn wake(self: Arc<Self>) {}
}

fn a_turn_dropped_at_any_moment_cleans_up_by_itself() {
    let (place, driver) = (Place::new(), Scripted::new());
    paused(async {
        let runtime = place.runtime(&driver).await;
        // Yields of this task are the steps of the turn's: from "not begun" over every await to "over".
        for steps in 0..60 {
            let text = if steps % 2 == 0 { "held" } else { "auto:Ok" };
            let mut turn = Box::pin(runtime.run_turn(request("chat:1", text)));
            let waker = Waker::from(Arc::new(Ignore));
            for _ in 0..steps {
                if turn.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                    break;
                }
                tokio::task::yield_now().await;
            }
            drop(turn);
            eventually("it is over", || runtime.busy().is_empty()).await;
            assert_eq!(place.run_directories(), [""; 0], "after {steps} steps");
            assert_eq!(driver.running(), 0);
            runtime.run_turn(request("chat:1", "auto:Ok")).await.unwrap();
        }
    });
    driver.assert_orderly();
}

fn the_workspace_is_free_only_after_the_clean_up() {
    let (place, driver) = (Place::new(), Scripted::new());
    paused(async {
        let runtime = start(place.options().workspace(WorkspaceMode::Server), &driver).await;
        // This worker ends only 10 s after it was told.
        let deaf = runtime.run_turn(in_space("g", "chat:0", "deaf"));
        eventually("it runs", || driver.running() == 1).await;
        let begun = tokio::time::Instant::now();
        drop(deaf);
        let error = runtime.run_turn(in_space("g", "chat:0", "auto:Ok")).await.unwrap_err();
        assert_eq!(error.code(), "channel-busy");
        let result = runtime.run_turn(in_space("g", "chat:1", "auto:Ok")).await.unwrap();
        assert_eq!(begun.elapsed().as_secs(), 10);
        assert_eq!(result.receipt.waited.as_secs(), 10);
    });
    driver.assert_orderly();
}

fn a_dropped_waiting_turn_never_runs() {
    let (place, driver) = (Place::new(), Scripted::new());
    paused(async {
        let runtime = start(place.options().workspace(WorkspaceMode::Server), &driver).await;
        let first = runtime.run_turn(in_space("g", "chat:0", "0"));
        let second = runtime.run_turn(in_space("g", "chat:1", "1"));
        let third = runtime.run_turn(in_space("g", "chat:2", "2"));
        drop(second);
        for (text, turn) in [("0", first), ("2", third)] {
            eventually("it ends", || driver.finish(text, Verdict::Ok)).await;
            turn.await.unwrap();
        }
    });
    assert_eq!(driver.texts(), ["0", "2"]);
}

fn aborting_callers_at_random_moments_loses_nothing() {
    let (place, driver) = (Place::new(), Scripted::new());
    threaded(async {
        let options = place.options().workspace(WorkspaceMode::Server).max_waiting(100);
        let runtime = start(options, &driver).await;
        for round in 0..40_u64 {
            let callers: Vec<_> = (0..12)
                .map(|index| {
                    let turn = runtime.run_turn(in_space("g", &format!("chat:{index}"), "auto:Ok"));
                    tokio::spawn(turn)
                })
                .collect();
            // A different number of microseconds each time, without a source of chance.
            std::thread::sleep(std::time::Duration::from_micros(round * round * 7 % 1_500));
            callers.iter().step_by(2).for_each(tokio::task::JoinHandle::abort);
            for caller in callers.into_iter().skip(1).step_by(2) {
                caller.await.unwrap().unwrap();
            }
            eventually("all are over", || runtime.busy().is_empty()).await;
            assert_eq!(place.run_directories(), [""; 0]);
        }
        assert_eq!((runtime.load().running, runtime.load().waiting), (0, 0));
    });
    driver.assert_orderly();
}

fn a_future_is_of_use_after_its_runtime_is_dropped() {
    let (place, driver) = (Place::new(), Scripted::new());
    paused(async {
        let turn = place.runtime(&driver).await.run_turn(request("chat:1", "auto:Ok"));
        assert!(turn.await.unwrap().reply.ok);
    });
}
