//! The policy of the init of a general image: it waits, says how the program ended, and ends.

use super::{
    numbers as call,
    rule::{Answer, Policy, Rule},
};

const INIT: &[Rule] = &[
    Rule::allow(call::READ, "whether the program could be executed"),
    Rule::allow(call::WRITE, "says so, and which signal ended the program"),
    Rule::allow(call::WAIT4, "reaps"),
    Rule::allow(call::EXIT_GROUP, "the end"),
    Rule::allow(call::RESTART_SYSCALL, "the kernel resumes waiting after a stop"),
];

pub(super) fn policy() -> Policy {
    Policy { rules: INIT.to_vec(), unlisted: Answer::Kill, unknown: Answer::Kill }
}
