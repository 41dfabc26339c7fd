//! The filter of a general image's init.

use super::interpreter::{Data, answer, check};
use crate::seccomp::{
    init,
    machine::Machine,
    numbers as call,
    rule::Answer::{Allow, Kill},
};

#[test]
fn it_waits_and_ends_and_nothing_else() {
    let filter = init();
    let program = filter.instructions();
    check(program);
    let allowed = [
        call::READ,
        call::WRITE,
        call::WAIT4,
        call::RT_SIGTIMEDWAIT,
        call::EXIT_GROUP,
        call::RESTART_SYSCALL,
    ];
    let allowed = allowed.map(|call| call.number(Machine::NATIVE));
    for number in 0..600 {
        let wanted = if allowed.contains(&Some(number)) { Allow } else { Kill };
        let data = Data::native(Machine::NATIVE, number, [0; 6]);
        assert_eq!(answer(program, &data), wanted, "{number}");
        let foreign = Data { architecture: 0x4000_0003, ..data };
        assert_eq!(answer(program, &foreign), Kill, "{number} through a foreign door");
    }
}

#[test]
fn it_signals_its_program_and_nobody_else() {
    let filter = init();
    let number = call::KILL.number(Machine::NATIVE).expect("every machine has it");
    for (pid, wanted) in
        [(2_u64, Allow), (0, Kill), (1, Kill), (3, Kill), (u64::from(u32::MAX), Kill)]
    {
        let data = Data::native(Machine::NATIVE, number, [pid, 15, 0, 0, 0, 0]);
        assert_eq!(answer(filter.instructions(), &data), wanted, "{pid}");
    }
}
