//! Landlock's three system calls.

use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

use libc::{c_int, c_uint};

use super::{Result, check, new_fd};

/// The highest landlock ABI that this kernel reports; 0 when it has none or it is switched off.
pub fn landlock_abi() -> u32 {
    const VERSION: c_uint = 1;
    let none = std::ptr::null::<u8>();
    // SAFETY: with the version flag the kernel reads no memory.
    let abi = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, none, 0, VERSION) };
    u32::try_from(abi).unwrap_or(0)
}

/// The attributes of landlock_create_ruleset(2) as of ABI 6.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RulesetAttributes {
    /// Rights on files that are denied unless a rule grants them.
    pub fs: u64,
    /// Rights on the network.
    pub net: u64,
    /// Scopes that are closed.
    pub scoped: u64,
}

/// landlock_create_ruleset(2). `bytes` is how much of the attributes the ABI knows.
pub fn landlock_create(attributes: &RulesetAttributes, bytes: usize) -> Result<OwnedFd> {
    debug_assert!(bytes <= size_of::<RulesetAttributes>());
    let attributes = std::ptr::from_ref(attributes);
    // SAFETY: the pointer is to a live value at least `bytes` long.
    new_fd(unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, attributes, bytes, 0) })
}

/// landlock_add_rule(2): grants `rights` beneath `path` (a directory) or on it (a file).
pub fn landlock_grant(ruleset: BorrowedFd, path: BorrowedFd, rights: u64) -> Result<()> {
    #[repr(C, packed)]
    struct PathBeneath {
        rights: u64,
        parent: c_int,
    }
    const PATH_BENEATH: c_uint = 1;
    let rule = PathBeneath { rights, parent: path.as_raw_fd() };
    let (number, ruleset) = (libc::SYS_landlock_add_rule, ruleset.as_raw_fd());
    // SAFETY: `rule` has the layout of landlock_path_beneath_attr (packed) and lives across the call.
    check(unsafe { libc::syscall(number, ruleset, PATH_BENEATH, &raw const rule, 0) }).map(drop)
}

/// landlock_restrict_self(2).
pub fn landlock_enforce(ruleset: BorrowedFd) -> Result<()> {
    // SAFETY: touches no memory.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) })
        .map(drop)
}
