//! Makes a program of a policy.
//!
//! The kernel runs a new filter once for every call number when it is attached (to learn which are
//! always allowed), so what costs is the number of instructions before the answer, for all numbers
//! together. A balanced binary tree over ranges of numbers keeps that low where a list would not.

use super::{
    assemble::{Assembler, Instruction, Label},
    machine::Machine,
    numbers,
    rule::{Answer, Clause, Policy, Test},
};

/// Offset of the call's number in `struct seccomp_data`.
const NUMBER: u32 = 0;
/// Offset of the architecture.
const ARCHITECTURE: u32 = 4;
/// The bit that marks an x32 call, which has x86_64's own architecture value.
const X32: u32 = 0x4000_0000;

/// Offset of the low 32 bits of an argument; both machines are little-endian.
const fn low(argument: u8) -> u32 {
    assert!(argument < 6);
    16 + 8 * argument as u32
}

/// Numbers from `first` up to the next leaf's first, with the same treatment.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Leaf {
    first: u32,
    clauses: &'static [Clause],
    answer: Answer,
}

/// The program that applies `policy` on `machine`.
pub(super) fn compile(policy: &Policy, machine: Machine) -> Vec<Instruction> {
    let mut assembler = Assembler::default();
    let kill = assembler.answer(Answer::Kill);
    let mut start = tree(&mut assembler, &leaves(policy, machine, |_| true));
    if machine == Machine::X86_64 {
        start = assembler.if_at_least(X32, kill, start);
    }
    let number = assembler.load(NUMBER, start);
    let foreign = assembler.answer(Answer::Kill);
    let native = assembler.if_equal(machine.audit_architecture(), number, foreign);
    let entry = assembler.load(ARCHITECTURE, native);
    assembler.finish(entry)
}

/// The same beside another program that ends the process at every number without a rule here, and in every
/// other architecture: what this one answers there is whatever makes it shorter.
pub(super) fn compile_beside(policy: &Policy, machine: Machine) -> Vec<Instruction> {
    let mut assembler = Assembler::default();
    let listed = |number| policy.rules.iter().any(|rule| rule.number(machine) == Some(number));
    let start = tree(&mut assembler, &leaves(policy, machine, listed));
    let entry = assembler.load(NUMBER, start);
    assembler.finish(entry)
}

/// Every number from 0 to the end, neighbours with the same treatment in one leaf, and in that of its
/// neighbours what does not matter.
fn leaves(policy: &Policy, machine: Machine, matters: impl Fn(u32) -> bool) -> Vec<Leaf> {
    let known = |number| numbers::Call::find(machine, number).is_some();
    let highest = numbers::ALL.iter().filter_map(|call| call.number(machine)).max();
    let mut leaves: Vec<Leaf> = Vec::new();
    for first in (0..=highest.map_or(0, |highest| highest + 1)).filter(|&number| matters(number)) {
        let rule = policy.rules.iter().find(|rule| rule.number(machine) == Some(first));
        let (clauses, answer): (&'static [Clause], Answer) = match rule {
            Some(rule) => (rule.clauses, rule.answer),
            None if known(first) => (&[], policy.unlisted),
            None => (&[], policy.unknown),
        };
        let same = |last: &Leaf| last.clauses == clauses && last.answer == answer;
        if !leaves.last().is_some_and(same) {
            let first = if leaves.is_empty() { 0 } else { first };
            leaves.push(Leaf { first, clauses, answer });
        }
    }
    leaves
}

/// A search tree over the leaves; the number is in the accumulator.
fn tree(assembler: &mut Assembler, leaves: &[Leaf]) -> Label {
    if let [leaf] = leaves {
        return arguments(assembler, leaf.clauses, leaf.answer);
    }
    let middle = leaves.len() / 2;
    let upper = tree(assembler, &leaves[middle..]);
    let lower = tree(assembler, &leaves[..middle]);
    assembler.if_at_least(leaves[middle].first, upper, lower)
}

/// The demands on the arguments, one after the other, then the answer.
fn arguments(assembler: &mut Assembler, clauses: &[Clause], answer: Answer) -> Label {
    let Some((first, rest)) = clauses.split_first() else {
        return assembler.answer(answer);
    };
    let met = arguments(assembler, rest, answer);
    let mut next = assembler.answer(first.otherwise);
    for test in first.any.iter().rev() {
        next = question(assembler, test, met, next);
    }
    next
}

/// One test on one argument.
fn question(assembler: &mut Assembler, test: &Test, yes: Label, no: Label) -> Label {
    match *test {
        Test::Low { argument, mask, values } => {
            let mut next = no;
            for &value in values.iter().rev() {
                next = assembler.if_equal(value, yes, next);
            }
            if mask != u32::MAX {
                next = assembler.and(mask, next);
            }
            assembler.load(low(argument), next)
        }
        Test::Null { argument } => {
            let lower = assembler.if_equal(0, yes, no);
            let lower = assembler.load(low(argument), lower);
            let upper = assembler.if_equal(0, lower, no);
            assembler.load(low(argument) + 4, upper)
        }
    }
}
