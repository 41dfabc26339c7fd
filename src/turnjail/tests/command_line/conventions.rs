//! What holds for every command: help, errors, exit codes, root.

use super::Test;
use super::environment::{Account, Fact, finish, program, read_terminal, terminal};
use crate::tests;

pub const TESTS: &[Test] = tests![&[];
    help_and_version_are_no_errors,
    nothing_typed_shows_the_help_as_a_mistake,
    a_mistyped_command_is_refused_in_two_lines,
    errors_are_json_where_json_is_wanted,
    the_manual_and_the_completions_name_every_command,
    colours_are_for_terminals_that_want_them,
    output_that_cannot_be_written_is_a_failure,
    help_that_cannot_be_written_is_a_failure,
    an_output_that_is_closed_is_a_failure_before_anything_is_asked,
    a_reader_that_goes_away_is_no_panic,
];
pub const ROOT_TESTS: &[Test] = tests![&[Fact::Root]; root_is_refused_where_a_jail_would_be_made];

const COMMANDS: [&str; 7] = ["demo", "turn", "config", "workspace", "doctor", "completions", "man"];

fn help_and_version_are_no_errors() {
    let account = Account::new();
    let help = account.run(&["--help"]);
    assert_eq!((help.code, help.err.as_str()), (0, ""));
    for word in COMMANDS.into_iter().chain(["Exit codes", "124"]) {
        assert!(help.out.contains(word), "{word}");
    }
    let version = account.run(&["--version"]);
    assert_eq!(version.out, format!("turnjail {}\n", env!("CARGO_PKG_VERSION")));
    assert_eq!(version.code, 0);
}

fn nothing_typed_shows_the_help_as_a_mistake() {
    let run = Account::new().run(&[]);
    assert_eq!(run.code, 2);
    assert!(run.err.contains("Usage:"), "{run:?}");
}

fn a_mistyped_command_is_refused_in_two_lines() {
    let account = Account::new();
    for arguments in
        [&["tur"][..], &["turn"], &["turn", "--chanel", "a", "b"], &["config"], &["demo", "x"]]
    {
        let run = account.run(arguments);
        assert_eq!(run.code, 2, "{arguments:?}");
        if arguments != ["config"] {
            run.assert_refused(2, "");
            assert_eq!(run.err.lines().count(), 2, "{run:?}");
        }
    }
    assert!(account.run(&["tur"]).err.contains("'turn'"));
}

fn errors_are_json_where_json_is_wanted() {
    let account = Account::new();
    for arguments in
        [&["--json", "config", "check"][..], &["turn", "--json", "hi"], &["--json", "tur"]]
    {
        let run = account.run(arguments);
        assert_eq!(run.code, 2);
        let error: serde_json::Value = serde_json::from_str(&run.err).unwrap();
        assert_eq!(error["error"]["exit"], 2);
        assert!(!error["error"]["problems"][0]["remedy"].as_str().unwrap().is_empty());
    }
}

fn the_manual_and_the_completions_name_every_command() {
    let account = Account::new();
    for arguments in [&["man"][..], &["completions", "bash"], &["completions", "fish"]] {
        let run = account.run(arguments);
        assert_eq!(run.code, 0, "{run:?}");
        for word in COMMANDS {
            assert!(run.out.contains(word), "{word} in {arguments:?}");
        }
    }
    // The codes stand in the manual as well.
    assert!(account.run(&["man"]).out.contains("124"));
}

fn colours_are_for_terminals_that_want_them() {
    let account = Account::new();
    account.ask("http://127.0.0.1:9/", "");
    for (variable, value, coloured) in [
        ("LANG", "C", true),
        ("NO_COLOR", "1", false),
        ("NO_COLOR", "", true),
        ("TERM", "dumb", false),
    ] {
        let (terminal, slave) = terminal();
        let mut command = account.command(&["config", "check"]);
        let status =
            command.env("TERM", "xterm").env(variable, value).stdout(slave).status().unwrap();
        drop(command);
        assert!(status.success());
        let shown = read_terminal(&terminal);
        assert!(shown.contains("model.name"), "{shown}");
        assert_eq!(shown.contains('\x1b'), coloured, "{variable}={value}");
    }
}

fn output_that_cannot_be_written_is_a_failure() {
    let account = Account::new();
    let mut command = account.command(&["man"]);
    command.stdout(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    finish(command).assert_refused(1, "standard output cannot be written");
}

fn help_that_cannot_be_written_is_a_failure() {
    let account = Account::new();
    for arguments in [&["--help"][..], &["turn", "--help"], &["--version"]] {
        let mut command = account.command(arguments);
        command.stdout(std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
        finish(command).assert_refused(1, "standard output cannot be written");
    }
}

/// Rust opens /dev/null in the place of a closed stream, where a reply would be lost with exit code 0.
fn an_output_that_is_closed_is_a_failure_before_anything_is_asked() {
    let account = Account::new();
    account.ask("http://127.0.0.1:9/", "");
    for arguments in ["turn hi", "config check", "--help", "doctor", "--json turn hi"] {
        let script = format!("exec \"$0\" {arguments} >&-");
        let mut command = account.command_of_user(std::path::Path::new("sh"), &["-c", &script]);
        command.arg(program());
        let run = finish(command);
        assert_eq!(run.code, 1, "{run:?}");
        assert!(run.err.contains("standard output cannot be written: it is closed"), "{run:?}");
        let script = format!("exec \"$0\" {arguments} >/dev/null");
        let mut control = account.command_of_user(std::path::Path::new("sh"), &["-c", &script]);
        control.arg(program());
        assert!(!finish(control).err.contains("is closed"));
    }
}

fn a_reader_that_goes_away_is_no_panic() {
    let account = Account::new();
    let mut child = account.command(&["completions", "bash"]).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(!err.contains("panicked"), "{err}");
}

fn root_is_refused_where_a_jail_would_be_made() {
    let account = Account::new();
    account.ask("http://127.0.0.1:9/", "");
    for arguments in [&["turn", "hi"][..], &["workspace", "list"], &["doctor"]] {
        let run = finish(account.command_as_is(program(), arguments));
        run.assert_refused(2, "does not run as root");
    }
    // What makes no jail has no reason to refuse.
    let check = finish(account.command_as_is(program(), &["config", "check"]));
    assert_eq!(check.code, 0, "{check:?}");
}
