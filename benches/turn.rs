//! A whole turn with a model that answers at once, against the bare floor of a jail; then turns at once.
//!
//! `cargo bench -p turnjail-bench --bench turn`. The workspaces lie below the system's temporary
//! directory, or below `TURNJAIL_BENCH_DIR`: on tmpfs nothing is added by the disk.

use std::time::{Duration, Instant};

use turnjail_bench::contenders::{Floor, Noop, Place};
use turnjail_bench::turns::{self, Turns, jails};
use turnjail_bench::{Contender, Scratch, report, side_by_side, side_by_side_after};

const TURNS: usize = 500;
/// Long enough for a warden to see that it is idle and to make up for the jail that was taken.
const PAUSE: Duration = Duration::from_millis(5);
const AT_ONCE: usize = 64;
const BURST: usize = 1_024;

fn main() {
    let scratch = Scratch::new();
    let place = Place::new(scratch.path(), Noop::Musl);
    let mut contenders: Vec<Box<dyn Contender>> =
        vec![Box::new(Floor::new(&place)), Box::new(jailed(&scratch))];
    report("A whole turn, back to back", &side_by_side(&mut contenders, TURNS));
    let after = side_by_side_after(PAUSE, 1, &mut contenders, TURNS);
    report("A whole turn, after a pause", &after);
    burst(&jailed(&scratch), contenders[0].as_mut());
}

fn jailed(scratch: &Scratch) -> Turns {
    Turns::new("a whole turn", scratch, "jail", jails)
}

/// Turns a second with many channels at once, against floors a second one after the other.
fn burst(turns: &Turns, floor: &mut dyn Contender) {
    let floors = 500_u32;
    let floor_time: Duration = (0..floors).map(|_| floor.start()).sum();
    let floor_rate = f64::from(floors) / floor_time.as_secs_f64();
    let began = Instant::now();
    turns.runtime().block_on(async {
        let workers = (0..AT_ONCE).map(|channel| {
            let sandbox = turns.sandbox();
            tokio::spawn(async move {
                for _ in 0..BURST / AT_ONCE {
                    let result = sandbox.run_turn(turns::request(channel)).await;
                    assert!(result.expect("a reply").reply.ok);
                }
            })
        });
        for worker in workers.collect::<Vec<_>>() {
            worker.await.expect("no panic");
        }
    });
    let rate = BURST as f64 / began.elapsed().as_secs_f64();
    println!(
        "{AT_ONCE} channels at once: {rate:.0} turns a second, {:.2} of {floor_rate:.0} floors a second \
         one after the other",
        rate / floor_rate
    );
}
