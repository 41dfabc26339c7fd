//! The compiler: programs mean what the policies say, whatever their size.

use std::collections::HashMap;

use super::interpreter::{Data, answer, check, run};
use crate::seccomp::{
    FilterOptions, Profile,
    assemble::{Assembler, Instruction},
    compile::compile,
    machine::Machine,
    numbers::{ALL, Call},
    policy, program_for,
    rule::{Answer, Clause, Policy, Rule, Test, clear, demand, errno_answer, is, masked, null},
};

const MACHINES: [Machine; 2] = [Machine::X86_64, Machine::Aarch64];

fn every_policy() -> Vec<(Policy, Machine)> {
    let mut all = Vec::new();
    for machine in MACHINES {
        for (profile, loopback) in
            [(Profile::Sealed, false), (Profile::General, false), (Profile::General, true)]
        {
            all.push((
                policy(profile, FilterOptions { loopback, ..FilterOptions::default() }),
                machine,
            ));
        }
    }
    all
}

/// What a policy says about each number, read straight from its rules.
struct Judge<'a> {
    policy: &'a Policy,
    machine: Machine,
    by_number: HashMap<u32, &'a Rule>,
}

impl<'a> Judge<'a> {
    fn new(policy: &'a Policy, machine: Machine) -> Self {
        let numbered = |rule: &'a Rule| Some((rule.number(machine)?, rule));
        Self { policy, machine, by_number: policy.rules.iter().filter_map(numbered).collect() }
    }

    fn answer(&self, data: &Data) -> Answer {
        if data.architecture != self.machine.audit_architecture()
            || (self.machine == Machine::X86_64 && data.number >= 0x4000_0000)
        {
            return Answer::Kill;
        }
        let Some(rule) = self.by_number.get(&data.number) else {
            let known = Call::find(self.machine, data.number).is_some();
            return if known { self.policy.unlisted } else { self.policy.unknown };
        };
        let holds = |test: &Test| match *test {
            Test::Low { argument, mask, values } => {
                values.contains(&(data.arguments[usize::from(argument)] as u32 & mask))
            }
            Test::Null { argument } => data.arguments[usize::from(argument)] == 0,
        };
        let unmet = |clause: &&Clause| !clause.any.iter().any(holds);
        rule.clauses.iter().find(unmet).map_or(rule.answer, |clause| clause.otherwise)
    }
}

/// Values around those that the rule compares an argument with, alone and with bits in the upper
/// half; none where it does not look.
fn interesting(rule: &Rule, argument: u8) -> Vec<u64> {
    let mut values = Vec::new();
    for test in rule.clauses.iter().flat_map(|clause| clause.any) {
        match *test {
            Test::Low { argument: looked_at, mask, values: wanted } if looked_at == argument => {
                for &wanted in wanted {
                    let wanted = u64::from(wanted);
                    values.extend([wanted, wanted | u64::from(!mask), wanted.wrapping_add(1)]);
                    values
                        .extend([wanted | u64::from(mask & mask.wrapping_neg()), wanted | 1 << 32]);
                }
            }
            Test::Null { argument: looked_at } if looked_at == argument => {
                values.extend([0, 1, 1 << 32, u64::MAX]);
            }
            _ => {}
        }
    }
    values.sort_unstable();
    values.dedup();
    values
}

