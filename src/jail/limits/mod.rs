//! Limits of a whole jail: one interface, and what stands behind it on this host.
//!
//! Where a part of the cgroup (v2) tree is delegated to us, the jail of every program is born in a group of its own
//! there ([`cgroup`]): the service's own group ([`own`]), else a scope that the systemd user manager
//! makes for the warden ([`manager`]). Elsewhere the resource limits of single processes hold
//! ([`crate::plan`]), and a watch ([`watch`]) ends a general image's jail that takes more memory.
//!
//! A group that can merely be written, such as a terminal's, is somebody else's and is left as it is.

mod cgroup;
mod lent;
mod manager;
mod memory;
mod own;
mod pace;
pub(crate) mod watch;

use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustix::process::Pid;
use turnjail_driver::Limits;
use turnjail_warden::wire::{GroupLimits, Plan};

use cgroup::Delegated;
pub(crate) use cgroup::{Group, Used};
pub(crate) use lent::Lent;

use crate::StartError;
use crate::causes::evidence::Evidence;
use crate::plan::resource;

/// What holds the limits of whole jails on this host.
#[derive(Debug, Clone)]
pub struct Limiter {
    behind: Result<Arc<Delegated>, Undelegated>,
}

/// Why there is no cgroup for jails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undelegated {
    /// One sentence.
    pub why: String,
    /// One line saying what to do.
    pub remedy: String,
    /// Whether the systemd user manager may have a place.
    elsewhere: bool,
}

impl Undelegated {
    /// This host has no tree that could be delegated.
    fn nowhere(why: &str, remedy: &str) -> Self {
        Self { why: why.to_owned(), remedy: remedy.to_owned(), elsewhere: false }
    }

    /// No part of it is ours.
    fn not_ours(why: impl Into<String>) -> Self {
        Self { why: why.into(), remedy: DELEGATE.to_owned(), elsewhere: true }
    }
}

/// What the operator can do to have cgroups.
const DELEGATE: &str = "run it as a systemd unit with Delegate=yes (dist/turnjail.service), or where the \
                        systemd user manager runs (loginctl enable-linger)";

/// Whether RLIMIT_NPROC that is set in a user namespace counts the processes of that namespace alone.
/// Before Linux 5.14 it counts all of the user's: a jail would be refused processes because of what others
/// run, and others because of it. So there it is not set, and no limit of processes is claimed.
///
/// By the version, because an attempt would show it only to a user with more processes than the attempt.
pub(crate) fn counts_processes_per_namespace() -> bool {
    static NEW_ENOUGH: OnceLock<bool> = OnceLock::new();
    *NEW_ENOUGH.get_or_init(|| per_namespace(Evidence::here().kernel()))
}

/// A version that cannot be read is one that nothing is claimed of.
fn per_namespace(version: Option<(u32, u32)>) -> bool {
    version.is_some_and(|version| version >= (5, 14))
}

/// The resource limits of a jail that has a group: the group refuses processes first, and counts them.
pub(crate) fn held_by_group(plan: &mut Plan) {
    for (number, value) in &mut plan.rlimits {
        if *number == resource::NPROC {
            *value += 1;
        }
    }
}

impl Limiter {
    /// To be called before the warden is started: takes the service's own group, where there is one, and
    /// moves this process to a leaf of it.
    pub(crate) fn own() -> Self {
        Self { behind: own::delegated() }
    }

    /// What there is for a warden that has been started: a scope of the user manager's where the service
    /// has no group of its own.
    pub(crate) async fn for_warden(self, keeper: Pid) -> Self {
        match &self.behind {
            Err(why) if why.elsewhere => {}
            _ => return self,
        }
        match manager::scope(keeper).await {
            Ok(delegated) => Self { behind: Ok(delegated) },
            Err(other) => {
                let own = self.behind.err().map(|own| own.why);
                let why = own.into_iter().chain([other.why]).collect::<Vec<_>>().join("; ");
                Self { behind: Err(Undelegated { why, ..other }) }
            }
        }
    }

    /// Why no cgroup is used; none when one is.
    pub fn undelegated(&self) -> Option<&Undelegated> {
        self.behind.as_ref().err()
    }

    /// The delegated cgroup in which the groups of jails are made.
    pub fn path(&self) -> Option<&Path> {
        self.behind.as_ref().ok().map(|delegated| delegated.path())
    }

    /// Whether jails have cgroups.
    pub fn has_cgroups(&self) -> bool {
        self.behind.is_ok()
    }

    /// Whether CPU shares are limited. Older user managers do not delegate the controller.
    pub fn has_cpu_share(&self) -> bool {
        self.behind.as_ref().is_ok_and(|delegated| delegated.controllers().cpu)
    }

    /// Whether jails may not swap: not every kernel counts swap (`swapaccount=0`, CONFIG_SWAP).
    pub fn has_swap_limit(&self) -> bool {
        self.behind.as_ref().is_ok_and(|delegated| delegated.controllers().swap)
    }

    /// What is in force, in words.
    pub fn describe(&self) -> String {
        match &self.behind {
            Ok(delegated) => delegated.describe(),
            Err(why) => format!("resource limits of each process: {}", why.why),
        }
    }

    /// What is set in the group of a jail; none where there are no cgroups. `own` processes are turnjail's
    /// and come on top of what the program may have.
    pub(crate) fn group_limits(&self, limits: &Limits, own: u32) -> Option<GroupLimits> {
        self.has_cgroups().then(|| cgroup::group_limits(limits, own))
    }

    /// A group for one jail, with these limits set.
    pub(crate) fn group(&self, limits: GroupLimits) -> Result<Group, StartError> {
        match &self.behind {
            Ok(delegated) => Delegated::group(delegated, limits),
            Err(why) => Err(StartError::policy(why.why.clone(), &why.remedy)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_counted_by_namespace_since_linux_5_14() {
        for version in [(5, 14), (5, 15), (6, 0), (6, 1), (10, 0)] {
            assert!(per_namespace(Some(version)), "{version:?}");
        }
        for version in [Some((5, 13)), Some((5, 10)), Some((4, 18)), None] {
            assert!(!per_namespace(version), "{version:?}");
        }
    }
}
