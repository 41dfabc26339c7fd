//! A process without some system calls, as on an older kernel or in another's sandbox.

use nix::errno::Errno;
use nix::sys::prctl::set_no_new_privs;
use turnjail_warden::seccomp::Instruction;
use turnjail_warden::seccomp::machine::Machine;
use turnjail_warden::seccomp::numbers::{self, Call};
use turnjail_warden::sys;
use turnjail_warden::wire::Way;

use crate::ways;

/// The calls that this process and its children are to do without: `name` or `name=EPERM`, separated by
/// commas. Without an error it is ENOSYS.
pub const VARIABLE: &str = "TURNJAIL_TEST_WITHOUT";

/// How the names of the tests start that run all others once more.
pub(crate) const PREFIX: &str = "without_";

/// Takes the calls away that the environment names. Before the first thread.
///
/// # Panics
/// When one of them is not known, or no filter can be had.
pub fn take_away() {
    let Ok(list) = std::env::var(VARIABLE) else { return };
    let calls: Vec<(u32, Errno)> = list.split(',').map(call).collect();
    set_no_new_privs().expect("a process may give up privileges");
    sys::install_filter(&filter(&calls)).expect("a filter");
    eprintln!("without {list}");
}

fn call(text: &str) -> (u32, Errno) {
    let (name, errno) = match text.split_once('=') {
        Some((name, "EPERM")) => (name, Errno::EPERM),
        Some(_) => panic!("{text}: only EPERM is known"),
        None => (text, Errno::ENOSYS),
    };
    let known = numbers::ALL.iter().find(|call: &&Call| call.name == name);
    let number = known.and_then(|call| call.number(Machine::NATIVE));
    (number.unwrap_or_else(|| panic!("{name} is no system call")), errno)
}

/// Answers the errors, and lets everything else through.
fn filter(calls: &[(u32, Errno)]) -> Vec<Instruction> {
    const LOAD: u16 = 0x20;
    const IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    let instruction = |code, jf, k| Instruction { code, jt: 0, jf, k };
    let mut program = vec![instruction(LOAD, 0, 0)];
    for &(number, errno) in calls {
        program.push(instruction(IF_EQUAL, 1, number));
        program.push(instruction(RETURN, 0, 0x0005_0000 | errno as u32));
    }
    program.push(instruction(RETURN, 0, 0x7fff_0000));
    program
}

/// Runs the tests of this program that are made in jails which were not prepared, once more without these
/// calls. Those whose controls need what the filter takes, or need there to be no filter, are named to be
/// left out.
///
/// # Panics
/// When one of them fails, or none is run.
pub fn again(calls: &str, left_out: &[&str]) {
    let mut command = once_more(calls);
    command.arg(crate::DIRECT);
    command.args(left_out.iter().chain([&PREFIX]).flat_map(|name| ["--skip", name]));
    let passed = passed(command, calls);
    assert!(passed > 10, "only {passed} tests were run without {calls}");
}

/// Runs those tests of this program once more without these calls that have one of these words in their
/// names, with all jails made in one way.
///
/// # Panics
/// When one of them fails, or one of the words fits none.
pub fn again_some(calls: &str, way: Way, words: &[&str]) {
    let list = once_more("").arg("--list").env_remove(VARIABLE).output();
    let list = String::from_utf8_lossy(&list.expect("it is started again").stdout).into_owned();
    for word in words {
        let known = list.lines().any(|line| line.contains(word));
        assert!(known, "no test is called {word}");
        let mut command = once_more(calls);
        let (name, value) = ways::environment_of(way);
        command.arg(word).args(["--skip", PREFIX]).env(name, value);
        if passed(command, calls) == 0 {
            eprintln!("without {calls}: none of {word} can be run here");
        }
    }
}

fn once_more(calls: &str) -> std::process::Command {
    let mut command = std::process::Command::new(std::env::current_exe().expect("this program"));
    // Jails must be made. What else a filter takes, or this process is no more, is not required again.
    command.env(VARIABLE, calls).env("TURNJAIL_REQUIRE", "jail");
    command
}

/// How many tests passed, of which none failed.
fn passed(mut command: std::process::Command, calls: &str) -> usize {
    let output = command.output().expect("it is started again");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    let passed = text.lines().find_map(|line| {
        line.split_once("test result: ok. ")?.1.split_once(" passed")?.0.parse::<usize>().ok()
    });
    let skips = errors.lines().filter(|line| line.starts_with("skipped"));
    skips.for_each(|line| eprintln!("without {calls}: {line}"));
    passed.unwrap_or_else(|| panic!("{text}{errors}"))
}
