//! The two stages of a filter, together, answer as the one filter does.

use super::interpreter::{Data, run};
use crate::seccomp::{
    FilterOptions, Profile,
    assemble::Instruction,
    compile::compile,
    machine::Machine,
    numbers, policy,
    rule::{Clause, Policy, Test},
    stages::{SET_UP, stages},
};

/// The kernel's order: of the answers of several filters the smallest action, as a signed number, wins.
fn together(programs: [&[Instruction]; 2], data: &Data) -> u32 {
    let answers = programs.map(|program| run(program, data).0);
    answers.into_iter().min_by_key(|answer| (answer & 0xffff_0000).cast_signed()).expect("two")
}

/// Arguments at the edges of every test that any rule makes, in every place.
fn interesting(policy: &Policy) -> Vec<[u64; 6]> {
    let mut values = vec![0, 1, u64::from(u32::MAX), 1 << 32];
    let clauses = policy.rules.iter().flat_map(|rule| rule.clauses);
    for test in clauses.flat_map(|clause: &Clause| clause.any) {
        if let Test::Low { mask, values: allowed, .. } = test {
            values.push(u64::from(*mask));
            values.extend(allowed.iter().map(|&value| u64::from(value)));
        }
    }
    values.sort_unstable();
    values.dedup();
    let mut all = vec![[0; 6]];
    for &value in &values {
        all.push([value; 6]);
        for place in 0..6 {
            let mut one = [0; 6];
            one[place] = value;
            all.push(one);
        }
    }
    all
}

#[test]
fn two_stages_answer_as_one_filter() {
    for machine in [Machine::X86_64, Machine::Aarch64] {
        let policy = policy(Profile::Sealed, FilterOptions::default());
        let whole = compile(&policy, machine);
        let both = stages(&policy, machine);
        let both = [both.first.instructions(), both.second.instructions()];
        let arguments = interesting(&policy);
        let highest = numbers::ALL.iter().filter_map(|call| call.number(machine)).max();
        for number in (0..highest.expect("calls") + 20).chain([0x4000_0000, u32::MAX]) {
            let rules = policy.rules.iter().filter(|rule| rule.number(machine) == Some(number));
            // Arguments matter where a rule looks at them.
            let looked_at = rules.map(|rule| rule.clauses.len()).sum::<usize>() > 0;
            let count = if looked_at { arguments.len() } else { 2 };
            for &arguments in &arguments[..count] {
                let data = Data::native(machine, number, arguments);
                assert_eq!(together(both, &data), run(&whole, &data).0, "{machine:?} {data:?}");
            }
        }
        // The second stage looks at neither: what the first one does with them is all.
        for number in (0..600).flat_map(|number| [number, number | 0x4000_0000]) {
            for architecture in [0, 0x4000_0003, 0x4000_0028, 0xc000_00b7, 0xc000_003e] {
                let data = Data { architecture, ..Data::native(machine, number, [0; 6]) };
                assert_eq!(together(both, &data), run(&whole, &data).0, "{data:?}");
            }
        }
    }
}

#[test]
fn the_first_stage_lets_nothing_through_but_the_set_up() {
    let machine = Machine::NATIVE;
    let policy = policy(Profile::Sealed, FilterOptions::default());
    let whole = compile(&policy, machine);
    let both = stages(&policy, machine);
    let allowed = |program: &[Instruction], number| {
        run(program, &Data::native(machine, number, [0; 6])).0 == 0x7fff_0000
    };
    let mut more = Vec::new();
    for call in numbers::ALL {
        let Some(number) = call.number(machine) else { continue };
        if allowed(both.first.instructions(), number) && !allowed(&whole, number) {
            more.push(*call);
        }
    }
    assert!(!more.is_empty());
    assert!(more.iter().all(|call| SET_UP.contains(call)), "{more:?}");
}
