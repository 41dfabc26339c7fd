//! What the integration tests share: an ordinary user to run as, honest skips, and jails to put things
//! in.
//!
//! The tests make real jails, which root never does. Started as root, a test program drops to an
//! ordinary uid before its first thread ([`harness`]); so the same command works for everybody.

mod account;
pub mod acts;
pub mod archive;
pub mod compare;
pub mod engine;
mod facts;
pub mod general;
pub mod image_checks;
pub mod jails;
pub mod model;
mod program;
pub mod roots;
pub mod script;
pub mod vectors;
pub mod ways;
pub mod without;
mod word;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use turnjail_warden::wire::Way;

pub use account::ordinary;
pub use facts::Fact;
pub use program::program;
pub use word::unique_word;

/// A test of this package: a name that says what must be true, what the machine must have for it, and
/// the check.
#[derive(Clone, Copy)]
pub struct Test {
    name: &'static str,
    needs: &'static [Fact],
    check: fn(),
}

impl Test {
    /// A test that any machine with jails can run.
    pub const fn new(name: &'static str, check: fn()) -> Self {
        Self { name, needs: &[Fact::Jail], check }
    }

    /// A test with its own needs.
    pub const fn with(name: &'static str, needs: &'static [Fact], check: fn()) -> Self {
        Self { name, needs, check }
    }

    /// The trial for the harness. One that cannot run here is ignored, so counted, and says why; where
    /// `TURNJAIL_REQUIRE` names what is missing, it fails instead.
    fn trial(&self, name: &str, way: Way) -> Trial {
        let act = self.check;
        let check = move || ways::by(way, act);
        let missing = self.needs.iter().find_map(|fact| Some((fact, fact.missing()?)));
        match missing {
            None => Trial::test(name, move || {
                check();
                Ok(())
            }),
            Some((fact, why)) if fact.required() => {
                let message = format!("TURNJAIL_REQUIRE names {}, but {why}", fact.name());
                Trial::test(name, move || Err(Failed::from(message)))
            }
            Some((fact, why)) => {
                eprintln!("skipped: {name} (needs {}: {why})", fact.name());
                Trial::test(name, || Ok(())).with_ignored_flag(true)
            }
        }
    }
}

/// The `main` of a test program: drops root, then runs the tests.
pub fn harness(tests: &[Test]) -> ExitCode {
    run(tests, |tests| tests.iter().map(|test| test.trial(test.name, Way::Any)).collect())
}

/// What stands after the name of a test in jails that were not prepared.
pub(crate) const DIRECT: &str = "__direct";

/// The same with each test run twice: in jails that were prepared before their plans were known, as most
/// are, and, with `__direct` after its name, in jails that were not.
pub fn harness_both_ways(tests: &[Test]) -> ExitCode {
    let both = |test: &Test| {
        let direct = format!("{}{DIRECT}", test.name);
        if test.name.starts_with(without::PREFIX) {
            return vec![test.trial(test.name, Way::Any)];
        }
        vec![test.trial(test.name, Way::Prepared), test.trial(&direct, Way::Direct)]
    };
    run(tests, |tests| tests.iter().flat_map(both).collect())
}

fn run(tests: &[Test], trials: impl FnOnce(&[Test]) -> Vec<Trial>) -> ExitCode {
    let mut arguments = Arguments::from_args();
    if !arguments.list && tests.iter().any(|test| test.needs.contains(&Fact::Docker)) {
        engine::start();
    }
    account::leave_root();
    without::take_away();
    // Jails of two tests at once share nothing, but a machine with two cores has no room for more.
    arguments.test_threads.get_or_insert(2);
    libtest_mimic::run(&arguments, trials(tests)).exit_code()
}
