//! What the kernel does with a filter: the checks when it is attached, and running it.
//!
//! It knows the instructions that seccompiler emits too, so that its programs can be compared.

use crate::seccomp::{
    assemble::{Instruction, return_value},
    machine::Machine,
    rule::Answer,
};

/// One call as the kernel describes it to a filter.
#[derive(Debug, Clone, Copy)]
pub(super) struct Data {
    pub number: u32,
    pub architecture: u32,
    pub arguments: [u64; 6],
}

impl Data {
    /// A call through the native door of `machine`.
    pub(super) fn native(machine: Machine, number: u32, arguments: [u64; 6]) -> Self {
        Self { number, architecture: machine.audit_architecture(), arguments }
    }

    fn word(&self, offset: u32) -> u32 {
        match offset {
            0 => self.number,
            4 => self.architecture,
            // The instruction pointer, which no filter of ours may look at.
            8 | 12 => 0xdead_beef,
            _ => {
                let argument = self.arguments[(offset as usize - 16) / 8];
                (if offset.is_multiple_of(8) { argument } else { argument >> 32 }) as u32
            }
        }
    }
}

/// The value a filter returns and how many instructions it took.
pub(super) fn run(program: &[Instruction], data: &Data) -> (u32, usize) {
    let mut accumulator = 0_u32;
    let mut at = 0;
    for steps in 1.. {
        let Instruction { code, jt, jf, k } = program[at];
        at += 1;
        let mut jump = |condition: bool| at += usize::from(if condition { jt } else { jf });
        match code {
            0x20 => accumulator = data.word(k),
            0x54 => accumulator &= k,
            0x05 => at += k as usize,
            0x15 => jump(accumulator == k),
            0x25 => jump(accumulator > k),
            0x35 => jump(accumulator >= k),
            0x45 => jump(accumulator & k != 0),
            0x06 => return (k, steps),
            _ => panic!("instruction {code:#x} is unknown"),
        }
    }
    unreachable!()
}

/// The answer of a filter of ours.
pub(super) fn answer(program: &[Instruction], data: &Data) -> Answer {
    let (value, _) = run(program, data);
    let answer = match value {
        0x7fff_0000 => Answer::Allow,
        0x8000_0000 => Answer::Kill,
        other => Answer::Errno(other as u16),
    };
    assert_eq!(return_value(answer), value, "an answer that no policy has");
    answer
}

/// Panics where the kernel would refuse the program: wrong instructions, loads outside the data,
/// jumps beyond the end, an end that is no return.
pub(super) fn check(program: &[Instruction]) {
    assert!(!program.is_empty() && program.len() <= 4096, "{} instructions", program.len());
    for (at, instruction) in program.iter().enumerate() {
        let left = program.len() - at - 1;
        match instruction.code {
            0x20 => assert!(instruction.k.is_multiple_of(4) && instruction.k < 64, "load at {at}"),
            0x05 => assert!((instruction.k as usize) < left, "jump at {at}"),
            0x15 | 0x25 | 0x35 | 0x45 => {
                assert!(usize::from(instruction.jt.max(instruction.jf)) < left, "branch at {at}");
            }
            0x54 | 0x06 => {}
            code => panic!("instruction {code:#x} at {at}"),
        }
    }
    assert_eq!(program[program.len() - 1].code, 0x06, "the last instruction is no return");
}
