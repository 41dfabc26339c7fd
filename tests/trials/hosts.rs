//! This program again as a host of its own: for what would be in the way of every other test here, such as
//! limits of a whole process, and for surroundings that only a new process can have.

use std::path::Path;
use std::process::{Command, ExitCode, Output, Stdio};

use crate::{deaths, descriptors, mounts, starved};

/// Tells this program to be a host.
pub const AS_HOST: &str = "--as-trial-host";

/// What a host of this program does.
pub fn run(part: &str) -> ExitCode {
    // Before the first thread, where the environment asks for it.
    turnjail_tests::without::take_away();
    match part {
        "slipped" => descriptors::host(),
        "mounted" => mounts::host(),
        "cut-off" => starved::cut_off(),
        "few-files" => starved::few_files(),
        "unwatched" => starved::unwatched(),
        "one-network" => starved::one_network(),
        "three-networks" => starved::three_networks(),
        _ => return deaths::host(part),
    }
    ExitCode::SUCCESS
}

/// Where this program is.
pub fn program() -> std::path::PathBuf {
    std::env::current_exe().expect("this program")
}

/// A host that keeps its files in `home`.
pub fn host(part: &str, home: &Path) -> Command {
    let mut command = Command::new(program());
    // The home stands in the command line, too: by it every process of the host's can be found.
    command.args([AS_HOST, part]).arg(home).env("TMPDIR", home);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// The same after commands of a shell in a user and a mount namespace around it, in which it has no
/// capabilities itself.
pub fn host_after(setup: &str, part: &str, home: &Path) -> Command {
    let script =
        format!("set -e; {setup}\nexec setpriv --inh-caps=-all --ambient-caps=-all -- \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-current-user", "--keep-caps", "--mount"]);
    command.args(["sh", "-c", &script, "sh"]).arg(program()).args([AS_HOST, part]).arg(home);
    command.env("TMPDIR", home).stdin(Stdio::null());
    command
}

/// Runs a host to its end, which must be good.
pub fn assert_good(command: &mut Command, what: &str) {
    let Output { status, stderr, .. } = command.stderr(Stdio::piped()).output().expect("a host");
    assert!(status.success(), "{what}: {status}: {}", String::from_utf8_lossy(&stderr));
}
