//! How limits are counted: UTF-16 code units, JSON bytes, and the cut.

use std::borrow::Cow;

use crate::json::{self, Value};

/// What a cut text ends with. It counts.
pub const CUT_MARKER: &str =
    "\n[Truncated for context size; retrieve specific memory entries with memory_get.]";

/// A prefix that ends inside a surrogate pair is six bytes longer than one that ends before it: half
/// a pair is written as an escape.
const HALF_PAIR_BYTES: usize = 6;

/// The length of a JavaScript string: UTF-16 code units.
pub fn utf16_len(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.chars().map(char::len_utf16).sum() }
}

/// The UTF-8 length of the text's JSON encoding, quotes included.
pub fn json_bytes(text: &str) -> usize {
    2 + inner_bytes(text)
}

/// The UTF-8 length of a value's JSON encoding.
pub fn value_bytes(value: &Value) -> usize {
    json::stringify(value).len()
}

/// The bytes that a character takes inside a JSON string.
pub fn char_bytes(c: char) -> usize {
    match c {
        '"' | '\\' | '\u{8}' | '\t' | '\n' | '\u{c}' | '\r' => 2,
        '\0'..='\u{1f}' => 6,
        _ => c.len_utf8(),
    }
}

fn inner_bytes(text: &str) -> usize {
    text.bytes()
        .map(|byte| match byte {
            b'"' | b'\\' | 0x8 | b'\t' | b'\n' | 0xc | b'\r' => 2,
            0..=0x1f => 6,
            _ => 1,
        })
        .sum()
}

/// The text if its JSON encoding has at most `budget` bytes, else a prefix and [`CUT_MARKER`], which
/// together have (the marker alone where not even that fits).
///
/// The prefix is the reference's: found by a binary search over UTF-16 code units, from 0 and the
/// text's length, with the middle rounded up and kept when it fits. Sizes are not monotonic (see
/// `HALF_PAIR_BYTES`), so that it sometimes ends a character before the longest that would fit.
pub fn cut(text: &str, budget: usize) -> Cow<'_, str> {
    // Nothing encodes to less than its length, so that long texts need no second look.
    if text.len() < budget && json_bytes(text) <= budget {
        return Cow::Borrowed(text);
    }
    let room = budget.saturating_sub(json_bytes(CUT_MARKER));
    let mut kept = Prefix::default();
    let (mut low, mut high) = (0, utf16_len(text));
    let longest = longest_units(text, room);
    while low < high {
        let middle = (low + high).div_ceil(2);
        let reached = if middle > longest { None } else { kept.extended(text, middle) };
        match reached.filter(|prefix| prefix.size() <= room) {
            Some(prefix) => {
                kept = prefix;
                low = middle;
            }
            None => high = middle - 1,
        }
    }
    Cow::Owned(format!("{}{CUT_MARKER}", &text[..kept.bytes]))
}

/// A number of units beyond which no prefix fits into `room`.
fn longest_units(text: &str, room: usize) -> usize {
    let (mut size, mut units) = (0, 0);
    for c in text.chars() {
        size += char_bytes(c);
        if size > room {
            break;
        }
        units += c.len_utf16();
    }
    units
}

/// A prefix of a text by UTF-16 code units.
#[derive(Clone, Copy, Default)]
struct Prefix {
    units: usize,
    /// Up to the last whole character.
    bytes: usize,
    encoded: usize,
    /// Whether half of a surrogate pair follows that character.
    half: bool,
}

impl Prefix {
    fn size(&self) -> usize {
        self.encoded + if self.half { HALF_PAIR_BYTES } else { 0 }
    }

    /// The prefix of `units`, which are no fewer than those of this one.
    fn extended(&self, text: &str, units: usize) -> Option<Self> {
        let mut next = Self { half: false, ..*self };
        if self.half {
            next.units -= 1;
        }
        for c in text.get(next.bytes..)?.chars() {
            if next.units + c.len_utf16() > units {
                break;
            }
            next.units += c.len_utf16();
            next.bytes += c.len_utf8();
            next.encoded += char_bytes(c);
        }
        next.half = next.units < units;
        next.units = units;
        Some(next)
    }
}