/// Compares program and policy over every number and the interesting arguments of every rule.
fn assert_same(policy: &Policy, machine: Machine, program: &[Instruction]) {
    let judge = Judge::new(policy, machine);
    let agree = |data: Data| {
        assert_eq!(answer(program, &data), judge.answer(&data), "{machine:?} {data:x?}");
    };
    let numbers = (0..1200).chain([0x3fff_ffff, 0x4000_0000, 0x4000_0001, 0x8000_0000, u32::MAX]);
    for number in numbers {
        for argument in [0, 1, u64::MAX] {
            agree(Data::native(machine, number, [argument; 6]));
        }
        for architecture in [0, 0x4000_0003, 0xc000_003e, 0xc000_00b7, 0x4000_0028, u32::MAX] {
            agree(Data { number, architecture, arguments: [0; 6] });
        }
    }
    for rule in &policy.rules {
        let Some(number) = rule.number(machine) else { continue };
        let sets: Vec<Vec<u64>> = (0..6).map(|argument| interesting(rule, argument)).collect();
        // The rest at values that meet no demand, some, or every one.
        for rest in [[0; 6], [1; 6], [u64::MAX; 6], [0, 1, 3, 7, 0, 0]] {
            agree(Data::native(machine, number, rest));
            // Arguments that the rule does not look at have no set.
            let looked_at = (0..6).filter(|&argument| !sets[argument].is_empty());
            for first in looked_at {
                for bit in 0..64 {
                    let mut arguments = rest;
                    arguments[first] ^= 1 << bit;
                    agree(Data::native(machine, number, arguments));
                }
                for second in 0..=first {
                    for (&one, &other) in
                        sets[second].iter().flat_map(|a| sets[first].iter().map(move |b| (a, b)))
                    {
                        let mut arguments = rest;
                        arguments[first] = other;
                        arguments[second] = one;
                        agree(Data::native(machine, number, arguments));
                    }
                }
            }
        }
    }
}

#[test]
fn programs_say_what_the_policies_say() {
    for (policy, machine) in every_policy() {
        let program = compile(&policy, machine);
        check(&program);
        assert_same(&policy, machine, &program);
    }
}

#[test]
fn far_targets_are_reached() {
    // Blocks of different sizes, far too many for the 8 bits of a branch.
    const LONG: &[u32] = &[3, 1, 35, 0x1_0000, 1 << 31];
    const BLOCKS: [&[Clause]; 5] = [
        &[demand(&[is(0, LONG), null(1), clear(2, 7)], 1), demand(&[is(5, LONG)], 2)],
        &[],
        &[demand(&[null(3)], 3), demand(&[masked(4, 0xff00, LONG), is(0, LONG)], 4)],
        &[demand(&[is(1, LONG)], 5), demand(&[is(2, LONG)], 6), demand(&[is(3, LONG)], 7)],
        &[demand(&[clear(0, 1)], 8)],
    ];
    for machine in MACHINES {
        let rules = ALL
            .iter()
            .enumerate()
            .filter(|(index, _)| index % 7 != 0)
            .map(|(index, &call)| Rule {
                answer: errno_answer(100 + index as i32 % 40),
                ..Rule::allow_if(call, BLOCKS[index % BLOCKS.len()], "far")
            })
            // So many that the whole stays within the kernel's limit.
            .take(80)
            .collect();
        let policy = Policy { rules, unlisted: errno_answer(90), unknown: errno_answer(91) };
        let program = compile(&policy, machine);
        assert!(program.len() > 3 * 255, "{} instructions need no far jump", program.len());
        check(&program);
        assert_same(&policy, machine, &program);
        assert!(program.iter().any(|instruction| instruction.code == 5), "no far jump was needed");
    }
}

#[test]
fn branches_reach_exactly_as_far_as_they_can() {
    // Two places, as far behind the branch as its 8 bits reach, and a little less and more.
    for (between, before) in (0..8).flat_map(|a| (0..8).map(move |b| (250 + a, 250 + b))) {
        for swapped in [false, true] {
            let mut assembler = Assembler::default();
            let fill = |assembler: &mut Assembler, count: usize| {
                let mut label = assembler.answer(Answer::Kill);
                for _ in 0..count {
                    label = assembler.load(16, label);
                }
            };
            let one = assembler.answer(errno_answer(1));
            let one = assembler.load(24, one);
            fill(&mut assembler, between % 10);
            let other = assembler.answer(errno_answer(2));
            let other = assembler.load(24, other);
            fill(&mut assembler, before);
            let (yes, no) = if swapped { (other, one) } else { (one, other) };
            let branch = assembler.if_equal(7, yes, no);
            let entry = assembler.load(0, branch);
            let program = assembler.finish(entry);
            check(&program);
            let at = |number| answer(&program, &Data::native(Machine::X86_64, number, [0; 6]));
            let (seven, eight) = if swapped { (2, 1) } else { (1, 2) };
            assert_eq!(at(7), errno_answer(seven), "{between} {before} {swapped}");
            assert_eq!(at(8), errno_answer(eight), "{between} {before} {swapped}");
        }
    }
}

