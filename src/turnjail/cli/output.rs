//! Writing: text for people, JSON for machines, errors in two lines.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use serde_json::{Value, json};

use crate::error::{CliError, Exit};

/// How a piece of text is set off on a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// What matters most in its line.
    Strong,
    /// What can be skipped.
    Faint,
    /// All is well.
    Good,
    /// Something is lost.
    Warning,
    /// Something is wrong.
    Bad,
}

/// Sets text off, or leaves it alone where colours are not wanted.
#[derive(Debug, Clone, Copy)]
pub struct Palette {
    on: bool,
}

impl Palette {
    /// Whether colours are wanted.
    pub fn is_on(self) -> bool {
        self.on
    }

    /// For standard output.
    pub fn of_stdout() -> Self {
        Self { on: colours(io::stdout().is_terminal()) }
    }

    /// For standard error.
    pub fn of_stderr() -> Self {
        Self { on: colours(io::stderr().is_terminal()) }
    }

    /// Without any style.
    #[cfg(test)]
    pub fn plain() -> Self {
        Self { on: false }
    }

    /// The text in its style.
    pub fn paint(self, style: Style, text: &str) -> String {
        let code = match style {
            Style::Strong => "1",
            Style::Faint => "2",
            Style::Good => "32",
            Style::Warning => "33",
            Style::Bad => "31",
        };
        if self.on { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// <https://no-color.org>: any value but an empty one turns colours off.
fn colours(terminal: bool) -> bool {
    let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    terminal && !set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Text from a guest or model, safe for a terminal: control characters other than newline and tab are
/// shown as what they are instead of being sent.
pub fn visible(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut safe, character| {
        match character {
            '\n' | '\t' => safe.push(character),
            character if character.is_control() => {
                let _ = write!(safe, "\\x{:02x}", u32::from(character));
            }
            character => safe.push(character),
        }
        safe
    })
}

/// A reply as it goes to standard output: made visible on a terminal, exact elsewhere.
pub fn print_reply(text: &str) -> Result<ExitCode, CliError> {
    let shown = if io::stdout().is_terminal() { visible(text) } else { text.to_owned() };
    print_line(&shown)
}

/// One line on standard output.
pub fn print_line(text: &str) -> Result<ExitCode, CliError> {
    write_out(format!("{text}\n").as_bytes())
}

/// JSON on standard output, one document with a newline.
pub fn print_json(value: &Value) -> Result<ExitCode, CliError> {
    print_line(&json_text(value))
}

/// JSON text without any raw control character: those above ASCII pass JSON unescaped.
fn json_text(value: &Value) -> String {
    let plain = format!("{value:#}");
    plain.chars().fold(String::with_capacity(plain.len()), |mut text, character| {
        if matches!(character, '\u{7f}'..='\u{9f}') {
            let _ = write!(text, "\\u{:04x}", u32::from(character));
        } else {
            text.push(character);
        }
        text
    })
}

/// Bytes on standard output. A reader that went away ends the command, quietly and not as a success.
pub fn write_out(bytes: &[u8]) -> Result<ExitCode, CliError> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => Err(unwritable(error)),
    }
}

/// What is to be said is lost.
pub fn unwritable(why: impl std::fmt::Display) -> CliError {
    CliError::new(
        Exit::Failed,
        "stdout",
        format_args!("standard output cannot be written: {why}"),
        "give the command an output that stays open and has room",
    )
}

/// Prints an error, two lines a problem, and answers the exit code.
pub fn report(error: &CliError, json: bool) -> ExitCode {
    let text = if json {
        let problems = error
            .problems
            .iter()
            .map(|problem| json!({ "cause": problem.cause, "remedy": problem.remedy }));
        let problems: Vec<_> = problems.collect();
        let exit = error.exit.code();
        json_text(&json!({ "error": { "code": error.code, "exit": exit, "problems": problems } }))
    } else {
        let palette = Palette::of_stderr();
        let lines = error.problems.iter().map(|problem| {
            let (error, remedy) =
                (palette.paint(Style::Bad, "error:"), palette.paint(Style::Good, "remedy:"));
            format!("{error} {}\n{remedy} {}", visible(&problem.cause), visible(&problem.remedy))
        });
        lines.collect::<Vec<_>>().join("\n")
    };
    // Nothing can be said when standard error is closed.
    let _ = writeln!(io::stderr().lock(), "{text}");
    ExitCode::from(error.exit.code())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_and_not_sent() {
        assert_eq!(visible("a\x1b[2Jb\x07\r\u{9b}c\x7f"), "a\\x1b[2Jb\\x07\\x0d\\x9bc\\x7f");
        assert_eq!(visible("line\n\tnext ü 🎲"), "line\n\tnext ü 🎲");
    }

    #[test]
    fn json_has_no_raw_control_character_and_means_the_same() {
        let value = json!({ "text": "a\x1b\u{9b}\x7fb" });
        let text = json_text(&value);
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }

    #[test]
    fn styles_are_left_out_where_not_wanted() {
        assert_eq!(Palette { on: false }.paint(Style::Bad, "x"), "x");
        assert_eq!(Palette { on: true }.paint(Style::Bad, "x"), "\x1b[31mx\x1b[0m");
    }
}
