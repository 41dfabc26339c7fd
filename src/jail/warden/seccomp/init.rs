//! The policy of the init of a general image: it waits, hands on signals, says how the program ended,
//! and ends.

use super::{
    numbers as call,
    rule::{Answer, Clause, Policy, Rule, demand_or_kill, is},
};

/// The number of the program that an init watches: the second process of a new pid namespace.
pub(super) const PROGRAM: u32 = 2;

const TO_THE_PROGRAM: &[Clause] = &[demand_or_kill(&[is(0, &[PROGRAM])])];

const INIT: &[Rule] = &[
    Rule::allow(call::READ, "whether the program could be executed"),
    Rule::allow(call::WRITE, "says so, and which signal ended the program"),
    Rule::allow(call::WAIT4, "reaps"),
    Rule::allow(call::RT_SIGTIMEDWAIT, "waits for a child's end, or a signal to hand on"),
    Rule::allow_if(call::KILL, TO_THE_PROGRAM, "hands signals on to the program alone"),
    Rule::allow(call::EXIT_GROUP, "the end"),
    Rule::allow(call::RESTART_SYSCALL, "the kernel resumes waiting after a stop"),
];

pub(super) fn policy() -> Policy {
    Policy { rules: INIT.to_vec(), unlisted: Answer::Kill, unknown: Answer::Kill }
}
