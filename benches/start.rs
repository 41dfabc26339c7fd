//! How long it takes to start a static program in a jail and to see it gone, against the bare floor.
//!
//! `cargo bench -p turnjail-bench --bench start` prints the table of one interleaved run and then lets
//! criterion measure each contender by itself, for comparing with an earlier build on this machine.
//! Started as root it drops to an ordinary uid, for root never makes jails.

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Duration;

use criterion::Criterion;
use turnjail_bench::contenders::{Bubblewrap, Floor, Jail, Place};
use turnjail_bench::{Contender, Scratch, report, side_by_side};

const ROUNDS: usize = 800;

fn main() {
    let scratch = Scratch::new();
    let place = Place::new(scratch.path());
    let mut contenders: Vec<Box<dyn Contender>> =
        vec![Box::new(Floor::new(&place)), Box::new(Jail::new(&place))];
    if let Some(bubblewrap) = Bubblewrap::new(&place) {
        contenders.push(Box::new(bubblewrap));
    }
    report(&side_by_side(&mut contenders, ROUNDS));
    criterion(&mut contenders, scratch.dropped_root().then(|| scratch.path().join("criterion")));
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
