//! How often running jails are looked at: often, but never at more than a small share of a core.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// All looks of one kind together take about one part in this many of a core's time.
const SHARE: u32 = 33;

/// A look that costs more than this is its own jail's matter: it does not slow the others down.
const USUAL: Duration = Duration::from_millis(2);

/// However much its own looks cost, a jail is looked at as often as this where few run.
const OWN: Duration = Duration::from_millis(500);

/// The pace of one kind of look, shared by all jails of this process.
#[derive(Debug)]
pub(super) struct Pace {
    base: Duration,
    jails: AtomicUsize,
    /// What a usual look costs, smoothed, in microseconds.
    cost_us: AtomicU64,
}

/// A jail that is looked at; its end makes the others' pace quicker.
#[derive(Debug)]
pub(super) struct Looked<'a> {
    pace: &'a Pace,
    /// What the last look at this jail cost, in microseconds.
    own_us: AtomicU64,
}

impl Pace {
    pub(super) const fn new(base: Duration) -> Self {
        Self { base, jails: AtomicUsize::new(0), cost_us: AtomicU64::new(0) }
    }

    pub(super) fn join(&self) -> Looked<'_> {
        self.jails.fetch_add(1, Ordering::Relaxed);
        Looked { pace: self, own_us: AtomicU64::new(0) }
    }
}

impl Looked<'_> {
    /// How long to wait before the next look at this jail.
    pub(super) fn interval(&self) -> Duration {
        let jails = self.pace.jails.load(Ordering::Relaxed) as u32;
        let micros = |of: &AtomicU64| Duration::from_micros(of.load(Ordering::Relaxed));
        let all = micros(&self.pace.cost_us).saturating_mul(jails).saturating_mul(SHARE);
        let own = micros(&self.own_us).saturating_mul(SHARE).min(OWN);
        self.pace.base.max(all).max(own)
    }

    /// Tells what a look cost.
    pub(super) fn took(&self, cost: Duration) {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.own_us.store(micros(cost), Ordering::Relaxed);
        let (usual, before) = (micros(cost.min(USUAL)), self.pace.cost_us.load(Ordering::Relaxed));
        // Two at once may lose one's part, which is none the worse.
        self.pace.cost_us.store(before - before / 8 + usual / 8, Ordering::Relaxed);
    }
}

impl Drop for Looked<'_> {
    fn drop(&mut self) {
        self.pace.jails.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_jails_are_each_looked_at_less_often() {
        let base = Duration::from_millis(50);
        let pace = Pace::new(base);
        let one = pace.join();
        assert_eq!(one.interval(), base);
        for _ in 0..100 {
            one.took(Duration::from_micros(800));
        }
        assert_eq!(one.interval(), base, "one jail alone costs little");
        let others: Vec<_> = (0..999).map(|_| pace.join()).collect();
        assert!(one.interval() > Duration::from_secs(20), "{:?}", one.interval());
        drop(others);
        assert_eq!(one.interval(), base);
    }

    #[test]
    fn a_jail_that_is_slow_to_look_at_slows_neither_itself_nor_others_down_much() {
        let pace = Pace::new(Duration::from_millis(50));
        let (slow, other) = (pace.join(), pace.join());
        for _ in 0..100 {
            slow.took(Duration::from_secs(2));
        }
        assert!(slow.interval() <= OWN, "{:?}", slow.interval());
        assert!(other.interval() < Duration::from_millis(200), "{:?}", other.interval());
    }
}
