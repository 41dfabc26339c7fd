//! Where a secret comes from. The secret itself is never in the file, on the command line, or shown.

use std::path::PathBuf;

use serde_json::Value;

use super::document::{Item, Origin, Raw, Table};
use super::overlay::variable;
use super::paths::Base;
use super::section::Section;

/// A source of a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// There is none: the server wants no key.
    None,
    /// An environment variable of this process.
    Environment(String),
    /// A file, trimmed, read again when it changes.
    File(PathBuf),
    /// A command's standard output.
    Command(Vec<String>),
}

const WANTED: &str =
    r#"{ env = "NAME" }, { file = "PATH" }, { command = ["PROGRAM", "ARGUMENT"] } or "none""#;

impl SecretSource {
    /// Reads `key`, whose value names a source. Where the variable of the key itself is set
    /// (`TURNJAIL_MODEL_API_KEY`), that variable is the source.
    pub(super) fn read(section: &Section<'_>, key: &'static str, base: &Base<'_>) -> Option<Self> {
        let name = section.name(key);
        let Some(item) = section.lookup(key) else {
            section.find(
                section.origin(),
                format_args!("{name} is missing"),
                format_args!("set {name} to {WANTED}"),
            );
            return None;
        };
        let source = match &item.origin {
            Origin::Environment(_) => Some(Self::Environment(variable(&name))),
            Origin::Flag(_) => {
                section.find(
                    item.origin,
                    format_args!("{name} cannot be set on the command line"),
                    "everybody on this machine can read command lines; use the file or a variable",
                );
                return None;
            }
            _ => Self::of(&item, base),
        };
        if let Some(source) = source {
            section.record(key, source.shown(), item.origin);
            return Some(source);
        }
        let inline = match item.value {
            Raw::Text(_) => "a secret never stands in the file itself; ",
            _ => "",
        };
        section.find(
            item.origin,
            format_args!("{name} names no source of a secret"),
            format_args!("{inline}set {name} to {WANTED}"),
        );
        None
    }

    /// As [`read`](Self::read), and none is wanted where none is named.
    pub(super) fn read_or_none(
        section: &Section<'_>,
        key: &'static str,
        base: &Base<'_>,
    ) -> Option<Self> {
        if section.lookup(key).is_some() {
            return Self::read(section, key, base);
        }
        section.record(key, Self::None.shown(), Origin::Default);
        Some(Self::None)
    }

    /// The source that a value names.
    pub(super) fn of(item: &Item, base: &Base<'_>) -> Option<Self> {
        match &item.value {
            Raw::Text(text) if text == "none" => Some(Self::None),
            Raw::Table(Table(entries)) if entries.len() == 1 => {
                let (key, item) = &entries[0];
                match (key.as_str(), &item.value) {
                    ("env", Raw::Text(name)) => variable_name(name).map(Self::Environment),
                    ("file", Raw::Text(path)) if !path.is_empty() => {
                        base.resolve(path).map(Self::File)
                    }
                    ("command", Raw::List(items)) => argv(items).map(Self::Command),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// The source for people: of a command only the program, since arguments are not ours to show.
    pub fn shown(&self) -> Value {
        match self {
            Self::None => "none".into(),
            Self::Environment(name) => {
                format!("(hidden, from the environment variable {name})").into()
            }
            Self::File(path) => format!("(hidden, from the file {})", path.display()).into(),
            Self::Command(argv) => format!("(hidden, from the command {})", argv[0]).into(),
        }
    }
}

/// A name that an environment can hold.
fn variable_name(name: &str) -> Option<String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let starts = name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
    (starts && name.bytes().all(fits)).then(|| name.to_owned())
}

/// A program and its arguments.
pub(super) fn argv(items: &[Item]) -> Option<Vec<String>> {
    let words = items.iter().map(|item| match &item.value {
        Raw::Text(text) if !text.contains('\0') => Some(text.clone()),
        _ => None,
    });
    let words: Vec<_> = words.collect::<Option<_>>()?;
    words.first().is_some_and(|program| !program.is_empty()).then_some(words)
}
