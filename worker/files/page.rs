//! `files_read`: a page of a text file.

use std::os::fd::AsFd;

use turnjail_protocol::json;
use turnjail_protocol::measure::{char_bytes, json_bytes};

use super::path::FilePath;
use super::tree::open_parent;
use super::{Files, Refusal};
use crate::store::Dir;
use crate::sys::{self, Kind};

/// The largest file that is opened, unless larger ones may be written: bytes. A page needs the file
/// read from its start.
const READ_BYTES: u64 = 16 * 1024 * 1024;

/// Reads the page of `path` that begins at `offset`, has at most `limit` code units, and as the
/// model gets it at most `bytes`.
pub fn read(
    files: &Files<'_>,
    path: &FilePath,
    offset: usize,
    limit: Option<usize>,
    bytes: usize,
) -> Result<String, Refusal> {
    let most = files.limits.max_file_bytes.max(READ_BYTES);
    let content = content(files.workspace, path, most)?;
    let size = content.len();
    let Ok(text) = String::from_utf8(content) else {
        return Ok(format!("{{\"binary\":true,\"size\":{size}}}"));
    };
    Ok(page(&text, offset, limit.unwrap_or(usize::MAX), bytes))
}

/// Reads a whole file of at most `most` bytes: a regular one, opened only if it is.
pub fn content(workspace: &Dir, path: &FilePath, most: u64) -> Result<Vec<u8>, Refusal> {
    let (dir, name) = open_parent(workspace, path)?;
    let failed = |errno| Refusal::of(errno, &path.to_string());
    match sys::stat(dir.as_fd(), name.as_bytes()).map_err(failed)? {
        Kind::File(size) if size > most => return Err(too_large(path, size, most)),
        Kind::File(_) => {}
        Kind::Directory => return Err(Refusal::new(format!("{path} is a directory; list it"))),
        Kind::Other => return Err(not_a_file(path)),
    }
    let file = sys::open_file(dir.as_fd(), name.as_bytes()).map_err(failed)?;
    let Kind::File(size) = sys::stat_open(file.as_fd()).map_err(failed)? else {
        return Err(not_a_file(path));
    };
    sys::read_to_end(file.as_fd(), most as usize).map_err(|error| match error {
        sys::ReadError::TooLarge => too_large(path, size, most),
        sys::ReadError::Errno(errno) => failed(errno),
    })
}

/// What is under `path` is neither a file nor a directory.
pub fn not_a_file(path: &FilePath) -> Refusal {
    Refusal::new(format!("{path} is not a regular file or directory"))
}

fn too_large(path: &FilePath, size: u64, most: u64) -> Refusal {
    Refusal::new(format!("{path} has {size} bytes; at most {most} can be read"))
}

/// The page as JSON. Offsets are in UTF-16 code units; one inside a surrogate pair counts as the
/// pair's start, and a page never ends inside one.
fn page(text: &str, offset: usize, limit: usize, bytes: usize) -> String {
    let mut units = 0;
    let mut total = 0;
    let mut start = text.len();
    let mut from = None;
    for (at, c) in text.char_indices() {
        if from.is_none() && total + c.len_utf16() > offset {
            start = at;
            from = Some(total);
        }
        total += c.len_utf16();
    }
    let from = from.unwrap_or(total);
    let rest = &text[start..];
    // The largest frame: every number is at most the total.
    let frame = json_bytes(&frame("", total, total, Some(total)));
    let mut room = bytes.saturating_sub(frame);
    let mut end = 0;
    for c in rest.chars() {
        let cost = char_bytes_twice(c);
        // The first character counts whole, so that a limit inside a pair makes progress.
        if cost > room || end > 0 && units + c.len_utf16() > limit {
            break;
        }
        room -= cost;
        units += c.len_utf16();
        end += c.len_utf8();
    }
    let next = (end < rest.len()).then_some(from + units);
    self::frame(&rest[..end], from, total, next)
}

fn frame(text: &str, offset: usize, total: usize, next: Option<usize>) -> String {
    let mut out = b"{\"text\":".to_vec();
    json::push_string(&mut out, text);
    out.extend_from_slice(format!(",\"offset\":{offset},\"total\":{total}").as_bytes());
    if let Some(next) = next {
        out.extend_from_slice(format!(",\"nextOffset\":{next}").as_bytes());
    }
    out.push(b'}');
    String::from_utf8(out).expect("JSON is written as UTF-8")
}

/// The bytes that a character takes in JSON in JSON: the page is a string in the result, which is a
/// string in the message.
fn char_bytes_twice(c: char) -> usize {
    match c {
        // \" and \\ become \\\" and \\\\.
        '"' | '\\' => 4,
        // \n becomes \\n, \u0001 becomes \\u0001.
        '\0'..='\u{1f}' => 1 + char_bytes(c),
        _ => char_bytes(c),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use turnjail_protocol::json::{Value, parse};
    use turnjail_protocol::measure::utf16_len;

    fn fields(page: &str) -> (String, usize, Option<usize>) {
        let value = parse(page).unwrap();
        let number = |name: &str| value.get(name).and_then(Value::as_u64).map(|n| n as usize);
        (value["text"].as_str().unwrap().into(), number("total").unwrap(), number("nextOffset"))
    }

    #[test]
    fn an_offset_inside_a_pair_counts_as_its_start() {
        assert_eq!(page("a😀b", 2, 9, 999), r#"{"text":"😀b","offset":1,"total":4}"#);
    }

    #[test]
    fn an_offset_behind_the_end_gives_nothing() {
        assert_eq!(page("ab", 7, 9, 999), r#"{"text":"","offset":2,"total":2}"#);
        assert_eq!(page("", 0, 9, 999), r#"{"text":"","offset":0,"total":0}"#);
    }

    #[test]
    fn a_limit_inside_a_pair_still_makes_progress() {
        assert_eq!(page("😀b", 0, 1, 999), r#"{"text":"😀","offset":0,"total":3,"nextOffset":2}"#);
        assert_eq!(page("a😀b", 0, 2, 999), r#"{"text":"a","offset":0,"total":4,"nextOffset":1}"#);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_cost_of_a_character_is_that_of_json_in_json(c in any::<char>()) {
            let once = json_text(&c.to_string());
            let twice = json_text(&once);
            prop_assert_eq!(char_bytes_twice(c), twice.len() - "\"\\\"\\\"\"".len());
        }

        #[test]
        fn pages_together_are_the_text(
            text in "[\\x00-\\x1f\"\\\\a-cä漢😀]{0,400}", bytes in 150_usize..600, limit in 1_usize..200
        ) {
            let (mut read, mut at) = (String::new(), 0);
            loop {
                let page = page(&text, at, limit, bytes);
                prop_assert!(json_bytes(&page) <= bytes);
                let (part, total, next) = fields(&page);
                prop_assert_eq!(total, utf16_len(&text));
                read.push_str(&part);
                let Some(next) = next else { break };
                prop_assert!(next > at && next == utf16_len(&read));
                at = next;
            }
            prop_assert_eq!(read, text);
        }
    }

    fn json_text(text: &str) -> String {
        let mut out = Vec::new();
        json::push_string(&mut out, text);
        String::from_utf8(out).unwrap()
    }
}
