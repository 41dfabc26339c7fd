//! The sealed profile, call by call.

use libc::EINVAL;

use super::table::{Row, assert_rows, assert_sound, bare, error};
use crate::seccomp::{
    FilterOptions, Profile,
    machine::Machine,
    numbers as call,
    rule::Answer::{Allow, Kill},
    rules,
};

/// Bits that the kernel ignores in a 32 bit argument.
const HIGH: u64 = 0xdead_beef << 32;

const ROWS: &[Row] = &[
    (call::READ, &[0], Allow),
    (call::EXECVE, &[1, 1, 1], Allow),
    (call::OPENAT, &[3, 1, 0o100 | 1, 0o600], Allow),
    (call::OPENAT, &[3, 1, 0, 0o7777], Allow),
    (call::OPENAT, &[3, 1, 0o100 | 1, 0o644], Kill),
    (call::OPENAT, &[3, 1, 0o100 | 1, 0o4600], Kill),
    (call::OPENAT, &[3, 1, 0o20_200_001, 0o700], Kill),
    (call::OPENAT, &[3, 1, HIGH | 0o100, HIGH | 0o2600], Kill),
    (call::OPENAT, &[3, 1, HIGH | 0o100, HIGH | 0o600], Allow),
    (call::MKDIRAT, &[3, 1, 0o700], Allow),
    (call::MKDIRAT, &[3, 1, 0o4700], Kill),
    (call::MKDIRAT, &[3, 1, 0o755], Kill),
    (call::MMAP, &[0, 4096, 3, 0x22], Allow),
    (call::MMAP, &[0, 4096, 0, 0x32], Allow),
    (call::MMAP, &[0, 4096, 3, 0x4022], Allow),
    (call::MMAP, &[0, 4096, 7, 0x22], Kill),
    (call::MMAP, &[0, 4096, HIGH | 5, 0x22], Kill),
    (call::MMAP, &[0, 4096, 3, 0x122], Kill),
    (call::MMAP, &[0, 4096, 1, 0x2], Kill),
    (call::MMAP, &[0, 4096, 3, 0x21], Kill),
    (call::MPROTECT, &[0, 4096, 1], Allow),
    (call::MPROTECT, &[0, 4096, 4], Kill),
    (call::MADVISE, &[0, 4096, 4], Allow),
    (call::MADVISE, &[0, 4096, 100], Kill),
    (call::ARCH_PRCTL, &[0x1002], Allow),
    (call::ARCH_PRCTL, &[0x3001], error(EINVAL)),
    (call::ARCH_PRCTL, &[0x1012], error(EINVAL)),
    (call::PRCTL, &[4, 0], Allow),
    (call::PRCTL, &[HIGH | 4, HIGH], Allow),
    (call::PRCTL, &[4, 1], Kill),
    (call::PRCTL, &[22, 0], Kill),
    (call::PRCTL, &[HIGH + 35, 0], Kill),
    (call::PRLIMIT64, &[0, 3, 0, 1], Allow),
    (call::PRLIMIT64, &[0, 3, 1 << 32, 1], Kill),
    (call::PRLIMIT64, &[0, 3, 1, 1], Kill),
    (call::PRLIMIT64, &[1, 3, 0, 1], Kill),
    (call::SOCKET, &[1, 0x8_0001, 0], Allow),
    (call::SOCKET, &[1, 1, 0], Kill),
    (call::SOCKET, &[1, 0x8_0002, 0], Kill),
    (call::SOCKET, &[1, 0x8_0001, 1], Kill),
    (call::SOCKET, &[2, 0x8_0001, 0], Kill),
    (call::SOCKET, &[HIGH + 16, 0x8_0001, 0], Kill),
    (call::SENDTO, &[3, 1, 1, 0x4000, 0, 0], Allow),
    (call::SENDTO, &[3, 1, 1, 0x4001, 0, 0], Kill),
    (call::SENDTO, &[3, 1, 1, 0x4000, 1, 0], Kill),
    (call::SENDTO, &[3, 1, 1, 0x4000, 1 << 40, 0], Kill),
    (call::RT_SIGACTION, &[6, 1], Allow),
    (call::RT_SIGACTION, &[31, 1], Kill),
    (call::TKILL, &[1, 6], Allow),
    (call::TKILL, &[1, 9], Kill),
    (call::TGKILL, &[1, 1, 6], Allow),
    (call::TGKILL, &[1, 1, HIGH + 9], Kill),
];

#[test]
fn arguments_get_the_answer_of_the_table() {
    assert_rows(Profile::Sealed, false, ROWS);
}

#[test]
fn rules_are_sound() {
    assert_sound(Profile::Sealed, false);
}

#[test]
fn what_is_not_listed_is_death() {
    let rules = rules(Profile::Sealed, &FilterOptions::default());
    for machine in [Machine::X86_64, Machine::Aarch64] {
        let mut listed = 0;
        for number in (0..600).chain([1000, 0x3fff_ffff]) {
            if rules.iter().any(|rule| rule.number(machine) == Some(number)) {
                listed += 1;
                continue;
            }
            assert_eq!(bare(Profile::Sealed, false, machine, number), Kill, "{number}");
        }
        assert!(listed > 10, "hardly anything is listed on {machine:?}");
    }
}

/// Only when it clears a workspace may the worker change a mode, and only to the owner's own.
#[test]
fn modes_are_changed_by_errands_alone() {
    use super::interpreter::{Data, answer};
    use crate::seccomp::{machine::Machine, program_for};
    for machine in [Machine::X86_64, Machine::Aarch64] {
        let number = call::FCHMODAT.number(machine).expect("every machine has it");
        for (clears, mode, wanted) in [
            (false, 0o700, Kill),
            (true, 0o700, Allow),
            (true, HIGH | 0o700, Allow),
            (true, 0o4700, Kill),
            (true, 0o777, Kill),
        ] {
            let options = FilterOptions { clears, ..FilterOptions::default() };
            let filter = program_for(Profile::Sealed, &options, machine);
            let data = Data::native(machine, number, [3, 1, mode, 0, 0, 0]);
            assert_eq!(answer(filter.instructions(), &data), wanted, "{clears} {mode:o}");
        }
    }
}
