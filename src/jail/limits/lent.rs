//! The groups that a warden has been lent, for jails of which none is there yet.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use turnjail_warden::wire::GroupLimits;

use super::cgroup::{Group, remove_all};

/// Every group of which the warden has not said yet what has become of it, and one that is ready for the
/// next request.
#[derive(Debug, Default)]
pub(crate) struct Lent {
    books: Mutex<Books<Group>>,
}

#[derive(Debug)]
struct Books<G> {
    made: u64,
    lent: HashMap<u64, (GroupLimits, G)>,
    ready: Option<(GroupLimits, G)>,
}

impl<G> Default for Books<G> {
    fn default() -> Self {
        Self { made: 0, lent: HashMap::new(), ready: None }
    }
}

impl Lent {
    /// How many groups with these limits the warden has, those of jails that wait among them.
    pub(crate) fn count(&self, limits: GroupLimits) -> usize {
        self.books().count(limits)
    }

    /// Takes note of one, under a number that is given back.
    pub(crate) fn add(&self, limits: GroupLimits, group: Group) -> u64 {
        self.books().add(limits, group)
    }

    /// The group of a number, which is not lent any more.
    pub(crate) fn take(&self, number: u64) -> Option<Group> {
        self.books().take(number)
    }

    /// Whether one with these limits is ready for the next request.
    pub(crate) fn is_ready(&self, limits: GroupLimits) -> bool {
        self.books().ready.as_ref().is_some_and(|(set, _)| *set == limits)
    }

    /// Keeps one ready, in the place of another.
    pub(crate) fn keep_ready(&self, limits: GroupLimits, group: Group) {
        let other = self.books().ready.replace((limits, group));
        drop(other);
    }

    /// The one that is ready, where it has these limits.
    pub(crate) fn take_ready(&self, limits: GroupLimits) -> Option<Group> {
        self.books().ready.take_if(|(set, _)| *set == limits).map(|(_, group)| group)
    }

    /// None is lent any more: the warden is gone, or has been told to go. Returns when they are removed.
    pub(crate) fn clear(&self) {
        let Books { lent, ready, .. } = std::mem::take(&mut *self.books());
        remove_all(lent.into_values().chain(ready).map(|(_, group)| group));
    }

    fn books(&self) -> MutexGuard<'_, Books<Group>> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.clear();
    }
}

impl<G> Books<G> {
    fn count(&self, limits: GroupLimits) -> usize {
        self.lent.values().filter(|(set, _)| *set == limits).count()
    }

    fn add(&mut self, limits: GroupLimits, group: G) -> u64 {
        self.made += 1;
        self.lent.insert(self.made, (limits, group));
        self.made
    }

    fn take(&mut self, number: u64) -> Option<G> {
        self.lent.remove(&number).map(|(_, group)| group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_group_is_taken_once_and_counted_by_its_limits() {
        let limits = |processes| GroupLimits { memory: 1, processes, cpu_us: 1 };
        let mut books = Books::default();
        let [one, two] = ["one", "two"].map(|name| books.add(limits(1), name));
        let other = books.add(limits(2), "other");
        assert_eq!((books.count(limits(1)), books.count(limits(2))), (2, 1));
        assert_eq!(books.take(two), Some("two"));
        assert_eq!(books.take(two), None);
        assert_eq!((books.count(limits(1)), books.count(limits(2))), (1, 1));
        let three = books.add(limits(1), "three");
        assert!(![one, two, other].contains(&three), "a number is used again");
        assert_eq!((books.take(one), books.take(other)), (Some("one"), Some("other")));
    }
}
