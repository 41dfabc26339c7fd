//! Pages of a text that fit a tool's result as the worker measures it.

use turnjail_protocol::json::{self, Value};
use turnjail_protocol::measure::{char_bytes, json_bytes, utf16_len};

/// One page of `text` from `offset` (UTF-16 code units), with a first line that says where it lies in
/// the whole and where the next one begins. The result fits `limit` bytes as [`encoded_bytes`] counts.
pub(super) fn page(title: &str, text: &str, offset: usize, limit: usize) -> String {
    let total = utf16_len(text);
    let (skipped, start) = skip(text, offset);
    let rest = &text[start..];
    if rest.is_empty() && offset > 0 {
        return format!("{title}: offset {offset} is past the end; it has {total} characters.");
    }
    // The numbers of the first line are known only after the cut; these are as long as any.
    let longest_head = head(title, total, total, total + 1);
    let room = limit.saturating_sub(encoded_bytes(&longest_head));
    let (units, bytes) = fitting(rest, room);
    let end = skipped + units;
    format!("{}{}", head(title, skipped, end, total), &rest[..bytes])
}

/// The bytes of a tool's result as the worker measures it: the broker's answer `{"text": ...}` is
/// itself a string to the model, so that the text is JSON inside JSON.
pub(super) fn encoded_bytes(result: &str) -> usize {
    let answer: json::Map<String, Value> =
        [("text".to_owned(), Value::from(result))].into_iter().collect();
    json_bytes(&json::stringify(&Value::Object(answer)))
}

fn head(title: &str, from: usize, to: usize, total: usize) -> String {
    let next = if to < total { format!("next offset: {to}") } else { "complete".to_owned() };
    format!("[{title}: characters {from} to {to} of {total}; {next}]\n")
}

/// How many units of the text are skipped for an offset, and the byte where the rest begins. An offset
/// within a character counts as that character's own.
fn skip(text: &str, offset: usize) -> (usize, usize) {
    let mut units = 0;
    for (byte, character) in text.char_indices() {
        if units + character.len_utf16() > offset {
            return (units, byte);
        }
        units += character.len_utf16();
    }
    (units, text.len())
}

/// The longest prefix within `room`, in units and in bytes. At least one character, so that reading on
/// always ends.
fn fitting(text: &str, room: usize) -> (usize, usize) {
    let (mut size, mut units) = (0, 0);
    for (byte, character) in text.char_indices() {
        size += twice_encoded(character);
        if size > room && units > 0 {
            return (units, byte);
        }
        units += character.len_utf16();
    }
    (units, text.len())
}

/// The bytes of a character in a JSON string that is itself in a JSON string.
fn twice_encoded(character: char) -> usize {
    match (character, char_bytes(character)) {
        ('"' | '\\', _) => 4,
        // A backslash and a letter: the backslash doubles.
        (..='\u{1f}', 2) => 3,
        (..='\u{1f}', _) => 7,
        (_, bytes) => bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_counts_as_it_is_encoded_twice() {
        let empty = encoded_bytes("");
        let characters = (0..=0x2ff).chain([0x2028, 0x2029, 0xfeff, 0x1f600, 0x10_ffff]);
        for character in characters.filter_map(char::from_u32) {
            let real = encoded_bytes(&character.to_string()) - empty;
            assert_eq!(twice_encoded(character), real, "{character:?}");
        }
    }

    /// Reads a whole text page by page, as a model would.
    fn read(text: &str, limit: usize) -> (String, usize) {
        let (mut read, mut pages, mut offset) = (String::new(), 0, 0);
        loop {
            let page = page("t", text, offset, limit);
            assert!(encoded_bytes(&page) <= limit, "{} bytes", encoded_bytes(&page));
            let (head, body) = page.split_once('\n').unwrap();
            read.push_str(body);
            pages += 1;
            let Some((_, next)) = head.split_once("next offset: ") else { break };
            offset = next.trim_end_matches(']').parse().unwrap();
            assert_eq!(offset, utf16_len(&read));
        }
        (read, pages)
    }

    #[test]
    fn pages_fit_and_join_to_the_text() {
        for text in ["plain text ", "\"quoted\\\"\n", "\u{1}\u{2}", "ünïcödé 漢字 ", "😀", "\t\r\n"]
        {
            let text = text.repeat(2_000);
            let (read, pages) = read(&text, 4_096);
            assert_eq!(read, text);
            // A page wastes no more than the longest head and one character.
            let most = encoded_bytes(&text).div_ceil(4_096 - 150);
            assert!(pages <= most, "{pages} pages, {most} would do");
        }
    }

    #[test]
    fn a_short_text_is_one_page() {
        assert_eq!(page("t", "a", 0, 4_096), "[t: characters 0 to 1 of 1; complete]\na");
        assert_eq!(page("t", "", 0, 4_096), "[t: characters 0 to 0 of 0; complete]\n");
    }

    #[test]
    fn offsets_are_code_units_and_never_split_a_character() {
        assert!(page("t", "😀b", 2, 4_096).ends_with("2 to 3 of 3; complete]\nb"));
        assert!(page("t", "😀b", 1, 4_096).ends_with("0 to 3 of 3; complete]\n😀b"));
        assert!(page("t", "😀b", 3, 4_096).contains("past the end; it has 3 characters"));
        assert!(page("t", "😀b", usize::MAX, 4_096).contains("past the end"));
    }
}
