//! The cgroups that the host has lent and in which no jail is yet.
//!
//! A jail is born in its group, so one that is prepared ahead of need takes a group ahead of need. The host
//! makes them and sets their limits, and is told of each what has become of it.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use crate::wire::GroupLimits;

/// How many are kept at most: the oldest goes.
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

    /// One with these limits: the one with this number, where it is there.
    pub fn take(&mut self, limits: GroupLimits, number: u64) -> Option<Lent> {
        let fits = |lent: &Lent| lent.limits == limits;
        let meant = self.free.iter().position(|lent| fits(lent) && lent.number == number);
        let position = meant.or_else(|| self.free.iter().position(fits))?;
        self.free.remove(position)
    }

    /// Takes those that are more than may be kept with their limits.
    pub fn take_spare(&mut self, may_be_kept: impl Fn(GroupLimits) -> usize) -> Vec<Lent> {
        let (mut kept, mut spare) = (VecDeque::new(), Vec::new());
        for lent in self.free.drain(..) {
            let same = kept.iter().filter(|other: &&Lent| other.limits == lent.limits).count();
            if same < may_be_kept(lent.limits) {
                kept.push_back(lent);
            } else {
                spare.push(lent);
            }
        }
        self.free = kept;
        spare
    }

    /// Whether there is one with these limits.
    pub fn has(&self, limits: GroupLimits) -> bool {
        self.free.iter().any(|lent| lent.limits == limits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lent(number: u64, processes: u32) -> Lent {
        let dir = std::fs::File::open("/").expect("a directory").into();
        Lent { number, limits: GroupLimits { memory: 1, processes, cpu_us: 1 }, dir }
    }

    #[test]
    fn a_group_is_taken_once_and_only_for_its_limits() {
        let mut groups = Groups::default();
        let limits = |processes| lent(0, processes).limits;
        assert!(groups.add(lent(1, 5)).is_none() && groups.add(lent(2, 6)).is_none());
        assert!(!groups.has(limits(7)) && groups.take(limits(7), 1).is_none());
        assert_eq!(groups.take(limits(6), 1).map(|lent| lent.number), Some(2));
        assert!(groups.take(limits(6), 2).is_none() && groups.has(limits(5)));
    }

    #[test]
    fn the_one_that_is_meant_comes_before_others() {
        let mut groups = Groups::default();
        for number in 1..=3 {
            assert!(groups.add(lent(number, 5)).is_none());
        }
        let limits = lent(0, 5).limits;
        let taken = [3, 3, 3].map(|number| groups.take(limits, number).map(|lent| lent.number));
        assert_eq!(taken, [Some(3), Some(1), Some(2)]);
    }

    #[test]
    fn more_than_may_be_kept_are_spare() {
        let mut groups = Groups::default();
        for (number, processes) in [(1, 5), (2, 6), (3, 5), (4, 5), (5, 7)] {
            assert!(groups.add(lent(number, processes)).is_none());
        }
        let spare = groups.take_spare(|limits| match limits.processes {
            5 => 2,
            6 => 1,
            _ => 0,
        });
        let numbers: Vec<u64> = spare.iter().map(|lent| lent.number).collect();
        assert_eq!(numbers, [4, 5]);
        assert!(groups.has(lent(0, 6).limits) && !groups.has(lent(0, 7).limits));
    }

    #[test]
    fn the_oldest_goes_where_they_are_too_many() {
        let mut groups = Groups::default();
        for number in 0..MOST as u64 {
            assert!(groups.add(lent(number, 5)).is_none());
        }
        assert_eq!(groups.add(lent(999, 5)).map(|lent| lent.number), Some(0));
    }
}
