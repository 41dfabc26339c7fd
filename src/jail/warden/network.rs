//! The network namespace of the next jail, made ahead of need.
//!
//! An empty one is the same for every jail, and to make it takes the kernel a quarter of the time that it
//! takes for a whole jail. So the warden enters a new one when it is idle, and the next jail is cloned in
//! it. It then belongs to the warden's user namespace: with every capability of its own a jail could not
//! change it.

use std::cell::Cell;
use std::os::fd::OwnedFd;

use nix::fcntl::{OFlag, open};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::stat::Mode;

use crate::sys;

/// In which network namespace the warden is.
#[derive(Debug, Default)]
pub struct Network {
    /// The warden's own, to come back to: the host's it could not enter again.
    home: Option<OwnedFd>,
    /// The warden is in a new one, in which there is nobody else.
    fresh: Cell<bool>,
    wanted: Cell<bool>,
    /// There are too few for any that no jail is in.
    few: bool,
}

/// A host that may have no more namespaces of a kind than these gives them all to jails: one that is made
/// ahead would be missing.
const FEW: u64 = 16;

/// Whether the calling process's user namespace may have few namespaces of a kind, by its name in
/// /proc/sys/user (namespaces(7)).
pub fn are_few(kind: &str) -> bool {
    let limit = std::fs::read_to_string(format!("/proc/sys/user/max_{kind}_namespaces"));
    limit.unwrap_or_default().trim().parse::<u64>().is_ok_and(|limit| limit <= FEW)
}

impl Network {
    /// Makes none where they are few.
    pub fn new(few: bool) -> Self {
        Self { few, ..Self::default() }
    }

    /// Whether there is to be one for the next jail, and is not.
    pub fn wanting(&self) -> bool {
        self.wanted.get() && !self.fresh.get()
    }

    /// Makes one. Where that fails, none is tried again before the next jail, which makes its own and tells
    /// why it cannot.
    pub fn make(&mut self) {
        let made = self.enter_new().is_ok();
        self.fresh.set(made);
        self.wanted.set(made);
    }

    fn enter_new(&mut self) -> nix::Result<()> {
        if self.home.is_none() {
            unshare(CloneFlags::CLONE_NEWNET)?;
            let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
            let home = open(c"/proc/self/ns/net", flags, Mode::empty())?;
            // Before there is no way back: a filter around turnjail may let through the one call alone.
            setns(&home, CloneFlags::CLONE_NEWNET)?;
            self.home = Some(home);
        }
        unshare(CloneFlags::CLONE_NEWNET)
    }

    /// Whether a jail that is cloned now is in one of its own already. It is [left](Self::leave) to that
    /// jail.
    pub fn take(&self) -> bool {
        self.wanted.set(!self.few);
        self.fresh.replace(false)
    }

    /// After [`Self::take`], once the jail has been cloned.
    pub fn leave(&self) {
        let home = self.home.as_ref().map(|home| setns(home, CloneFlags::CLONE_NEWNET));
        // A namespace is one jail's alone: better no jail at all, and the host starts another warden.
        if !matches!(home, Some(Ok(()))) {
            sys::exit_now(1);
        }
    }
}
