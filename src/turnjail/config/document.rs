//! The raw stage: the file exactly as typed, each value with its line. Nothing of the host is touched.

use std::fmt;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Finding;

/// The largest configuration file that is read, in bytes.
pub const FILE_BYTES: usize = 1024 * 1024;

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A line of the configuration file, counted from 1.
    Line(usize),
    /// An environment variable, by its name.
    Environment(String),
    /// An option of the command line, as typed.
    Flag(String),
    /// Nobody said anything: the value that the documentation names.
    Default,
}

/// A value as typed.
#[derive(Debug, Clone, PartialEq)]
pub enum Raw {
    /// A string.
    Text(String),
    /// A whole number; one that does not fit is an error of the file.
    Integer(i64),
    /// A number with a fraction or exponent.
    Float(f64),
    /// `true` or `false`.
    Bool(bool),
    /// An array.
    List(Vec<Item>),
    /// A table, in the order of the file.
    Table(Table),
}

impl Raw {
    /// What it is, in words, for messages: a value itself may be a secret in the wrong place.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "a string",
            Self::Integer(_) => "a whole number",
            Self::Float(_) => "a number",
            Self::Bool(_) => "true or false",
            Self::List(_) => "an array",
            Self::Table(_) => "a table",
        }
    }

    /// The same value in JSON, for what is handed on as JSON (tool schemas, extra request fields).
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Text(text) => text.as_str().into(),
            Self::Integer(number) => (*number).into(),
            Self::Float(number) => (*number).into(),
            Self::Bool(flag) => (*flag).into(),
            Self::List(items) => items.iter().map(|item| item.value.to_json()).collect(),
            Self::Table(table) => serde_json::Value::Object(
                table.0.iter().map(|(key, item)| (key.clone(), item.value.to_json())).collect(),
            ),
        }
    }
}

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// The value.
    pub value: Raw,
    /// Where it was said.
    pub origin: Origin,
}

/// A table in the order of the file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Table(pub Vec<(String, Item)>);

impl Table {
    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&Item> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, item)| item)
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => write!(f, "line {line}"),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Flag(flag) => f.write_str(flag),
            Self::Default => f.write_str("default"),
        }
    }
}

/// Reads TOML text. A syntax error names its line, never the text of the line: it may hold a secret.
pub fn parse(text: &str) -> Result<Table, Finding> {
    let lines = Lines::of(text);
    let table = DeTable::parse(text).map_err(|error| Finding {
        origin: Origin::Line(error.span().map_or(1, |span| lines.number(span.start))),
        cause: format!("this is not TOML: {}", error.message().replace('\n', ", ")),
        remedy: "mend the line; https://toml.io describes the format".to_owned(),
    })?;
    read_table(table.get_ref(), &lines)
}

fn read_table(table: &DeTable<'_>, lines: &Lines) -> Result<Table, Finding> {
    let entries = table.iter().map(|(key, value)| {
        let item = read_value(value, lines, key.span().start)?;
        Ok((key.get_ref().clone().into_owned(), item))
    });
    Ok(Table(entries.collect::<Result<_, _>>()?))
}

/// `at` is where the key starts, which is where a reader looks for a value of many lines.
fn read_value(value: &Spanned<DeValue<'_>>, lines: &Lines, at: usize) -> Result<Item, Finding> {
    let origin = Origin::Line(lines.number(at));
    let unusable = |cause: String, remedy: &str| Finding {
        origin: origin.clone(),
        cause,
        remedy: remedy.to_owned(),
    };
    let raw = match value.get_ref() {
        DeValue::String(text) => Raw::Text(text.clone().into_owned()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map(Raw::Integer)
            .map_err(|_| {
                unusable(
                    "this whole number does not fit in 64 bits".to_owned(),
                    "use a smaller number",
                )
            })?,
        DeValue::Float(number) => number
            .as_str()
            .parse()
            .ok()
            .filter(|number: &f64| number.is_finite())
            .map(Raw::Float)
            .ok_or_else(|| unusable("this number is not finite".to_owned(), "use a number"))?,
        DeValue::Boolean(flag) => Raw::Bool(*flag),
        DeValue::Datetime(_) => {
            return Err(unusable(
                "no setting is a date or time".to_owned(),
                "write it as a string in quotes",
            ));
        }
        DeValue::Array(items) => Raw::List(
            items
                .iter()
                .map(|item| read_value(item, lines, item.span().start))
                .collect::<Result<_, _>>()?,
        ),
        DeValue::Table(table) => Raw::Table(read_table(table, lines)?),
    };
    Ok(Item { value: raw, origin })
}

/// Byte offsets to line numbers.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Self {
        Self(
            text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect(),
        )
    }

    fn number(&self, offset: usize) -> usize {
        self.0.partition_point(|end| *end < offset) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line_of(text: &str, path: &[&str]) -> usize {
        let mut table = parse(text).unwrap();
        for key in &path[..path.len() - 1] {
            let Raw::Table(inner) = table.get(key).unwrap().value.clone() else { panic!("{key}") };
            table = inner;
        }
        let Origin::Line(line) = table.get(path[path.len() - 1]).unwrap().origin else { panic!() };
        line
    }

    #[test]
    fn every_value_knows_its_line() {
        let text = "# note\n[model]\nname = \"m\"\n\nextra = { a = 1 }\nlong = [\n 1,\n]\n";
        assert_eq!(line_of(text, &["model", "name"]), 3);
        assert_eq!(line_of(text, &["model", "extra", "a"]), 5);
        assert_eq!(line_of(text, &["model", "long"]), 6);
    }

    #[test]
    fn a_broken_line_is_named_without_its_text() {
        let error = parse("[model]\napi_key = sk-very-secret\n").unwrap_err();
        assert_eq!(error.origin, Origin::Line(2));
        assert!(!error.cause.contains("sk-very"), "{}", error.cause);
    }

    #[test]
    fn unusable_values_are_findings_not_panics() {
        for text in ["a = 99999999999999999999", "a = nan", "a = inf", "a = 2020-01-01"] {
            assert_eq!(parse(text).unwrap_err().origin, Origin::Line(1), "{text}");
        }
    }

    #[test]
    fn numbers_of_every_base_are_read() {
        let table = parse("a = 0x10\nb = 1_000\nc = -3\nd = 0b11").unwrap();
        let numbers: Vec<_> = table.0.iter().map(|(_, item)| item.value.clone()).collect();
        assert_eq!(numbers, [16, 1000, -3, 3].map(Raw::Integer));
    }

    #[test]
    fn json_keeps_the_order_of_the_file() {
        let table = parse("z = 1\na = [true, 1.5, \"x\"]\n[m]\nk = 2").unwrap();
        let json = serde_json::to_string(&Raw::Table(table).to_json()).unwrap();
        assert_eq!(json, r#"{"z":1,"a":[true,1.5,"x"],"m":{"k":2}}"#);
    }

    #[test]
    fn deep_nesting_is_refused() {
        let text = format!("a = {}{}", "[".repeat(5000), "]".repeat(5000));
        assert!(parse(&text).is_err());
    }
}
