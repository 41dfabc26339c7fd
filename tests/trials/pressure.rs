//! R20: starts beside threads that allocate and free without pause.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;
use turnjail_driver::ExitReason;
use turnjail_jail::{Profile, run};
use turnjail_tests::jails::Bench;

use crate::count;

/// Far above what a start takes on the slowest machine: it hangs.
const HANGS: Duration = Duration::from_secs(60);

pub fn r20() {
    let bench = Bench::new();
    let spec = bench.spec_for(Profile::Sealed, &[json!(["exit", 0])]);
    let (stop, started) = (AtomicBool::new(false), AtomicU32::new(0));
    let wanted = count(800, 20_000);
    std::thread::scope(|scope| {
        for size in 0..16_usize {
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let parts: Vec<Vec<u8>> =
                        (1..50).map(|part| vec![0; (part * 64) << (size % 8)]).collect();
                    std::hint::black_box(&parts);
                    std::thread::yield_now();
                }
            });
        }
        let turns: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    while started.fetch_add(1, Ordering::Relaxed) < wanted {
                        let never = CancellationToken::new();
                        let turn = run(bench.client(), &spec, b"", &never, || {});
                        let ended = bench
                            .runtime()
                            .block_on(async { tokio::time::timeout(HANGS, turn).await });
                        let ended = ended.expect("a start hangs").expect("a jail");
                        assert_eq!(ended.reason, ExitReason::Ok, "{}", ended.cause());
                    }
                })
            })
            .collect();
        for turn in turns {
            turn.join().expect("no turn fails");
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(bench.client().alive());
}
