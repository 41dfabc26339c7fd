//! The landlock policy of a jail as data: which rights are handled, and which are granted where.
//!
//! Everything that the kernel and the `landlock` crate both know is handled, so denied unless a rule
//! grants it. One ruleset only: a second layer would deny every rename between directories (REFER is
//! denied by a layer that does not handle it). The table of rights by ABI is the crate's; the three
//! system calls are made raw, because the child that makes them must not allocate.

use std::ffi::CStr;

use landlock::{ABI, Access as _, AccessFs, AccessNet, BitFlags, Scope, make_bitflags};

use nix::errno::Errno;

use crate::seccomp::Profile;
use crate::sys::{self, RulesetAttributes};

/// Rights granted beneath a directory or on a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// The path inside the jail's root.
    pub path: &'static CStr,
    /// What is granted, as the kernel's bits.
    pub rights: u64,
}

/// A ruleset fit for one ABI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruleset {
    /// What is handled.
    pub attributes: RulesetAttributes,
    /// How much of the attributes this ABI knows, in bytes.
    pub attribute_bytes: usize,
    /// The program's own rights.
    pub program_rights: u64,
    /// The rules for the places of a jail; one whose place this jail does not have is left out.
    pub rules: Vec<Rule>,
}

/// The landlock ABI of this kernel, as it says and as it does; 0 when it has none or it is switched off.
pub fn abi() -> u32 {
    accepted(sys::landlock_abi(), |set| {
        sys::landlock_create(&set.attributes, set.attribute_bytes).map(drop)
    })
}

/// The highest ABI, from `reported` downwards, whose whole ruleset is accepted; 0 when none is. Kernels with
/// backported parts may report more than they know. Other errors than for what is not known say nothing
/// of the ABI, and come again when a jail is made.
fn accepted(reported: u32, mut create: impl FnMut(&Ruleset) -> Result<(), Errno>) -> u32 {
    let mut abi = reported;
    while let Some(set) = ruleset(Profile::Sealed, false, abi) {
        match create(&set) {
            // A right, or a whole field.
            Err(Errno::EINVAL | Errno::E2BIG) => abi = abi.min(NEWEST) - 1,
            _ => break,
        }
    }
    abi
}

/// The ruleset of `profile` for a kernel with landlock ABI `abi`; none below ABI 1. With a loopback the
/// network is not handled: its rules know ports, not addresses, and the namespace has nothing else.
pub fn ruleset(profile: Profile, loopback: bool, abi: u32) -> Option<Ruleset> {
    let abi = known(abi);
    let handled = AccessFs::from_all(abi);
    if handled.is_empty() {
        return None;
    }
    let fit = |rights: BitFlags<AccessFs>| (rights & handled).bits();
    Some(Ruleset {
        attributes: RulesetAttributes {
            fs: handled.bits(),
            net: if loopback { 0 } else { AccessNet::from_all(abi).bits() },
            scoped: Scope::from_all(abi).bits(),
        },
        // struct landlock_ruleset_attr grew a field at ABI 4 (network) and at ABI 6 (scopes).
        attribute_bytes: match abi {
            ABI::V1 | ABI::V2 | ABI::V3 => 8,
            ABI::V4 | ABI::V5 => 16,
            _ => 24,
        },
        program_rights: fit(make_bitflags!(AccessFs::{Execute | ReadFile})),
        rules: places(profile)
            .into_iter()
            .map(|(path, rights)| Rule { path, rights: fit(rights) })
            .filter(|rule| rule.rights != 0)
            .collect(),
    })
}

/// The newest ABI that the crate knows.
const NEWEST: u32 = 10;

/// The newest ABI that kernel and crate both know.
fn known(abi: u32) -> ABI {
    match abi {
        0 => ABI::Unsupported,
        1 => ABI::V1,
        2 => ABI::V2,
        3 => ABI::V3,
        4 => ABI::V4,
        5 => ABI::V5,
        6 => ABI::V6,
        7 => ABI::V7,
        8 => ABI::V8,
        9 => ABI::V9,
        _ => ABI::V10,
    }
}

