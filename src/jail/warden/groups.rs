//! The cgroups that the host has lent and in which no jail is yet.
//!
//! A jail is born in its group, so one that is prepared ahead of need takes a group ahead of need. The host
//! makes them and sets their limits, and is told of each what has become of it.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use crate::wire::GroupLimits;

/// How many are kept. A host keeps fewer; this bounds those whose limits nobody asks for any more.
const MOST: usize = 128;

/// A group that is lent.
#[derive(Debug)]
pub struct Lent {
    /// The host's number for it.
    pub number: u64,
    /// What is set in it.
    pub limits: GroupLimits,
    /// Its directory.
    pub dir: OwnedFd,
}

/// Those without a jail.
#[derive(Debug, Default)]
pub struct Groups {
    free: VecDeque<Lent>,
}

impl Groups {
    /// Takes one more, and gives back the oldest where they are too many.
    pub fn add(&mut self, lent: Lent) -> Option<Lent> {
        self.free.push_back(lent);
        if self.free.len() > MOST { self.free.pop_front() } else { None }
    }

    /// One with these limits.
    pub fn take(&mut self, limits: GroupLimits) -> Option<Lent> {
        let position = self.free.iter().position(|lent| lent.limits == limits)?;
        self.free.remove(position)
    }

    /// Whether there is one with these limits.
    pub fn has(&self, limits: GroupLimits) -> bool {
        self.free.iter().any(|lent| lent.limits == limits)
    }
}
