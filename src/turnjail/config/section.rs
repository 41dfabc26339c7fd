//! Reads one section of the raw form: each key once, with its allowed range, recording what is in
//! effect and where it came from. Flags win over environment variables, these over the file.

use std::cell::RefCell;
use std::fmt::Display;

use serde_json::Value;

use super::document::{Item, Origin, Raw, Table};
use super::overlay::{Overlay, as_text, variable};
use super::setting::Setting;
use super::{Effective, Finding};

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

    /// The findings so far, where only a part of the settings was read.
    pub fn findings(self) -> Vec<Finding> {
        self.findings.into_inner()
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

    /// Every table in this one, by names that are the file's own; what is no table is a finding.
    pub fn named_sections(&self) -> Vec<(String, Section<'a>)> {
        let named = self.entries().iter().filter_map(|(key, item)| {
            let path = format!("{}[{:?}]", self.path, shorten(key));
            let Raw::Table(table) = &item.value else {
                self.wrong(&path, item, "a table");
                return None;
            };
            Some((key.clone(), self.reader.at(path, Some(table), item.origin.clone(), false)))
        });
        named.collect()
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
            if let Some(item) = self.reader.overlay.lookup(&name) {
                return Some(item);
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
