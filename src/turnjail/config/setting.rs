//! One value as found, what its absence means, and the kinds of value that most settings have.

use std::ops::RangeInclusive;

use serde_json::Value;

use super::document::{Origin, Raw};
use super::section::Section;

/// A value as found, before it is said what its absence means.
#[must_use]
pub struct Setting<'s, 'a, T> {
    pub(super) section: &'s Section<'a>,
    pub(super) key: &'static str,
    pub(super) wanted: String,
    /// An error when a value is there and wrong: the finding is already made.
    pub(super) found: Result<Option<(T, Origin)>, ()>,
}

impl<T: Clone + Into<Value>> Setting<'_, '_, T> {
    /// Its value, or the documented default.
    pub fn or(self, default: T) -> T {
        self.or_shown(default, Into::into)
    }

    /// Its value if it is set.
    pub fn optional(self) -> Option<T> {
        let (value, origin) = self.found.ok().flatten().unzip();
        let shown = value.clone().map_or(Value::Null, Into::into);
        self.section.record(self.key, shown, origin.unwrap_or(Origin::Default));
        value
    }

    /// Its value; that it is missing is a finding.
    pub fn required(self) -> Option<T> {
        if let Ok(None) = self.found {
            let name = self.section.name(self.key);
            self.section.find(
                self.section.origin(),
                format_args!("{name} is missing"),
                format_args!("set {name} to {}", self.wanted),
            );
        }
        self.optional()
    }
}

impl<'s, 'a, T: Clone> Setting<'s, 'a, T> {
    /// The same setting read as something else.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Setting<'s, 'a, U> {
        let found = self.found.map(|found| found.map(|(value, origin)| (change(value), origin)));
        Setting { section: self.section, key: self.key, wanted: self.wanted, found }
    }

    /// As [`or`](Self::or) for a value that is shown in its own way.
    pub fn or_shown(self, default: T, show: impl Fn(T) -> Value) -> T {
        let (value, origin) = self.found.ok().flatten().unwrap_or((default, Origin::Default));
        self.section.record(self.key, show(value.clone()), origin);
        value
    }
}

/// The kinds of value that most settings have.
impl<'a> Section<'a> {
    /// A whole number within a range.
    pub fn integer(&self, key: &'static str, range: RangeInclusive<i64>) -> Setting<'_, 'a, i64> {
        let wanted = format!("a whole number from {} to {}", range.start(), range.end());
        self.value(key, wanted, move |raw| match raw {
            Raw::Integer(number) if range.contains(number) => Some(*number),
            _ => None,
        })
    }

    /// A number within a range, whole or not.
    pub fn number(&self, key: &'static str, range: RangeInclusive<f64>) -> Setting<'_, 'a, f64> {
        let wanted = format!("a number from {} to {}", range.start(), range.end());
        self.value(key, wanted, move |raw| {
            let number = match raw {
                Raw::Integer(number) => *number as f64,
                Raw::Float(number) => *number,
                _ => return None,
            };
            range.contains(&number).then_some(number)
        })
    }

    /// `true` or `false`.
    pub fn flag(&self, key: &'static str) -> Setting<'_, 'a, bool> {
        self.value(key, "true or false", |raw| match raw {
            Raw::Bool(flag) => Some(*flag),
            _ => None,
        })
    }

    /// Text that is not empty, at most `max` bytes.
    pub fn text(&self, key: &'static str, max: usize) -> Setting<'_, 'a, String> {
        self.value(key, format!("a string of 1 to {max} bytes"), move |raw| match raw {
            Raw::Text(text) if (1..=max).contains(&text.len()) => Some(text.clone()),
            _ => None,
        })
    }

    /// An array of strings, each not empty and without NUL.
    pub fn texts(&self, key: &'static str) -> Setting<'_, 'a, Vec<String>> {
        self.value(key, "an array of strings, none of them empty", |raw| {
            let Raw::List(items) = raw else { return None };
            let texts = items.iter().map(|item| match &item.value {
                Raw::Text(text) if !text.is_empty() && !text.contains('\0') => Some(text.clone()),
                _ => None,
            });
            texts.collect()
        })
    }

    /// One of a few words.
    pub fn choice<T: Copy + PartialEq>(
        &self,
        key: &'static str,
        words: &[(&'static str, T)],
        default: T,
    ) -> T {
        let names = words.iter().map(|(word, _)| format!("{word:?}")).collect::<Vec<_>>();
        let setting = self.value(key, names.join(" or "), |raw| match raw {
            Raw::Text(text) => words.iter().find(|(word, _)| word == text).map(|(_, value)| *value),
            _ => None,
        });
        setting.or_shown(default, |value| {
            words
                .iter()
                .find(|(_, other)| *other == value)
                .map_or(Value::Null, |(word, _)| (*word).into())
        })
    }
}
