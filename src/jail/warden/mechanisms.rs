//! Which of several mechanisms are to be had here, found out by attempt: a kernel may be too old for the
//! newer one, and an outer filter may keep it away. Either builds the same walls.

use std::os::fd::AsFd as _;

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use serde::{Deserialize, Serialize};

use crate::sys;

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mechanisms {
    /// Mounts are made detached and restricted before anything sees them (open_tree, move_mount:
    /// Linux 5.2; mount_setattr: 5.12). Else they are bound in the jail and restricted there, before
    /// anything runs in it, and no jail is prepared ahead.
    pub detached_mounts: bool,
    /// Jails are cloned by clone3 (Linux 5.3), else by clone; then a jail enters its cgroup by itself.
    pub clone3: bool,
    /// Descriptors are closed by close_range (Linux 5.9), else one by one.
    pub close_range: bool,
    /// Paths are resolved by openat2 (Linux 5.6), else part by part.
    pub openat2: bool,
}

impl Mechanisms {
    /// Tries each.
    pub fn new() -> Self {
        Self {
            detached_mounts: detached_mounts().is_ok(),
            clone3: sys::has_clone3(),
            close_range: sys::has_close_range(),
            openat2: sys::has_openat2(),
        }
    }

    /// Those that stand in for one that is not to be had, in words.
    pub fn stand_ins(&self) -> Vec<&'static str> {
        [
            (
                self.detached_mounts,
                "bind mounts restricted in place (no mount_setattr or open_tree)",
            ),
            (self.clone3, "clone (no clone3)"),
            (self.close_range, "descriptors closed one by one (no close_range)"),
            (self.openat2, "paths resolved part by part (no openat2)"),
        ]
        .into_iter()
        .filter(|&(there, _)| !there)
        .map(|(_, words)| words)
        .collect()
    }
}

impl Default for Mechanisms {
    fn default() -> Self {
        Self::new()
    }
}

fn detached_mounts() -> nix::Result<()> {
    let root = open(c"/", OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
    let tree = sys::copy_tree(root.as_fd())?;
    sys::restrict_tree(tree.as_fd(), libc::MOUNT_ATTR_NOSUID)?;
    if sys::has_move_mount() { Ok(()) } else { Err(nix::errno::Errno::ENOSYS) }
}
