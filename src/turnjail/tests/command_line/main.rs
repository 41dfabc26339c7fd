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
mod secrets;
mod signals;
mod turn;
mod workspace;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

use environment::Fact;

/// A test: a name that says what must be true, what the machine must have for it, and the check.
pub struct Test {
    name: &'static str,
    needs: &'static [Fact],
    check: fn(),
}

/// A list of tests that are functions of a module.
#[macro_export]
macro_rules! tests {
    ($needs:expr; $($check:ident),* $(,)?) => {
        &[$($crate::Test { name: stringify!($check), needs: $needs, check: $check }),*]
    };
}

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

/// A test that cannot run here is ignored, so counted, and says why; where `TURNJAIL_REQUIRE` names
/// what is missing, it fails instead.
fn trial(test: &Test) -> Trial {
    let check = test.check;
    match test.needs.iter().find_map(|fact| Some((fact, fact.missing()?))) {
        None => Trial::test(test.name, move || {
            check();
            Ok(())
        }),
        Some((fact, why)) if fact.required() => {
            let message = format!("TURNJAIL_REQUIRE names {}, but {why}", fact.name());
            Trial::test(test.name, move || Err(Failed::from(message)))
        }
        Some((fact, why)) => {
            eprintln!("skipped: {} (needs {}: {why})", test.name, fact.name());
            Trial::test(test.name, || Ok(())).with_ignored_flag(true)
        }
    }
}
