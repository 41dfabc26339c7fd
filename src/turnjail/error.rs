//! What goes wrong at the command line: one line cause, one line remedy, one documented exit code.

use std::fmt::Display;

/// The exit codes of every command, as `turnjail --help` documents them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// 1: the turn failed, or its reply says that it is not ok.
    Failed = 1,
    /// 2: the command line or the configuration is wrong.
    Usage = 2,
    /// 3: refused because the channel or the queue is busy, or because the turn was stopped.
    Busy = 3,
    /// 4: this host cannot run jails.
    CannotJail = 4,
    /// 5: this host can run jails, but a required policy is not met.
    PolicyUnmet = 5,
    /// 124: the turn's time was used up.
    Timeout = 124,
    /// 130: ended by Ctrl-C (SIGINT).
    Interrupted = 130,
    /// 143: ended by SIGTERM or SIGHUP.
    Terminated = 143,
}

impl Exit {
    /// The number that the process ends with.
    pub fn code(self) -> u8 {
        self as u8
    }
}

/// One problem: what happened, naming the object, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// One line: what happened and to what.
    pub cause: String,
    /// One line: what to do.
    pub remedy: String,
}

/// Why a command did not succeed. Printed once, by `main`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .problems.first().map_or("", |problem| problem.cause.as_str()))]
pub struct CliError {
    /// Every problem found; a configuration can have several.
    pub problems: Vec<Problem>,
    /// How the process ends.
    pub exit: Exit,
    /// A stable word for `--json`.
    pub code: String,
}

impl CliError {
    /// One problem with its exit code. `code` is a stable word for machines.
    pub fn new(exit: Exit, code: &str, cause: impl Display, remedy: impl Display) -> Self {
        let problem = Problem { cause: one_line(cause), remedy: one_line(remedy) };
        Self { problems: vec![problem], exit, code: code.to_owned() }
    }

    /// A mistake on the command line.
    pub fn usage(cause: impl Display, remedy: impl Display) -> Self {
        Self::new(Exit::Usage, "usage", cause, remedy)
    }
}

/// Causes come from many places; a line break in one would break the rule of one line each.
fn one_line(text: impl Display) -> String {
    let text = text.to_string();
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.fold(String::new(), |joined, line| match joined.as_str() {
        "" => line.to_owned(),
        before if before.ends_with(':') => format!("{joined} {line}"),
        _ => format!("{joined}; {line}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_of_many_lines_becomes_one() {
        let error = CliError::usage("first\n  second\n", "do\nthis");
        assert_eq!(error.problems[0].cause, "first; second");
        assert_eq!(error.problems[0].remedy, "do; this");
        assert_eq!(error.to_string(), "first; second");
        assert_eq!(CliError::usage("missing:\n  <TEXT>\n", "").to_string(), "missing: <TEXT>");
    }

    #[test]
    fn exit_codes_are_the_documented_numbers() {
        let all = [
            Exit::Failed,
            Exit::Usage,
            Exit::Busy,
            Exit::CannotJail,
            Exit::PolicyUnmet,
            Exit::Timeout,
            Exit::Interrupted,
            Exit::Terminated,
        ];
        assert_eq!(all.map(Exit::code), [1, 2, 3, 4, 5, 124, 130, 143]);
    }
}
