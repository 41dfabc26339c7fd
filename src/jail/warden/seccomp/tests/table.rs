//! Tables of single calls with the answer they must get, written by hand with plain numbers.

use std::collections::HashSet;

use super::interpreter::{Data, answer};
use crate::seccomp::{
    FilterOptions, Profile, machine::Machine, numbers::Call, program_for, rule::Answer, rules,
};

/// A call, its first arguments (the rest are 0), and the answer on each machine that has the call.
pub(super) type Row = (Call, &'static [u64], Answer);

/// An error as an answer.
pub(super) const fn error(errno: i32) -> Answer {
    Answer::Errno(errno as u16)
}

/// Whether rows demand of a filter what it does; also that every rule with demands has a row that is
/// let through and one that is not.
pub(super) fn assert_rows(profile: Profile, loopback: bool, rows: &[Row]) {
    let options = FilterOptions { loopback, ..FilterOptions::default() };
    for machine in [Machine::X86_64, Machine::Aarch64] {
        let filter = program_for(profile, &options, machine);
        let mut good = HashSet::new();
        let mut bad = HashSet::new();
        for &(call, given, wanted) in rows {
            let Some(number) = call.number(machine) else { continue };
            if !rules(profile, &options).iter().any(|rule| rule.number(machine) == Some(number)) {
                continue;
            }
            let mut arguments = [0; 6];
            arguments[..given.len()].copy_from_slice(given);
            let data = Data::native(machine, number, arguments);
            let got = answer(filter.instructions(), &data);
            assert_eq!(got, wanted, "{} {given:x?} on {machine:?}", call.name);
            if got == Answer::Allow { &mut good } else { &mut bad }.insert(call.name);
        }
        for rule in rules(profile, &options) {
            if rule.number(machine).is_some() && !rule.clauses.is_empty() {
                let name = rule.call.name;
                assert!(good.contains(name), "no row lets {name} through on {machine:?}");
                assert!(bad.contains(name), "no row refuses {name} on {machine:?}");
            }
        }
    }
}

/// The answer to a number with all arguments zero.
pub(super) fn bare(profile: Profile, loopback: bool, machine: Machine, number: u32) -> Answer {
    let filter =
        program_for(profile, &FilterOptions { loopback, ..FilterOptions::default() }, machine);
    answer(filter.instructions(), &Data::native(machine, number, [0; 6]))
}

/// Panics when a call has more than one rule on a machine, or a rule has no reason.
pub(super) fn assert_sound(profile: Profile, loopback: bool) {
    for machine in [Machine::X86_64, Machine::Aarch64] {
        let mut seen = HashSet::new();
        for rule in rules(profile, &FilterOptions { loopback, ..FilterOptions::default() }) {
            assert!(rule.reason.len() >= 4, "{} has no reason", rule.call.name);
            if let Some(number) = rule.number(machine) {
                assert!(seen.insert(number), "{} twice on {machine:?}", rule.call.name);
            }
        }
    }
}
