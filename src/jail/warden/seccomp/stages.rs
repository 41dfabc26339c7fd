//! A profile's filter in two stages, for a jail that is prepared before its plan is known.
//!
//! The first stage is attached ahead of need. It is the profile's filter, but lets through what is left of
//! the set-up. The second is small: attached last, it answers the calls of the set-up as the profile does,
//! lets through the profile's others, and leaves all that the first one ends to that. Of several filters
//! the kernel takes the most restrictive answer, so the two together answer as the profile's one filter.

use super::{
    Filter,
    compile::{compile, compile_beside},
    machine::Machine,
    numbers::{self as call, Call},
    rule::{Answer, Policy, Rule},
};

/// What is left to do when a turn arrives.
pub const SET_UP: &[Call] = &[
    call::RECVMSG,
    call::MOVE_MOUNT,
    call::OPENAT2,
    call::FCHDIR,
    call::DUP3,
    call::CAPSET,
    call::LSEEK,
    call::FSTATFS,
    call::READLINKAT,
    call::LANDLOCK_ADD_RULE,
    call::LANDLOCK_RESTRICT_SELF,
    call::CLOSE_RANGE,
    call::SECCOMP,
];

/// Both stages of a filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stages {
    /// Attached while nothing of the turn is known.
    pub first: Filter,
    /// Attached as the last act before exec.
    pub second: Filter,
}

/// The stages of `policy` for `machine`.
pub(super) fn stages(policy: &Policy, machine: Machine) -> Stages {
    // What stands in no list has to be the same death in both.
    assert_eq!((policy.unlisted, policy.unknown), (Answer::Kill, Answer::Kill));
    let of_set_up = |rule: &&Rule| SET_UP.contains(&rule.call);
    let listed = |call: Call| {
        policy.rules.iter().any(|rule| rule.call == call && rule.number(machine).is_some())
    };
    let others = policy.rules.iter().filter(|rule| !of_set_up(rule)).copied();
    let let_through = SET_UP.iter().map(|&call| Rule::allow(call, "the rest of the set-up"));
    let first = Policy { rules: others.clone().chain(let_through).collect(), ..policy.clone() };
    let answered = policy.rules.iter().filter(of_set_up).copied();
    let unlisted = SET_UP
        .iter()
        .filter(|&&call| !listed(call))
        .map(|&call| Rule { answer: Answer::Kill, ..Rule::allow(call, "of the set-up alone") });
    // The first stage looks at their arguments.
    let looked_at = others.map(|rule| Rule { clauses: &[], answer: Answer::Allow, ..rule });
    let second =
        Policy { rules: looked_at.chain(answered).chain(unlisted).collect(), ..policy.clone() };
    Stages {
        first: Filter { instructions: compile(&first, machine) },
        second: Filter { instructions: compile_beside(&second, machine) },
    }
}
