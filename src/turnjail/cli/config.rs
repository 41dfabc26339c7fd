//! `turnjail config check`: what is in effect, and where it came from.

use std::fmt::Write as _;
use std::process::ExitCode;

use serde_json::{Value, json};

use super::arguments::Common;
use super::output::{Palette, Style, print_json, visible, write_out};
use crate::config::{Config, Effective, Origin};
use crate::error::CliError;

/// Checks the configuration whole and prints it with secrets hidden.
pub fn check(common: &Common) -> Result<ExitCode, CliError> {
    let config = common.load()?;
    super::session::check_config(&config)?;
    super::places::check(&config)?;
    if common.json { print_json(&as_json(&config)) } else { write_out(as_text(&config).as_bytes()) }
}

fn as_json(config: &Config) -> Value {
    let settings = config.effective.iter().map(|one| {
        let (kind, detail) = match &one.origin {
            Origin::Line(line) => ("file", json!(line)),
            Origin::Environment(name) => ("environment", json!(name)),
            Origin::Flag(flag) => ("flag", json!(flag)),
            Origin::Default => ("default", Value::Null),
        };
        json!({
            "key": one.key,
            "value": one.value,
            "from": kind,
            "at": detail,
            "variable": variable_of(one),
        })
    });
    json!({
        "ok": true,
        "file": config.file.display().to_string(),
        "settings": settings.collect::<Vec<_>>(),
    })
}

/// The variable that sets it, where there is one.
fn variable_of(one: &Effective) -> Option<String> {
    let named = !one.key.contains('[') && one.key.matches('.').count() == 1;
    named.then(|| crate::config::variable(&one.key))
}

fn as_text(config: &Config) -> String {
    let palette = Palette::of_stdout();
    let width = config.effective.iter().map(|one| one.key.len()).max().unwrap_or(0);
    let mut text = format!("{} is valid; in effect is\n", config.file.display());
    for one in &config.effective {
        let value = match &one.value {
            Value::Null => palette.paint(Style::Faint, "not set"),
            value => visible(&shorten(&value.to_string())),
        };
        let origin = match &one.origin {
            Origin::Default => palette.paint(Style::Faint, "default"),
            origin => origin.to_string(),
        };
        let _ = writeln!(text, "  {:width$}  {value}  # {origin}", one.key);
    }
    text
}

/// A long prompt or schema is shown by its beginning.
fn shorten(text: &str) -> String {
    const LONGEST: usize = 100;
    if text.chars().count() <= LONGEST {
        return text.to_owned();
    }
    format!(
        "{}... ({} characters)",
        text.chars().take(LONGEST).collect::<String>(),
        text.chars().count()
    )
}
