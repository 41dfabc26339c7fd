//! How long it takes to start a static program in a jail and to see it gone, against the bare floor.
//!
//! `cargo bench -p turnjail-bench --bench start` prints the table of one interleaved run and then lets
//! criterion measure each contender by itself, for comparing with an earlier build on this machine.
//! Started as root it drops to an ordinary uid, for root never makes jails.

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Duration;

use criterion::Criterion;
use turnjail_bench::contenders::{Bubblewrap, Floor, Jail, Noop, Place, Until};
use turnjail_bench::{Contender, Scratch, report, side_by_side, side_by_side_after};

/// How often each contender starts, unless `TURNJAIL_BENCH_ROUNDS` says otherwise.
const ROUNDS: usize = 800;
/// The size of the pool, where there is one.
const POOL: u16 = 4;
/// Long enough for a warden to see that it is idle and to make up for the jail that was taken.
const PAUSE: Duration = Duration::from_millis(5);

/// Starts of one contender right after the other: from the pool with everything warm; without it with no
/// moment in which a warden is idle.
const BURST: usize = 8;

fn main() {
    let scratch = Scratch::new();
    let rounds = std::env::var("TURNJAIL_BENCH_ROUNDS").ok().and_then(|text| text.parse().ok());
    let rounds = rounds.unwrap_or(ROUNDS);
    let mut all = Vec::new();
    for (noop, number) in Noop::all().into_iter().zip(0..) {
        let place = Place::new(&scratch.path().join(format!("place-{number}")), noop);
        let mut direct = contenders(&place, 0);
        let title = format!("Back to back, {}", noop.name());
        report(&title, &side_by_side(&mut direct, rounds));
        let title = format!("In bursts of {BURST}, {}", noop.name());
        report(&title, &side_by_side_after(Duration::ZERO, BURST, &mut direct, rounds / BURST));
        let mut pooled = contenders(&place, POOL);
        let title = format!("After a pause, with a pool of {POOL}, {}", noop.name());
        report(&title, &side_by_side_after(PAUSE, 1, &mut pooled, rounds));
        for contender in &pooled {
            contender.remark().into_iter().for_each(|remark| println!("{remark}"));
        }
        let mut bursts = contenders(&place, BURST as u16);
        let title = format!("In bursts of {BURST} with a pool of {BURST}, {}", noop.name());
        let pause = PAUSE * BURST as u32;
        report(&title, &side_by_side_after(pause, BURST, &mut bursts, rounds / BURST));
        all = direct;
    }
    criterion(&mut all, scratch.dropped_root().then(|| scratch.path().join("criterion")));
}

/// The floor first: the others are compared with it.
fn contenders(place: &Place, pool: u16) -> Vec<Box<dyn Contender>> {
    let jail = |name, until| Box::new(Jail::new(name, place, pool, until));
    let mut contenders: Vec<Box<dyn Contender>> = vec![
        Box::new(Floor::new(place)),
        jail("turnjail", Until::Reaped),
        jail("turnjail, request to exec", Until::Exec),
        jail("turnjail, until exec is known", Until::Executed),
        jail("turnjail, cancel to nothing left", Until::Cancelled),
    ];
    if let Some(bubblewrap) = Bubblewrap::new(place) {
        contenders.push(Box::new(bubblewrap));
    }
    contenders
}

fn criterion(contenders: &mut [Box<dyn Contender>], output: Option<PathBuf>) {
    let mut criterion = Criterion::default().without_plots().sample_size(50).configure_from_args();
    if let Some(output) = output {
        // The ordinary user cannot write where root built.
        criterion = criterion.output_directory(&output);
    }
    let mut group = criterion.benchmark_group("start");
    for contender in contenders {
        let name = contender.name();
        let contender = RefCell::new(contender);
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|count| {
                (0..count).map(|_| contender.borrow_mut().start()).sum::<Duration>()
            });
        });
    }
    group.finish();
}
