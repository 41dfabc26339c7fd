//! What the benchmarks share: contenders that start the same program, measured in turn.
//!
//! The machine's speed drifts by more than the differences of interest, so contenders are measured A B C
//! A B C ..., never one after the other, and the result is the ratio of their medians within one run.

pub mod contenders;
mod scratch;
pub mod turns;
pub mod upstream;

use std::time::{Duration, Instant};

use serde_json::{Value, json};

pub use scratch::Scratch;

/// Something that starts a program in a sealed place and waits until it has ended.
pub trait Contender {
    /// Its name in the table.
    fn name(&self) -> &'static str;
    /// One start; how long it took.
    fn start(&mut self) -> Duration;
    /// What is to be said about its starts beside their time.
    fn remark(&self) -> Option<String> {
        None
    }
}

/// The times of one contender.
#[derive(Debug, Clone)]
pub struct Times {
    /// Its name.
    pub name: &'static str,
    sorted: Vec<Duration>,
}

impl Times {
    /// The time that a share of the starts stayed within: 0.5 is the median.
    pub fn quantile(&self, share: f64) -> Duration {
        let last = self.sorted.len() - 1;
        self.sorted[(last as f64 * share).round() as usize]
    }
}

/// Measures the contenders in turn, `rounds` times after a warm-up, one right after the other.
pub fn side_by_side(contenders: &mut [Box<dyn Contender>], rounds: usize) -> Vec<Times> {
    side_by_side_after(Duration::ZERO, 1, contenders, rounds)
}

/// The same with a pause before each `burst` of starts of a contender, in which a pool fills up. The pause
/// is spent busily: a processor that has slept is slow at first.
pub fn side_by_side_after(
    pause: Duration,
    burst: usize,
    contenders: &mut [Box<dyn Contender>],
    rounds: usize,
) -> Vec<Times> {
    let mut all: Vec<Vec<Duration>> = contenders.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds + rounds / 10 {
        for (contender, times) in contenders.iter_mut().zip(&mut all) {
            let paused = Instant::now();
            while paused.elapsed() < pause {
                std::hint::spin_loop();
            }
            let started = (0..burst).map(|_| contender.start());
            let started: Vec<Duration> = started.collect();
            if round >= rounds / 10 {
                times.extend(started);
            }
        }
    }
    let names = contenders.iter().map(|contender| contender.name());
    names
        .zip(all)
        .map(|(name, mut sorted)| {
            sorted.sort_unstable();
            Times { name, sorted }
        })
        .collect()
}

/// Prints the table with the ratio of each median to that of the first, and the same as JSON.
pub fn report(title: &str, times: &[Times]) {
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    let floor = ms(times[0].quantile(0.5));
    println!("{title}\n{:<32} {:>10} {:>10} {:>9}", "", "median ms", "p95 ms", "x first");
    for times in times {
        let (median, p95) = (ms(times.quantile(0.5)), ms(times.quantile(0.95)));
        println!("{:<32} {median:>10.3} {p95:>10.3} {:>9.2}", times.name, median / floor);
    }
    let rows: Vec<Value> = times
        .iter()
        .map(|times| {
            let (median, p95) = (ms(times.quantile(0.5)), ms(times.quantile(0.95)));
            json!({"name": times.name, "median_ms": median, "p95_ms": p95, "ratio": median / floor})
        })
        .collect();
    println!("{}", json!({ "table": title, "starts": rows }));
}
