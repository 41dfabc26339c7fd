//! The landlock policy of a jail as data: which rights are handled, and which are granted where.
//!
//! Everything that the kernel and the `landlock` crate both know is handled, so denied unless a rule
//! grants it. One ruleset only: a second layer would deny every rename between directories (REFER is
//! denied by a layer that does not handle it). The table of rights by ABI is the crate's; the three
//! system calls are made raw, because the child that makes them must not allocate.

use std::ffi::CStr;

use landlock::{ABI, Access as _, AccessFs, AccessNet, BitFlags, Scope, make_bitflags};

use crate::seccomp::Profile;
use crate::sys::RulesetAttributes;

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
