//! Reads one section of the raw form: each key once, with its allowed range, recording what is in
//! effect and where it came from. Flags win over environment variables, these over the file.

use std::cell::RefCell;
use std::fmt::Display;
use std::ops::RangeInclusive;

use serde_json::Value;

use super::document::{Item, Origin, Raw, Table, parse};
use super::{Effective, Finding};

/// What flags and environment variables say.
#[derive(Debug, Clone, Default)]
pub struct Overlay {
    /// `(key, value, option as typed)`, for example `("limits.memory_mb", "256", "--set")`.
    pub flags: Vec<(String, String, String)>,
    /// `(name, value)` of every environment variable that starts with `TURNJAIL_`.
    pub environment: Vec<(String, String)>,
}

impl Overlay {
    /// Whether a flag or variable is about the section.
    pub fn says_something_of(&self, section: &str) -> bool {
        let prefix = format!("{}_", variable(section));
        self.flags.iter().any(|(key, ..)| key.starts_with(&format!("{section}.")))
            || self.environment.iter().any(|(name, _)| name.starts_with(&prefix))
    }
}

/// Collects what the sections find.
pub struct Reader {
    overlay: Overlay,
    findings: RefCell<Vec<Finding>>,
    effective: RefCell<Vec<Effective>>,
    /// Keys that flags and environment variables may name.
    scalars: RefCell<Vec<String>>,
}

/// One table of the file, or its absence.
pub struct Section<'a> {
    reader: &'a Reader,
    path: String,
    table: Option<&'a Table>,
    origin: Origin,
    known: RefCell<Vec<&'static str>>,
    /// Tables of an array (`[[tools]]`) have no name that a variable could use.
    overlaid: bool,
}

/// An item of an array that may hold both.
pub enum Entry<'a> {
    /// A string, its full name and where it stands.
    Text(String, String, Origin),
    /// A table.
    Section(Section<'a>),
}

/// A value as found, before it is said what its absence means.
#[must_use]
pub struct Setting<'s, 'a, T> {
    section: &'s Section<'a>,
    key: &'static str,
    wanted: String,
    /// An error when a value is there and wrong: the finding is already made.
    found: Result<Option<(T, Origin)>, ()>,
}

impl Reader {
    pub fn new(overlay: Overlay) -> Self {
        Self {
            overlay,
            findings: RefCell::default(),
            effective: RefCell::default(),
            scalars: RefCell::default(),
        }
    }

    /// The file itself as a section.
    pub fn root<'a>(&'a self, table: &'a Table) -> Section<'a> {
        self.at(String::new(), Some(table), Origin::Line(1), true)
    }

    fn at<'a>(
        &'a self,
        path: String,
        table: Option<&'a Table>,
        origin: Origin,
        overlaid: bool,
    ) -> Section<'a> {
        Section { reader: self, path, table, origin, known: RefCell::default(), overlaid }
    }

    pub fn find(&self, origin: Origin, cause: impl Display, remedy: impl Display) {
        let finding = Finding { origin, cause: cause.to_string(), remedy: remedy.to_string() };
        self.findings.borrow_mut().push(finding);
    }

    fn record(&self, key: String, value: Value, origin: Origin) {
        self.effective.borrow_mut().push(Effective { key, value, origin });
    }

    /// The end: flags and variables that named nothing are findings too.
    pub fn finish(self) -> (Vec<Effective>, Vec<Finding>) {
        let scalars = self.scalars.borrow().clone();
        for (key, _, flag) in &self.overlay.flags {
            if !scalars.contains(key) {
                self.find(
                    Origin::Flag(flag.clone()),
                    format_args!("there is no setting {key}"),
                    "`turnjail config check` lists the settings that can be set this way",
                );
            }
        }
        let variables: Vec<_> = scalars.iter().map(|key| variable(key)).collect();
        let sections: Vec<_> = scalars
            .iter()
            .filter_map(|key| key.split_once('.'))
            .map(|(section, _)| format!("{}_", variable(section)))
            .collect();
        for (name, _) in &self.overlay.environment {
            let ours = sections.iter().any(|section| name.starts_with(section));
            if ours && !variables.contains(name) {
                self.find(
                    Origin::Environment(name.clone()),
                    format_args!("the environment variable {name} names no setting"),
                    "unset it, or spell it as `turnjail config check --json` does",
                );
            }
        }
        (self.effective.into_inner(), self.findings.into_inner())
    }
}

