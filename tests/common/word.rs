//! Words by which a process can be found, and no other.

use std::fmt::Display;
use std::sync::atomic::{AtomicU32, Ordering};

/// A word that no other call has returned and that is in none of theirs, in this program or another that
/// runs now: the same test may run beside itself ([`harness_both_ways`](crate::harness_both_ways)).
pub fn unique_word(what: impl Display) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{what}-{}-{}-", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}
