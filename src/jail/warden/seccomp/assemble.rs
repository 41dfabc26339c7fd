//! A small assembler for classic BPF programs, as the kernel's seccomp takes them.
//!
//! Programs are put together from their end: what an instruction jumps to is always there already, so
//! every distance is known. A conditional jump reaches at most 255 instructions; where the target
//! lies further away, a stepping stone is put in between. It never emits a backward jump: BPF has
//! none.

use super::rule::Answer;

/// One BPF instruction, laid out as the kernel's `struct sock_filter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Instruction {
    /// What to do.
    pub code: u16,
    /// How many instructions to skip when the condition holds.
    pub jt: u8,
    /// How many instructions to skip when it does not.
    pub jf: u8,
    /// The operand.
    pub k: u32,
}

/// Loads the 32 bit word at offset `k` of `struct seccomp_data`.
pub(super) const LOAD: u16 = 0x20;
/// Keeps only the bits of `k`.
pub(super) const AND: u16 = 0x54;
/// Skips `k` instructions.
pub(super) const JUMP: u16 = 0x05;
/// Jumps when the accumulator is `k`.
pub(super) const JUMP_EQUAL: u16 = 0x15;
/// Jumps when the accumulator is `k` or more.
pub(super) const JUMP_AT_LEAST: u16 = 0x35;
/// Ends the program with the answer `k`.
pub(super) const RETURN: u16 = 0x06;

/// `SECCOMP_RET_*` with its data.
pub(super) const fn return_value(answer: Answer) -> u32 {
    match answer {
        Answer::Allow => 0x7fff_0000,
        Answer::Errno(errno) => 0x0005_0000 | errno as u32,
        Answer::Kill => 0x8000_0000,
    }
}

/// A place in the program: how many instructions lie between it and the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Label(usize);

/// A program that grows from its end.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    reversed: Vec<Instruction>,
}

impl Assembler {
    /// Ends the program with `answer`. An equal end within reach is used again.
    pub(super) fn answer(&mut self, answer: Answer) -> Label {
        let end = Instruction { code: RETURN, jt: 0, jf: 0, k: return_value(answer) };
        // Half of what a jump reaches leaves room for what the caller puts in front.
        let near = self.reversed.len().saturating_sub(128);
        match self.reversed[near..].iter().rposition(|&known| known == end) {
            Some(position) => Label(near + position),
            None => self.push(end),
        }
    }

    /// Loads a word of `struct seccomp_data` and goes on at `next`.
    pub(super) fn load(&mut self, offset: u32, next: Label) -> Label {
        self.step(LOAD, offset, next)
    }

    /// Masks the accumulator and goes on at `next`.
    pub(super) fn and(&mut self, mask: u32, next: Label) -> Label {
        self.step(AND, mask, next)
    }

    /// Goes to `yes` when the accumulator is `value`, else to `no`.
    pub(super) fn if_equal(&mut self, value: u32, yes: Label, no: Label) -> Label {
        self.branch(JUMP_EQUAL, value, yes, no)
    }

    /// Goes to `yes` when the accumulator is `value` or more, else to `no`.
    pub(super) fn if_at_least(&mut self, value: u32, yes: Label, no: Label) -> Label {
        self.branch(JUMP_AT_LEAST, value, yes, no)
    }

    /// The finished program, which starts at `entry`.
    pub(super) fn finish(mut self, entry: Label) -> Vec<Instruction> {
        self.fall_through_to(entry);
        self.reversed.reverse();
        self.reversed
    }

    fn step(&mut self, code: u16, k: u32, next: Label) -> Label {
        self.fall_through_to(next);
        self.push(Instruction { code, jt: 0, jf: 0, k })
    }

    fn branch(&mut self, code: u16, k: u32, yes: Label, no: Label) -> Label {
        // Bringing `no` near may put one more instruction in front of `yes`.
        let yes = self.bring_near(yes, 1);
        let no = self.bring_near(no, 0);
        let (jt, jf) = (self.distance(yes) as u8, self.distance(no) as u8);
        self.push(Instruction { code, jt, jf, k })
    }

    /// A label that a branch reaches even when `slack` more instructions come before it.
    fn bring_near(&mut self, target: Label, slack: usize) -> Label {
        if u8::try_from(self.distance(target) + slack).is_ok() {
            return target;
        }
        let instruction = self.reversed[target.0];
        if instruction.code == RETURN {
            return self.push(instruction);
        }
        let k = self.distance(target) as u32;
        self.push(Instruction { code: JUMP, jt: 0, jf: 0, k })
    }

    fn fall_through_to(&mut self, next: Label) {
        let k = self.distance(next) as u32;
        if k > 0 {
            self.push(Instruction { code: JUMP, jt: 0, jf: 0, k });
        }
    }

    /// How many instructions lie between the next one to be put in front and `target`.
    fn distance(&self, target: Label) -> usize {
        self.reversed.len() - 1 - target.0
    }

    fn push(&mut self, instruction: Instruction) -> Label {
        self.reversed.push(instruction);
        Label(self.reversed.len() - 1)
    }
}
