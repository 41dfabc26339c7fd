//! `--format`: the part of Go's templates that programs ask with, `{{.Field}}`, `{{json .Field}}` and
//! `{{index .Map "key"}}` between plain text.

use serde_json::Value;

use super::Done;
use super::failure::Failure;

/// One line for each value.
pub fn lines(format: &str, values: &[Value]) -> Result<Done, Failure> {
    let mut text = String::new();
    // A format is checked even where there is nothing to print.
    let parts = parse(format)?;
    for value in values {
        text += &render(&parts, value)?;
        text.push('\n');
    }
    Ok(Done::said(text))
}

/// The identifiers alone.
pub fn ids(rows: &[Value]) -> Done {
    let ids = rows.iter().filter_map(|row| row["ID"].as_str());
    Done::said(ids.flat_map(|id| [id, "\n"]).collect::<String>())
}

/// A table as Docker prints them: columns of `HEADING:Field`, three blanks between.
pub fn table(rows: &[Value], columns: &[&str]) -> String {
    let columns: Vec<(&str, &str)> =
        columns.iter().filter_map(|column| column.rsplit_once(':')).collect();
    let cell = |row: &Value, field: &str| row[field].as_str().unwrap_or_default().to_owned();
    let width = |(heading, field): &(&str, &str)| {
        let cells = rows.iter().map(|row| cell(row, field).chars().count());
        cells.max().unwrap_or(0).max(heading.len())
    };
    let widths: Vec<usize> = columns.iter().map(width).collect();
    let line = |cells: Vec<String>| {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        padded.collect::<Vec<_>>().join("   ").trim_end().to_owned() + "\n"
    };
    let heading = line(columns.iter().map(|(heading, _)| (*heading).to_owned()).collect());
    let rows =
        rows.iter().map(|row| line(columns.iter().map(|(_, field)| cell(row, field)).collect()));
    heading + &rows.collect::<String>()
}

#[derive(Debug, PartialEq, Eq)]
enum Part<'f> {
    Text(String),
    /// The value at a path, as Go prints it.
    Value(Vec<&'f str>),
    /// The same as JSON.
    Json(Vec<&'f str>),
    /// What a map holds under a key.
    Index(Vec<&'f str>, String),
}

fn parse(format: &str) -> Result<Vec<Part<'_>>, Failure> {
    let mut parts = Vec::new();
    let mut rest = format;
    // What is typed in a shell, where a tab cannot be.
    let plain = |text: &str| Part::Text(text.replace("\\t", "\t").replace("\\n", "\n"));
    while let Some((text, tail)) = rest.split_once("{{") {
        let (action, tail) = tail.split_once("}}").ok_or_else(|| wrong("unclosed action"))?;
        if !text.is_empty() {
            parts.push(plain(text));
        }
        parts.push(action_of(action.trim())?);
        rest = tail;
    }
    if !rest.is_empty() {
        parts.push(plain(rest));
    }
    Ok(parts)
}

fn action_of(action: &str) -> Result<Part<'_>, Failure> {
    let (word, rest) = action.split_once(char::is_whitespace).unwrap_or((action, ""));
    match (word, rest.trim()) {
        ("json", of) => Ok(Part::Json(path(of)?)),
        ("index", of) => {
            let (map, key) = of
                .split_once(char::is_whitespace)
                .ok_or_else(|| wrong("index wants a map and a key"))?;
            let key = key.trim();
            let quoted = |quote| key.strip_prefix(quote).and_then(|key| key.strip_suffix(quote));
            let key = quoted('"').or_else(|| quoted('`'));
            let key = key.filter(|key| !key.contains(['"', '`', '\\']));
            let key = key.ok_or_else(|| wrong("the key of index is a quoted text"))?;
            Ok(Part::Index(path(map)?, key.to_owned()))
        }
        (field, "") if field.starts_with('.') => Ok(Part::Value(path(field)?)),
        _ => Err(wrong(&format!("function {word:?} is not known"))),
    }
}