#[test]
fn plain_lists_agree_with_seccompiler() {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};
    let mut seed = 42_u64;
    for round in 0..40 {
        // A linear congruential generator picks the lists; the same ones every time.
        let mut chosen = |call: &&Call| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % 40 < round && !call.name.is_empty()
        };
        let calls: Vec<&Call> = ALL.iter().filter(|call| chosen(call)).collect();
        let machine = MACHINES[round as usize % 2];
        let target = match machine {
            Machine::X86_64 => TargetArch::x86_64,
            Machine::Aarch64 => TargetArch::aarch64,
        };
        let numbers: Vec<u32> = calls.iter().filter_map(|call| call.number(machine)).collect();
        if numbers.is_empty() {
            continue;
        }
        let theirs: BpfProgram = SeccompFilter::new(
            numbers.iter().map(|&number| (i64::from(number), vec![])).collect(),
            SeccompAction::Errno(38),
            SeccompAction::Allow,
            target,
        )
        .and_then(TryInto::try_into)
        .expect("seccompiler takes the list");
        let theirs: Vec<Instruction> = theirs
            .iter()
            .map(|i| Instruction { code: i.code, jt: i.jt, jf: i.jf, k: i.k })
            .collect();
        check(&theirs);
        let policy = Policy {
            rules: calls.iter().map(|&&call| Rule::allow(call, "chosen")).collect(),
            unlisted: errno_answer(38),
            unknown: errno_answer(38),
        };
        let ours = compile(&policy, machine);
        for number in 0..2000 {
            let data = Data::native(machine, number, [7; 6]);
            assert_eq!(run(&ours, &data).0, run(&theirs, &data).0, "{machine:?} {number}");
        }
        for number in [0, 1, 59, 1000] {
            let data = Data { number, architecture: 0x4000_0003, arguments: [0; 6] };
            assert_eq!(run(&ours, &data).0, run(&theirs, &data).0, "foreign {number}");
        }
    }
}

#[test]
fn the_answer_is_never_far() {
    // What attaching a filter costs is the number of instructions for each number before an answer
    // or an argument; a list would need hundreds.
    for (policy, machine) in every_policy() {
        let program = compile(&policy, machine);
        for number in 0..480 {
            let (_, steps) = run(&program, &Data::native(machine, number, [0; 6]));
            let arguments = policy
                .rules
                .iter()
                .find(|rule| rule.number(machine) == Some(number))
                .map_or(0, |rule| rule.clauses.len());
            assert!(arguments > 0 || steps <= 15, "{number} on {machine:?} takes {steps}");
        }
    }
}

#[test]
fn a_filter_is_made_the_same_every_time_and_each_is_another() {
    let mut digests = Vec::new();
    for machine in MACHINES {
        for (profile, loopback) in
            [(Profile::Sealed, false), (Profile::General, false), (Profile::General, true)]
        {
            let options = FilterOptions { loopback, ..FilterOptions::default() };
            let filter = program_for(profile, &options, machine);
            assert_eq!(filter, program_for(profile, &options, machine));
            assert_eq!(filter.digest().len(), 64);
            digests.push(filter.digest());
        }
        // The sealed profile has no loopback.
        let sealed = |loopback| {
            program_for(
                Profile::Sealed,
                &FilterOptions { loopback, ..FilterOptions::default() },
                machine,
            )
        };
        assert_eq!(sealed(true), sealed(false));
    }
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), 6);
}
