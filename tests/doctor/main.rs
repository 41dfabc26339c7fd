//! `turnjail doctor` where something is in the way: the right verdict, the right remedy, the right exit
//! code, and a start that says the same.
//!
//! - `outer`: real obstacles, each made around the program without touching the host: an outer seccomp
//!   filter, an outer user namespace with its own limits and mounts, a chroot, bubblewrap
//! - `process`: what the process itself has: resource limits, a tracer, capabilities, groups
//! - `filters`: the filters for that
//! - `noexec`: places where no program may be started
//! - `nested`: inside a jail of turnjail's own; what only a process can bring about
//! - `judge`: what a verdict must be, and that a start agrees
//! - `evidence`: hosts that this one cannot be made into, from files of theirs laid out

#[path = "../../src/turnjail/tests/command_line/environment.rs"]
#[allow(dead_code, reason = "each test program uses its part of what they share")]
mod environment;
mod evidence;
mod filters;
#[path = "../../src/turnjail/tests/command_line/harness.rs"]
mod harness;
mod judge;
mod nested;
mod noexec;
mod outer;
mod process;

use std::process::ExitCode;

use libtest_mimic::Arguments;

pub use harness::Test;

fn main() -> ExitCode {
    // This program again, to start another under a filter, or as a host of its own.
    if let Some(exit) = filters::asked().or_else(nested::asked) {
        return exit;
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(2);
    let _installed = environment::install();
    let _helper = filters::install();
    let tests = [
        outer::FILTERED,
        outer::NAMESPACES,
        outer::SURROUNDED,
        process::TESTS,
        process::ROOT_TESTS,
        noexec::TESTS,
        nested::TESTS,
        nested::ROOT_TESTS,
        evidence::TESTS,
    ];
    let tests = tests.into_iter().flatten();
    let trials = tests.map(harness::trial).chain([process::traced()]).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}
