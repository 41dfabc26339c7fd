//! What JavaScript reads and the JSON library refuses, made acceptable to it.
//!
//! Two things only: the escape of a lone surrogate by that of U+FFFD,
//! and a number beyond the doubles (JavaScript's Infinity, which it writes as null) by null. Whether
//! the rest is JSON is the library's to judge.

use std::borrow::Cow;

const REPLACEMENT: &str = "\\ufffd";

/// The text, or a copy of it with both things replaced.
pub fn mend(text: &str) -> Cow<'_, str> {
    let patches = find(text.as_bytes());
    if patches.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut mended = String::with_capacity(text.len());
    let mut from = 0;
    for patch in patches {
        mended.push_str(&text[from..patch.start]);
        mended.push_str(patch.with);
        from = patch.end;
    }
    mended.push_str(&text[from..]);
    Cow::Owned(mended)
}

struct Patch {
    start: usize,
    end: usize,
    with: &'static str,
}

/// Walks over the text's strings and numbers. On what is no JSON it may find nonsense, but never
/// mends it into JSON: a patch stands for a complete escape or number and is one itself.
fn find(bytes: &[u8]) -> Vec<Patch> {
    let mut patches = Vec::new();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => at = walk_string(bytes, at + 1, &mut patches),
            b'-' | b'0'..=b'9' => {
                let end = at + bytes[at..].iter().take_while(|b| in_number(**b)).count();
                if overflows(&bytes[at..end]) {
                    patches.push(Patch { start: at, end, with: "null" });
                }
                at = end;
            }
            _ => at += 1,
        }
    }
    patches
}

/// From behind the opening quote to behind the closing one.
fn walk_string(bytes: &[u8], mut at: usize, patches: &mut Vec<Patch>) -> usize {
    loop {
        // Most text has no escapes: look for the next byte that matters.
        match bytes[at.min(bytes.len())..].iter().position(|b| matches!(b, b'"' | b'\\')) {
            None => return bytes.len(),
            Some(plain) => at += plain,
        }
        if bytes[at] == b'"' {
            return at + 1;
        }
        match unicode_escape(bytes, at) {
            Some(0xd800..=0xdbff)
                if matches!(unicode_escape(bytes, at + 6), Some(0xdc00..=0xdfff)) =>
            {
                at += 12;
            }
            Some(0xd800..=0xdfff) => {
                patches.push(Patch { start: at, end: at + 6, with: REPLACEMENT });
                at += 6;
            }
            Some(_) => at += 6,
            None => at += 2,
        }
    }
}

/// The code unit that the escape at `at` stands for, if there is a whole one.
fn unicode_escape(bytes: &[u8], at: usize) -> Option<u16> {
    let digits = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
    digits.iter().try_fold(0, |unit: u16, digit| {
        Some(unit << 4 | u16::try_from(char::from(*digit).to_digit(16)?).ok()?)
    })
}

fn in_number(byte: u8) -> bool {
    byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E')
}

/// Whether this is a number of JSON that is beyond the doubles.
fn overflows(token: &[u8]) -> bool {
    // Shorter ones, such as 9e99 and any with up to 308 digits, are within.
    let may =
        token.len() > 308 || token.len() >= 5 && token.iter().any(|b| matches!(b, b'e' | b'E'));
    may && is_number(token)
        && std::str::from_utf8(token)
            .ok()
            .and_then(|text| text.parse::<f64>().ok())
            .is_some_and(f64::is_infinite)
}

/// JSON's grammar of numbers.
fn is_number(token: &[u8]) -> bool {
    let rest = token.strip_prefix(b"-").unwrap_or(token);
    let Some(rest) = (match rest {
        [b'0', rest @ ..] => Some(rest),
        [b'1'..=b'9', ..] => Some(skip_digits(rest)),
        _ => None,
    }) else {
        return false;
    };
    let rest = match rest {
        [b'.', b'0'..=b'9', rest @ ..] => skip_digits(rest),
        _ => rest,
    };
    match rest {
        [] => true,
        [b'e' | b'E', b'+' | b'-', b'0'..=b'9', rest @ ..]
        | [b'e' | b'E', b'0'..=b'9', rest @ ..] => skip_digits(rest).is_empty(),
        _ => false,
    }
}

fn skip_digits(bytes: &[u8]) -> &[u8] {
    &bytes[bytes.iter().take_while(|b| b.is_ascii_digit()).count()..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lone_surrogates_become_the_replacement_character() {
        let cases = [
            (r#""\ud83d""#, "\u{fffd}"),
            (r#""\uDE00""#, "\u{fffd}"),
            (r#""\uDE00\uD83D""#, "\u{fffd}\u{fffd}"),
            (r#""\ud83dx""#, "\u{fffd}x"),
            (r#""\ud83d\n""#, "\u{fffd}\n"),
            (r#""\ud83d\ud83d\ude00""#, "\u{fffd}😀"),
            (r#""\ud83d\ude00""#, "😀"),
            (r#""\\ud83d""#, "\\ud83d"),
            (r#""\\\ud83d""#, "\\\u{fffd}"),
        ];
        for (json, text) in cases {
            let read: String = serde_json::from_str(&mend(json)).unwrap();
            assert_eq!(read, text, "{json}");
        }
    }

    #[test]
    fn keys_are_mended_too() {
        assert_eq!(mend(r#"{"\ud83d":"\ud83d"}"#), r#"{"\ufffd":"\ufffd"}"#);
    }

    #[test]
    fn numbers_beyond_the_doubles_become_null() {
        for json in ["1e309", "-1e309", "1E+400", "1.5e999", &"9".repeat(309), "123456e305"] {
            assert_eq!(mend(json), "null", "{json}");
        }
        assert_eq!(mend("[1e400, 2,1e400]"), "[null, 2,null]");
    }

    #[test]
    fn other_numbers_stay() {
        for json in ["1e308", "1e-400", "-0", "0e999", &"1".repeat(309).replace('1', "0"), "9e99"] {
            assert_eq!(mend(json), json);
        }
    }

    #[test]
    fn what_is_no_json_does_not_become_it() {
        for json in ["01e999", "1e999e1", "1.e999", "--1e999", "1e999.5", "+1e999", "e999"] {
            assert!(serde_json::from_str::<serde_json::Value>(&mend(json)).is_err(), "{json}");
        }
        for json in [r#""\ud83"#, r#""\ud83d"#, "\"\\", "\"", r#""\uD83D\u"#, r#""\u12g4""#] {
            assert!(serde_json::from_str::<serde_json::Value>(&mend(json)).is_err(), "{json}");
        }
    }

    #[test]
    fn plain_text_is_not_copied() {
        assert!(matches!(mend(r#"{"a":"\n\u00e4 ud83d","b":1.5e3}"#), Cow::Borrowed(_)));
    }
}
