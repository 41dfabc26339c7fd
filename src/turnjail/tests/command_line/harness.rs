//! Tests that say what they need, and skips that say why.

use libtest_mimic::{Failed, Trial};

use super::environment::Fact;

/// A test: a name that says what must be true, what the machine must have for it, and the check.
pub struct Test {
    /// What must be true.
    pub name: &'static str,
    /// What the machine must have.
    pub needs: &'static [Fact],
    /// The check.
    pub check: fn(),
}

/// A list of tests that are functions of a module.
#[macro_export]
macro_rules! tests {
    ($needs:expr; $($check:ident),* $(,)?) => {
        &[$($crate::Test { name: stringify!($check), needs: $needs, check: $check }),*]
    };
}

/// A test that cannot run here is ignored, so counted, and says why; where `TURNJAIL_REQUIRE` names
/// what is missing, it fails instead.
pub fn trial(test: &Test) -> Trial {
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
