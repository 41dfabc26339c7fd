//! The program `turnjail` as a process, as its users meet it: what it prints, how it exits, what it
//! leaves behind.
//!
//! Started as root, the commands under test run as an ordinary user all the same, and what only root
//! can try is tried too.

mod configuration;
mod conventions;
mod demo;
mod doctor;
mod endpoint;
mod environment;
mod harness;
mod secrets;
mod signals;
mod turn;
mod workspace;

use std::process::ExitCode;

use libtest_mimic::Arguments;

pub use harness::Test;
use harness::trial;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(2);
    let _installed = environment::install();
    let lists: [&[Test]; 8] = [
        configuration::TESTS,
        conventions::TESTS,
        demo::TESTS,
        doctor::TESTS,
        secrets::TESTS,
        signals::TESTS,
        turn::TESTS,
        workspace::TESTS,
    ];
    let tests = lists.into_iter().chain([demo::ROOT_TESTS, conventions::ROOT_TESTS]).flatten();
    libtest_mimic::run(&arguments, tests.map(trial).collect()).exit_code()
}
