//! How often running jails are looked at: often, but never at more than a small share of a core.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// All looks of one kind together take at most one part in this many of a core's time.
const SHARE: u32 = 33;

/// The pace of one kind of look, shared by all jails of this process.
#[derive(Debug)]
pub(super) struct Pace {
    base: Duration,
    jails: AtomicUsize,
    /// What one look costs, smoothed, in microseconds.
    cost_us: AtomicU64,
}

/// A jail that is looked at; its end makes the others' pace quicker.
#[derive(Debug)]
pub(super) struct Looked<'a>(&'a Pace);

impl Pace {
    pub(super) const fn new(base: Duration) -> Self {
        Self { base, jails: AtomicUsize::new(0), cost_us: AtomicU64::new(0) }
    }

    pub(super) fn join(&self) -> Looked<'_> {
        self.jails.fetch_add(1, Ordering::Relaxed);
        Looked(self)
    }
}

impl Looked<'_> {
    /// How long to wait before the next look at this jail.
    pub(super) fn interval(&self) -> Duration {
        let jails = self.0.jails.load(Ordering::Relaxed) as u32;
        let cost = Duration::from_micros(self.0.cost_us.load(Ordering::Relaxed));
        self.0.base.max(cost.saturating_mul(jails).saturating_mul(SHARE))
    }

    /// Tells what a look cost.
    pub(super) fn took(&self, cost: Duration) {
        let now = u64::try_from(cost.as_micros()).unwrap_or(u64::MAX);
        let before = self.0.cost_us.load(Ordering::Relaxed);
        // Two at once may lose one's part, which is none the worse.
        self.0.cost_us.store(before - before / 8 + now / 8, Ordering::Relaxed);
    }
}

impl Drop for Looked<'_> {
    fn drop(&mut self) {
        self.0.jails.fetch_sub(1, Ordering::Relaxed);
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
}
