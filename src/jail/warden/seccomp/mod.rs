//! Which system calls a jailed program may make, and the filter that says so to the kernel.
//!
//! A policy is data: one table a [`Profile`], one rule a system call, each with its reason
//! ([`rules`]). It is compiled into a BPF program once, before the first jail, by [`program`]; a
//! child that is about to execute a worker only hands the finished instructions to the kernel.
//! Nothing here makes a system call.
//!
//! Every filter first kills what was not called through the native door of the machine (the 32 bit
//! entry of an x86_64 kernel, and x32 numbers). After that [`Profile::Sealed`] kills what it does
//! not list, and [`Profile::General`] answers errors that programs know how to take.

mod arguments;
mod assemble;
mod compile;
mod general;
mod init;
pub mod machine;
pub mod numbers;
pub mod rule;
pub mod sealed;
pub mod stages;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

pub use assemble::Instruction;
use machine::Machine;
use rule::{Policy, Rule};

/// How much a jailed program may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Profile {
    /// For our own static worker: what it uses and nothing else; the rest is death.
    Sealed,
    /// For any other image: ordinary programs run unmodified, the dangerous calls answer errors.
    General,
}

impl Profile {
    /// The word used in labels, settings and receipts.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sealed => "sealed",
            Self::General => "general",
        }
    }
}

impl std::fmt::Display for Profile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What an operator may loosen in a filter. The default loosens nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct FilterOptions {
    /// Lets a general image open IPv4 and IPv6 stream and datagram sockets, for the loopback of its
    /// own, empty network namespace. The sealed profile ignores it.
    pub loopback: bool,
    /// Lets the sealed worker open directories again that are closed to their owner, when it clears a
    /// workspace for the host. The general profile lets everybody.
    pub clears: bool,
}

/// A finished filter: at most 4,096 instructions, ready for `seccomp(SECCOMP_SET_MODE_FILTER)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    instructions: Vec<Instruction>,
}

impl Filter {
    /// The program.
    pub fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    /// SHA-256 over the instructions (each as code, jt, jf and k in little-endian), in hexadecimal:
    /// what a receipt names the filter by. The same build makes the same digest everywhere.
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new();
        for instruction in &self.instructions {
            hash.update(instruction.code.to_le_bytes());
            hash.update([instruction.jt, instruction.jf]);
            hash.update(instruction.k.to_le_bytes());
        }
        hash.finalize().iter().fold(String::with_capacity(64), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }
}

/// The filter of a profile for the machine this program runs on.
pub fn program(profile: Profile, options: &FilterOptions) -> Filter {
    program_for(profile, options, Machine::NATIVE)
}

/// The process that the init of a general image watches, and the only one it may signal.
pub const PROGRAM_PID: i32 = init::PROGRAM as i32;

/// The filter of a profile for the machine this program runs on, in two stages.
pub fn in_stages(profile: Profile, options: &FilterOptions) -> stages::Stages {
    stages::stages(&policy(profile, *options), Machine::NATIVE)
}

/// The filter of the init that reaps the processes of a general image. Everything else is death.
pub fn init() -> Filter {
    Filter { instructions: compile::compile(&init::policy(), Machine::NATIVE) }
}

/// The filter of a profile for a given machine.
pub fn program_for(profile: Profile, options: &FilterOptions, machine: Machine) -> Filter {
    let instructions = compile::compile(&policy(profile, *options), machine);
    // The kernel's own limit; the tables are fixed, so this is known before any release.
    assert!(instructions.len() <= 4096);
    Filter { instructions }
}

/// The rules of a profile, for both machines.
pub fn rules(profile: Profile, options: &FilterOptions) -> Vec<Rule> {
    policy(profile, *options).rules
}

fn policy(profile: Profile, options: FilterOptions) -> Policy {
    match profile {
        Profile::Sealed => sealed::policy(options),
        Profile::General => general::policy(options),
    }
}
