//! What a policy is made of: rules as plain data, without any code that applies them.

use super::{machine::Machine, numbers::Call};

/// What the kernel does with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Answer {
    /// Carries it out.
    Allow,
    /// Answers this error number, without carrying it out.
    Errno(u16),
    /// Ends the process with SIGSYS.
    Kill,
}

/// A question about one argument of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Test {
    /// Whether the argument's low 32 bits, after the mask, are one of the values. Right for every
    /// argument that the kernel takes as 32 bits or less, and for flags: the kernel ignores what
    /// stands in the upper half, and so must the test.
    Low {
        /// Which argument, from 0 to 5.
        argument: u8,
        /// The bits that are looked at.
        mask: u32,
        /// What they may be.
        values: &'static [u32],
    },
    /// Whether all 64 bits of the argument are zero: a pointer that is null.
    Null {
        /// Which argument, from 0 to 5.
        argument: u8,
    },
}

/// A demand on a call's arguments: at least one of the tests holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clause {
    /// The tests, asked in this order.
    pub any: &'static [Test],
    /// The answer when none of them holds.
    pub otherwise: Answer,
}

/// On which machines a rule applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// Wherever the call exists.
    All,
    /// On this one alone, although the call exists elsewhere too.
    Only(Machine),
}

/// What a profile does with one system call, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// The call.
    pub call: Call,
    /// The machines it is about.
    pub on: On,
    /// Demands on its arguments; the first that is not met gives its own answer.
    pub clauses: &'static [Clause],
    /// The answer when every demand is met.
    pub answer: Answer,
    /// The reason, in a few words.
    pub reason: &'static str,
}

impl Rule {
    /// Lets a call through whatever its arguments are.
    pub const fn allow(call: Call, reason: &'static str) -> Self {
        Self { call, on: On::All, clauses: &[], answer: Answer::Allow, reason }
    }

    /// Lets a call through when its arguments meet every demand.
    pub const fn allow_if(call: Call, clauses: &'static [Clause], reason: &'static str) -> Self {
        Self { call, on: On::All, clauses, answer: Answer::Allow, reason }
    }

    /// Answers an error number.
    pub const fn refuse(call: Call, errno: i32, reason: &'static str) -> Self {
        Self { call, on: On::All, clauses: &[], answer: errno_answer(errno), reason }
    }

    /// The same rule for one machine alone.
    #[must_use]
    pub const fn only(self, machine: Machine) -> Self {
        Self { on: On::Only(machine), ..self }
    }

    /// The call's number on `machine`, when the rule applies there and the call exists.
    pub fn number(&self, machine: Machine) -> Option<u32> {
        match self.on {
            On::Only(only) if only != machine => None,
            _ => self.call.number(machine),
        }
    }
}

/// An error number as an answer.
pub const fn errno_answer(errno: i32) -> Answer {
    // The kernel caps the value at 4095; every errno of Linux is below.
    assert!(errno > 0 && errno < 4096);
    Answer::Errno(errno as u16)
}

/// One demand with a single test.
pub const fn demand(test: &'static [Test], errno: i32) -> Clause {
    Clause { any: test, otherwise: errno_answer(errno) }
}

/// One demand whose failure ends the process.
pub const fn demand_or_kill(test: &'static [Test]) -> Clause {
    Clause { any: test, otherwise: Answer::Kill }
}

/// A test that the argument's low 32 bits are one of the values.
pub const fn is(argument: u8, values: &'static [u32]) -> Test {
    Test::Low { argument, mask: u32::MAX, values }
}

/// A test that none of these bits is set.
pub const fn clear(argument: u8, bits: u32) -> Test {
    Test::Low { argument, mask: bits, values: &[0] }
}

/// A test that the bits within the mask are one of the values.
pub const fn masked(argument: u8, mask: u32, values: &'static [u32]) -> Test {
    Test::Low { argument, mask, values }
}

/// A test that a pointer is null.
pub const fn null(argument: u8) -> Test {
    Test::Null { argument }
}

/// A whole policy: the rules, and the answers for what has none.
#[derive(Debug, Clone)]
pub struct Policy {
    /// At most one rule for a call on a machine.
    pub rules: Vec<Rule>,
    /// The answer for a call of the table without a rule.
    pub unlisted: Answer,
    /// The answer for a number that the table does not know, such as a newer kernel's.
    pub unknown: Answer,
}