/// What may be done where. Nobody may make sockets, FIFOs or devices, or use device ioctls.
fn places(profile: Profile) -> Vec<(&'static CStr, BitFlags<AccessFs>)> {
    let files = make_bitflags!(AccessFs::{
        ReadFile | ReadDir | WriteFile | Truncate | MakeReg | MakeDir | RemoveFile | RemoveDir | Refer
    });
    // Syncing a directory needs it open, hence ReadDir. A directory that stands where the worker stages a
    // file is renamed aside, hence the rights on directories. No moves into or out of others.
    let state = make_bitflags!(AccessFs::{
        ReadFile | ReadDir | WriteFile | Truncate | MakeReg | MakeDir | RemoveFile | RemoveDir
    });
    let broker = make_bitflags!(AccessFs::{ResolveUnix});
    let sealed =
        vec![(c"/workspace", files), (c"/channel", state), (c"/tmp", files), (c"/broker", broker)];
    match profile {
        Profile::Sealed => sealed,
        Profile::General => {
            let mut general = sealed;
            general[0].1 |= make_bitflags!(AccessFs::{MakeSym | Execute});
            general[2].1 |= make_bitflags!(AccessFs::{MakeSym});
            // /proc and /broker lie beneath the root and can be read; their mounts are read-only.
            general.push((c"/", make_bitflags!(AccessFs::{ReadFile | ReadDir | Execute})));
            general.push((c"/dev", make_bitflags!(AccessFs::{WriteFile})));
            general.push((c"/dev/shm", files));
            general
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_abi_no_ruleset() {
        assert_eq!(ruleset(Profile::Sealed, false, 0), None);
    }

    /// A kernel that reports an ABI and knows the rights of another.
    fn with_a_kernel(reported: u32, knows: u32, errno: Errno) -> (u32, usize) {
        let known = |abi| ruleset(Profile::Sealed, false, abi).map(|set| set.attributes);
        let known = known(knows).unwrap_or(RulesetAttributes { fs: 0, net: 0, scoped: 0 });
        let mut tries = 0;
        let abi = accepted(reported, |set| {
            tries += 1;
            let RulesetAttributes { fs, net, scoped } = set.attributes;
            let unknown = (fs & !known.fs) | (net & !known.net) | (scoped & !known.scoped);
            if unknown == 0 { Ok(()) } else { Err(errno) }
        });
        (abi, tries)
    }

    #[test]
    fn a_kernel_that_reports_more_than_it_knows_is_taken_at_what_it_knows() {
        for errno in [Errno::EINVAL, Errno::E2BIG] {
            // As they say, and newer than the crate.
            for abi in [1, 4, 10, 12, u32::MAX] {
                assert_eq!(with_a_kernel(abi, abi, errno), (abi, 1));
            }
            assert_eq!(with_a_kernel(5, 2, errno), (2, 4));
            assert_eq!(with_a_kernel(u32::MAX, 9, errno), (9, 2));
            assert_eq!(with_a_kernel(3, 0, errno), (0, 3));
        }
        assert_eq!(with_a_kernel(0, 0, Errno::EINVAL), (0, 0));
        // ABI 7 has the same rights as ABI 6.
        assert_eq!(with_a_kernel(7, 6, Errno::EINVAL), (7, 1));
    }

    #[test]
    fn other_errors_say_nothing_of_the_abi() {
        for errno in [Errno::EMFILE, Errno::EPERM, Errno::ENOSYS] {
            assert_eq!(with_a_kernel(5, 2, errno), (5, 1));
        }
    }

    #[test]
    fn every_abi_handles_only_what_it_knows_and_grants_only_what_it_handles() {
        for abi in 1..=12 {
            let set = ruleset(Profile::Sealed, false, abi).expect("a ruleset");
            let rights = set.attributes.fs;
            assert_eq!(rights & 1, 1, "execute is handled at every ABI");
            assert_eq!(rights >> 13 & 1, u64::from(abi >= 2), "refer at ABI {abi}");
            assert_eq!(rights >> 14 & 1, u64::from(abi >= 3), "truncate at ABI {abi}");
            assert_eq!(rights >> 15 & 1, u64::from(abi >= 5), "ioctl at ABI {abi}");
            assert_eq!(set.attributes.net != 0, abi >= 4, "network at ABI {abi}");
            assert_eq!(set.attributes.scoped != 0, abi >= 6, "scopes at ABI {abi}");
            for rule in &set.rules {
                assert_eq!(rule.rights & !rights, 0, "{:?} at ABI {abi}", rule.path);
            }
        }
    }

    #[test]
    fn with_a_loopback_the_network_alone_is_not_handled() {
        for abi in 1..=12 {
            let [without, with] = [false, true].map(|loopback| {
                ruleset(Profile::General, loopback, abi).expect("a ruleset").attributes
            });
            assert_eq!((with.fs, with.scoped), (without.fs, without.scoped), "at ABI {abi}");
            assert_eq!((without.net != 0, with.net), (abi >= 4, 0), "at ABI {abi}");
        }
    }

    #[test]
    fn the_sealed_profile_executes_its_program_only() {
        let set = ruleset(Profile::Sealed, false, 7).expect("a ruleset");
        let execute = AccessFs::Execute as u64;
        assert_eq!(set.program_rights & execute, execute);
        assert!(set.rules.iter().all(|rule| rule.rights & execute == 0));
    }

    #[test]
    fn the_broker_directory_grants_nothing_but_connecting() {
        let at = |abi| {
            let set = ruleset(Profile::Sealed, false, abi).expect("a ruleset");
            set.rules.iter().find(|r| r.path == c"/broker").map(|r| r.rights)
        };
        assert_eq!(at(7), None);
        assert_eq!(at(9), Some(AccessFs::ResolveUnix as u64));
    }
}