fn path(text: &str) -> Result<Vec<&str>, Failure> {
    let names = text.strip_prefix('.').ok_or_else(|| wrong(&format!("{text:?} is no field")))?;
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let names: Vec<_> = names.split('.').collect();
    let name = |name: &&str| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    if names.iter().all(name) { Ok(names) } else { Err(wrong(&format!("{text:?} is no field"))) }
}

fn render(parts: &[Part<'_>], value: &Value) -> Result<String, Failure> {
    let mut text = String::new();
    for part in parts {
        match part {
            Part::Text(plain) => text += plain,
            Part::Value(path) => text += &shown(at(value, path)?),
            Part::Json(path) => text += &at(value, path)?.to_string(),
            Part::Index(path, key) => match at(value, path)? {
                Value::Object(map) => text += &map.get(key).map(shown).unwrap_or_default(),
                Value::Null => {}
                _ => return Err(wrong("index wants a map")),
            },
        }
    }
    Ok(text)
}

fn at<'v>(value: &'v Value, path: &[&str]) -> Result<&'v Value, Failure> {
    path.iter().try_fold(value, |value, name| match value.get(name) {
        Some(inner) => Ok(inner),
        None => Err(Failure::plain(format!(
            "template parsing error: template: :1: can't evaluate field {name}"
        ))),
    })
}

/// As Go prints what is no list and no map.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(" "))
        }
        Value::Object(map) => {
            let items = map.iter().map(|(key, value)| format!("{key}:{}", shown(value)));
            format!("map[{}]", items.collect::<Vec<_>>().join(" "))
        }
        other => other.to_string(),
    }
}

fn wrong(what: &str) -> Failure {
    Failure::plain(format!(
        "template parsing error: {what}\n\
         turnjail knows {{{{.Field}}}}, {{{{json .Field}}}} and {{{{index .Map \"key\"}}}}"
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn with(format: &str, value: &Value) -> Result<String, Failure> {
        lines(format, std::slice::from_ref(value))
            .map(|done| String::from_utf8(done.stdout).unwrap().trim_end_matches('\n').to_owned())
    }

    #[test]
    fn formats_that_programs_ask_with_are_answered() {
        let image = json!({
            "Id": "sha256:ab",
            "Config": {"Labels": {"a.b": "2"}, "Cmd": null, "Env": ["A=b", "C=d"]},
            "Size": 5,
        });
        for (format, expected) in [
            ("{{.Id}}", "sha256:ab"),
            ("{{ .Id }} {{.Size}}", "sha256:ab 5"),
            ("{{index .Config.Labels \"a.b\"}}", "2"),
            ("{{ index .Config.Labels \"absent\" }}", ""),
            ("{{index .Config.Cmd \"x\"}}", ""),
            ("{{json .Config.Labels}}", "{\"a.b\":\"2\"}"),
            ("{{.Config.Cmd}}", "<no value>"),
            ("{{.Config.Env}}", "[A=b C=d]"),
            ("a\\tb", "a\tb"),
            ("", ""),
        ] {
            assert_eq!(with(format, &image).expect(format), expected, "{format}");
        }
        assert_eq!(with("{{json .}}", &json!({"a": 1})).unwrap(), "{\"a\":1}");
    }

    #[test]
    fn other_formats_are_errors() {
        for format in [
            "{{.Absent}}",
            "{{range .}}x{{end}}",
            "{{.Id",
            "{{upper .Id}}",
            "{{.Id | json}}",
            "{{index .Config}}",
            "{{index . 1}}",
            "{{..Id}}",
        ] {
            assert!(with(format, &json!({"Id": "x", "Config": {}})).is_err(), "{format}");
        }
    }

    proptest! {
        #[test]
        fn any_format_is_answered_or_refused(format in "[{}a-z. \"\\\\`]{0,30}") {
            let _ = with(&format, &json!({"a": {"b": "c"}}));
        }
    }
}