/// The environment variable of a key: `limits.memory_mb` is `TURNJAIL_LIMITS_MEMORY_MB`.
pub fn variable(key: &str) -> String {
    format!("TURNJAIL_{}", key.replace('.', "_").to_uppercase())
}

impl<'a> Section<'a> {
    /// Whether the file has this table.
    pub fn present(&self) -> bool {
        self.table.is_some()
    }

    /// Where the table starts.
    pub fn origin(&self) -> Origin {
        self.origin.clone()
    }

    /// The full name of one of its keys.
    pub fn name(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Says that something about this section is wrong.
    pub fn find(&self, origin: Origin, cause: impl Display, remedy: impl Display) {
        self.reader.find(origin, cause, remedy);
    }

    /// Says what is in effect for `key`.
    pub fn record(&self, key: &str, value: Value, origin: Origin) {
        self.reader.record(self.name(key), value, origin);
    }

    /// As [`record`](Self::record) with the full name of the key.
    pub fn record_full(&self, name: String, value: Value, origin: Origin) {
        self.reader.record(name, value, origin);
    }

    /// Whether the table has `key`, by the file alone.
    pub fn has(&self, key: &str) -> bool {
        self.table.is_some_and(|table| table.get(key).is_some())
    }

    /// A key that is known and not looked at.
    pub fn skip(&self, key: &'static str) {
        self.known.borrow_mut().push(key);
    }

    /// The table `key` within this one.
    pub fn section(&self, key: &'static str) -> Section<'a> {
        self.known.borrow_mut().push(key);
        let path = self.name(key);
        match self.table.and_then(|table| table.get(key)) {
            None => self.reader.at(path, None, Origin::Default, self.overlaid),
            Some(Item { value: Raw::Table(table), origin }) => {
                self.reader.at(path, Some(table), origin.clone(), self.overlaid)
            }
            Some(item) => {
                self.wrong(&path, item, "a table");
                self.reader.at(path, None, Origin::Default, self.overlaid)
            }
        }
    }

    /// The tables of the array `key` (`[[tools]]`), numbered from 1 in their names.
    pub fn sections(&self, key: &'static str) -> Vec<Section<'a>> {
        self.known.borrow_mut().push(key);
        let path = self.name(key);
        let Some(item) = self.table.and_then(|table| table.get(key)) else { return Vec::new() };
        let Raw::List(items) = &item.value else {
            self.wrong(&path, item, "an array of tables");
            return Vec::new();
        };
        let tables = items.iter().enumerate().filter_map(|(number, item)| {
            let path = format!("{path}[{}]", number + 1);
            if let Raw::Table(table) = &item.value {
                Some(self.numbered(path, table, item))
            } else {
                self.wrong(&path, item, "a table");
                None
            }
        });
        tables.collect()
    }

    /// The items of the array `key` that may be strings or tables.
    pub fn texts_or_sections(&self, key: &'static str) -> Vec<Entry<'a>> {
        self.known.borrow_mut().push(key);
        let path = self.name(key);
        let Some(item) = self.table.and_then(|table| table.get(key)) else { return Vec::new() };
        let Raw::List(items) = &item.value else {
            self.wrong(&path, item, "an array of strings or tables");
            return Vec::new();
        };
        let entries = items.iter().enumerate().filter_map(|(number, item)| {
            let path = format!("{path}[{}]", number + 1);
            match &item.value {
                Raw::Text(text) => Some(Entry::Text(text.clone(), path, item.origin.clone())),
                Raw::Table(table) => Some(Entry::Section(self.numbered(path, table, item))),
                _ => {
                    self.wrong(&path, item, "a string or a table");
                    None
                }
            }
        });
        entries.collect()
    }

    /// A table of an array: its own span is the first line of what stands in it.
    fn numbered(&self, path: String, table: &'a Table, item: &'a Item) -> Section<'a> {
        let origin = table.0.first().map_or(&item.origin, |(_, first)| &first.origin);
        self.reader.at(path, Some(table), origin.clone(), false)
    }

    /// Looks a key up: flag, variable, file. `read` answers none for a value that is not allowed, and
    /// `wanted` says in words what is.
    pub fn value<T>(
        &self,
        key: &'static str,
        wanted: impl Into<String>,
        read: impl Fn(&Raw) -> Option<T>,
    ) -> Setting<'_, 'a, T> {
        let wanted = wanted.into();
        let found = self.lookup(key).map_or(Ok(None), |item| {
            // What a flag or variable says may be text that only looks like a number.
            let value = read(&item.value).or_else(|| as_text(&item).and_then(|text| read(&text)));
            value.map(|value| Some((value, item.origin.clone()))).ok_or_else(|| {
                self.wrong(&self.name(key), &item, &wanted);
            })
        });
        Setting { section: self, key, wanted, found }
    }

    /// The raw item of a key after overlaying, and that the key is known.
    pub fn lookup(&self, key: &'static str) -> Option<Item> {
        self.known.borrow_mut().push(key);
        let name = self.name(key);
        if self.overlaid {
            self.reader.scalars.borrow_mut().push(name.clone());
            let overlay = &self.reader.overlay;
            if let Some((_, value, flag)) = overlay.flags.iter().rfind(|(key, ..)| *key == name) {
                return Some(typed(value, Origin::Flag(flag.clone())));
            }
            let wanted = variable(&name);
            if let Some((_, value)) = overlay.environment.iter().find(|(key, _)| *key == wanted) {
                return Some(typed(value, Origin::Environment(wanted)));
            }
        }
        self.table.and_then(|table| table.get(key)).cloned()
    }

    /// The keys of a free table, such as extra request fields.
    pub fn entries(&self) -> &'a [(String, Item)] {
        self.table.map_or(&[], |table| &table.0)
    }

    fn wrong(&self, name: &str, item: &Item, wanted: &str) {
        // A text may be a secret in the wrong place, so only numbers are repeated.
        let is = match &item.value {
            Raw::Integer(number) => number.to_string(),
            Raw::Float(number) => number.to_string(),
            other => other.kind().to_owned(),
        };
        self.find(
            item.origin.clone(),
            format_args!("{name} is {is}, which is not allowed"),
            format_args!("set {name} to {wanted}"),
        );
    }

    /// Every key that nobody asked for is a finding.
    pub fn finish(self) {
        let known = self.known.borrow();
        for (key, item) in self.entries() {
            if !known.contains(&key.as_str()) {
                let place = if self.path.is_empty() { "the file" } else { self.path.as_str() };
                self.find(
                    item.origin.clone(),
                    format_args!("{place} has no setting {:?}", shorten(key)),
                    format_args!("remove it; the settings of {place} are {}", known.join(", ")),
                );
            }
        }
    }
}

/// A pasted secret must not come back whole in a message, nor break its line.
fn shorten(key: &str) -> String {
    if key.chars().count() <= 32 {
        key.to_owned()
    } else {
        format!("{}...", key.chars().take(8).collect::<String>())
    }
}

/// What a flag or variable says, read as TOML where it is TOML, else as text.
fn typed(value: &str, origin: Origin) -> Item {
    let raw = parse(&format!("value = {value}"))
        .ok()
        .filter(|table| table.0.len() == 1)
        .and_then(|table| table.0.into_iter().next())
        .map_or_else(|| Raw::Text(value.to_owned()), |(_, item)| item.value);
    Item { value: raw, origin }
}

fn as_text(item: &Item) -> Option<Raw> {
    if matches!(item.origin, Origin::Line(_) | Origin::Default) {
        return None;
    }
    match &item.value {
        Raw::Integer(number) => Some(Raw::Text(number.to_string())),
        Raw::Float(number) => Some(Raw::Text(number.to_string())),
        Raw::Bool(flag) => Some(Raw::Text(flag.to_string())),
        _ => None,
    }
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
                self.section.origin.clone(),
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
