//! Debian's stock kernels in virtual machines: `tests/vm/run`, as tests. They take minutes, so they run where
//! `TURNJAIL_REQUIRE` names `vm`, and elsewhere says so.

use std::path::Path;
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};

/// As whoever started it: the script makes nothing as root, and the machine drops to an ordinary user.
fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let words = std::env::var("TURNJAIL_REQUIRE").unwrap_or_default();
    let asked = words.split(',').any(|word| word.trim() == "vm");
    if !asked {
        eprintln!("skipped: the virtual machines take minutes (TURNJAIL_REQUIRE does not name vm)");
    }
    let machine = |name: &'static str, what: &'static str| {
        Trial::test(name, move || boot(what)).with_ignored_flag(!asked)
    };
    let trials = vec![
        machine("debians_kernel_runs_the_tests_with_and_without_a_delegated_cgroup", "plain"),
        machine("the_oldest_kernel_runs_the_tests_with_and_without_a_delegated_cgroup", "old"),
        machine("systemd_gives_jails_their_cgroups", "systemd"),
    ];
    // Two machines at once would have half a processor each.
    libtest_mimic::run(&Arguments { test_threads: Some(1), ..arguments }, trials).exit_code()
}

fn boot(machine: &str) -> Result<(), Failed> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("vm/run");
    let status = Command::new(&script).arg(machine).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{} {machine}: {status}", script.display()).into()),
        Err(error) => Err(format!("{} cannot be started: {error}", script.display()).into()),
    }
}
