//! The groups that a warden has been lent, for jails of which none is there yet.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use turnjail_warden::wire::GroupLimits;

use super::Group;

/// Every group of which the warden has not said yet what has become of it.
#[derive(Debug, Default)]
pub(crate) struct Lent {
    books: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    made: u64,
    groups: HashMap<u64, (GroupLimits, Group)>,
    /// Requests under way that count on one with these limits.
    claims: Vec<GroupLimits>,
}

/// A request counts on a group with these limits; until it is dropped no other does.
#[derive(Debug)]
pub(crate) struct Claim<'a> {
    lent: &'a Lent,
    limits: GroupLimits,
}

impl Lent {
    /// Counts on a group that is there already; none when all are spoken for.
    pub(crate) fn claim(&self, limits: GroupLimits) -> Option<Claim<'_>> {
        let mut books = self.books();
        (books.left(limits) > 0).then(|| {
            books.claims.push(limits);
            Claim { lent: self, limits }
        })
    }

    /// Counts on a group that is going to be lent for this request.
    pub(crate) fn claim_next(&self, limits: GroupLimits) -> Claim<'_> {
        self.books().claims.push(limits);
        Claim { lent: self, limits }
    }

    /// How many groups with these limits nobody counts on.
    pub(crate) fn left(&self, limits: GroupLimits) -> usize {
        self.books().left(limits)
    }

    /// Takes note of one, under a number that is given back.
    pub(crate) fn add(&self, limits: GroupLimits, group: Group) -> u64 {
        let mut books = self.books();
        books.made += 1;
        let number = books.made;
        books.groups.insert(number, (limits, group));
        number
    }

    /// The group of a number, which is not lent any more.
    pub(crate) fn take(&self, number: u64) -> Option<Group> {
        self.books().groups.remove(&number).map(|(_, group)| group)
    }

    /// None is lent any more: the warden is gone.
    pub(crate) fn clear(&self) {
        let groups = std::mem::take(&mut self.books().groups);
        drop(groups);
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
    fn left(&self, limits: GroupLimits) -> usize {
        let lent = self.groups.values().filter(|(set, _)| *set == limits).count();
        let claimed = self.claims.iter().filter(|&&claim| claim == limits).count();
        lent.saturating_sub(claimed)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut books = self.lent.books();
        if let Some(position) = books.claims.iter().position(|claim| *claim == self.limits) {
            books.claims.swap_remove(position);
        }
    }
}
