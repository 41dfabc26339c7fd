//! The jail holds: what a program inside can see and do, how it ends, and that nothing is left.

use std::process::ExitCode;

use turnjail_tests::jails::Bench;
use turnjail_tests::{Test, harness};

fn main() -> ExitCode {
    harness(&[Test::new("a_program_runs_in_a_sealed_jail", runs)])
}

fn runs() {
    let bench = Bench::new();
    let ended = bench.probe(turnjail_jail::Profile::Sealed, &[]);
    eprintln!("{ended:?} {}", String::from_utf8_lossy(&ended.stdout));
}
