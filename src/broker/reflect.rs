//! Whether an answer holds a credential, as it is or disguised. What an upstream was sent it may send back,
//! by mistake or because a guest talked it into it; a guest must not get it.

use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use memchr::memmem;
use serde_json::Value;
use zeroize::Zeroizing;

use crate::credential::Secret;

/// How often escapes inside escapes are undone: JSON in a string of JSON, twice over.
const UNESCAPE_ROUNDS: usize = 3;

/// The forms of one credential that are looked for. Wiped when dropped.
pub(crate) struct Pattern {
    secret: Secret,
    /// As it is, reversed, and in base64 at the three alignments in both alphabets.
    exact: Vec<Zeroizing<Vec<u8>>>,
    /// In lower-case hexadecimal, compared without regard to case.
    hex: Zeroizing<Vec<u8>>,
}

impl Pattern {
    pub fn new(secret: &Secret) -> Self {
        let bytes = secret.expose().as_bytes();
        let reversed: Zeroizing<String> = Zeroizing::new(secret.expose().chars().rev().collect());
        let mut exact =
            vec![Zeroizing::new(bytes.to_vec()), Zeroizing::new(reversed.as_bytes().to_vec())];
        for shift in 0..3 {
            exact.push(base64_at(bytes, shift, &STANDARD_NO_PAD));
            exact.push(base64_at(bytes, shift, &URL_SAFE_NO_PAD));
        }
        let mut hex = Zeroizing::new(Vec::with_capacity(2 * bytes.len()));
        for byte in bytes {
            hex.extend_from_slice(&[hex_digit(byte >> 4), hex_digit(byte & 15)]);
        }
        Self { secret: secret.clone(), exact, hex }
    }

    pub fn is_for(&self, secret: &Secret) -> bool {
        self.secret == *secret
    }

    /// Bytes of the credential; every form of it is at least as long.
    fn len(&self) -> usize {
        self.secret.expose().len()
    }

    fn is_in(&self, text: &[u8], lower: &[u8]) -> bool {
        self.exact.iter().any(|form| memmem::find(text, form).is_some())
            || memmem::find(lower, &self.hex).is_some()
    }
}

/// The characters of a base64 text that depend on nothing but the credential, when `shift` bytes of
/// something else stand before it in the text's own groups of three.
fn base64_at(bytes: &[u8], shift: usize, alphabet: &impl base64::Engine) -> Zeroizing<Vec<u8>> {
    let mut padded = Zeroizing::new(vec![0; shift]);
    padded.extend_from_slice(bytes);
    let text = Zeroizing::new(alphabet.encode(&*padded));
    let first = (8 * shift).div_ceil(6);
    let last = 8 * padded.len() / 6;
    Zeroizing::new(text.as_bytes()[first..last].to_vec())
}

fn hex_digit(nibble: u8) -> u8 {
    b"0123456789abcdef"[usize::from(nibble)]
}

/// Whether any key, text or number of `answer` holds any of the credentials.
pub(crate) fn holds_any(answer: &Value, patterns: &[Pattern]) -> bool {
    if patterns.is_empty() {
        return false;
    }
    let mut open = vec![answer];
    while let Some(value) = open.pop() {
        let found = match value {
            Value::Null | Value::Bool(_) => false,
            Value::Number(number) => text_holds_any(&number.to_string(), patterns),
            Value::String(text) => text_holds_any(text, patterns),
            Value::Array(items) => {
                open.extend(items);
                false
            }
            Value::Object(map) => {
                open.extend(map.values());
                map.keys().any(|key| text_holds_any(key, patterns))
            }
        };
        if found {
            return true;
        }
    }
    false
}

/// Whether a text holds any of the credentials, as it is or once its escapes are undone.
fn text_holds_any(text: &str, patterns: &[Pattern]) -> bool {
    if bytes_hold_any(text.as_bytes(), patterns) {
        return true;
    }
    let mut plain = text.as_bytes().to_vec();
    for _ in 0..UNESCAPE_ROUNDS {
        let Some(undone) = undo_escapes(&plain) else { return false };
        plain = undone;
        if bytes_hold_any(&plain, patterns) {
            return true;
        }
    }
    false
}

fn bytes_hold_any(text: &[u8], patterns: &[Pattern]) -> bool {
    // Most texts of an answer are short: ids, roles, names.
    if patterns.iter().all(|pattern| text.len() < pattern.len()) {
        return false;
    }
    let lower = text.to_ascii_lowercase();
    patterns.iter().any(|pattern| pattern.is_in(text, &lower))
}

/// Undoes percent-encoding and JSON's escapes, or `None` when there is neither. Both at once, since either
/// may be wrapped in the other and a wrong guess only searches a text nobody wrote.
fn undo_escapes(text: &[u8]) -> Option<Vec<u8>> {
    memchr::memchr2(b'%', b'\\', text)?;
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, tail)) = rest.split_first() {
        let (undone, length) = match first {
            b'%' => percent(tail),
            b'\\' => escape(tail),
            _ => None,
        }
        .unwrap_or((u32::from(first), 0));
        if first == b'\\' && length > 1 {
            let mut buffer = [0; 4];
            let character = char::from_u32(undone).unwrap_or(char::REPLACEMENT_CHARACTER);
            plain.extend_from_slice(character.encode_utf8(&mut buffer).as_bytes());
        } else {
            plain.push(undone as u8);
        }
        rest = &tail[length..];
    }
    Some(plain)
}

/// The byte of `%XX` and the length of `XX`.
fn percent(tail: &[u8]) -> Option<(u32, usize)> {
    Some((hex_number(tail.get(..2)?)?, 2))
}

/// The code unit or byte after a backslash and the length of what names it.
fn escape(tail: &[u8]) -> Option<(u32, usize)> {
    let (plain, length) = match tail.first()? {
        b'u' => return Some((hex_number(tail.get(1..5)?)?, 5)),
        b'b' => (8, 1),
        b'f' => (12, 1),
        b'n' => (10, 1),
        b'r' => (13, 1),
        b't' => (9, 1),
        other => (u32::from(*other), 1),
    };
    Some((plain, length))
}

fn hex_number(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |number, digit| Some(16 * number + char::from(*digit).to_digit(16)?))
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE};
    use serde_json::json;

    use super::*;

    const SECRET: &str = "sk>>Key??/1+2==~~\"ü";

    fn patterns(secret: &str) -> Vec<Pattern> {
        vec![Pattern::new(&Secret::new(secret))]
    }

    fn found(answer: &Value) -> bool {
        holds_any(answer, &patterns(SECRET))
    }

    fn each<T>(parts: impl Iterator<Item = T>, write: impl Fn(T) -> String) -> String {
        parts.map(write).collect::<Vec<_>>().concat()
    }

    #[test]
    fn clear_text_is_found_in_texts_keys_and_depth() {
        assert!(found(&json!(SECRET)));
        assert!(found(&json!({ format!("x{SECRET}y"): 1 })));
        assert!(found(&json!([[{ "a": [format!("..{SECRET}..")] }]])));
        assert!(!found(&json!({ "a": [1, null, true, "sk>>Key??/1+2==~"] })));
    }

    #[test]
    fn numbers_are_searched() {
        assert!(holds_any(&json!({ "id": 1_234_567_890_u64 }), &patterns("1234567890")));
    }

    #[test]
    fn base64_is_found_at_every_alignment_in_both_alphabets() {
        for before in 0..7 {
            for after in 0..4 {
                let text = format!("{}{SECRET}{}", "é".repeat(before), "z".repeat(after));
                let text = &text.as_bytes()[before / 2..];
                assert!(found(&json!(STANDARD.encode(text))), "standard {before} {after}");
                assert!(found(&json!(URL_SAFE.encode(text))), "url-safe {before} {after}");
                assert!(found(&json!(URL_SAFE_NO_PAD.encode(text))), "unpadded {before} {after}");
            }
        }
    }

    #[test]
    fn hexadecimal_is_found_in_any_case() {
        let lower = each(SECRET.bytes(), |byte| format!("{byte:02x}"));
        let mixed: String = lower
            .char_indices()
            .map(|(place, c)| if place % 3 == 0 { c.to_ascii_uppercase() } else { c })
            .collect();
        for hex in [lower.clone(), lower.to_ascii_uppercase(), mixed] {
            assert!(found(&json!(format!("0x{hex}"))), "{hex}");
        }
    }

    #[test]
    fn percent_encoding_is_found_whole_partial_and_in_any_case() {
        let all = each(SECRET.bytes(), |byte| format!("%{byte:02X}"));
        let some = SECRET.replace('?', "%3f").replace('ü', "%C3%bc");
        let twice = some.replace('%', "%25");
        for text in [all, some, twice] {
            assert!(found(&json!(format!("https://x.invalid/?k={text}&l=%zz%"))), "{text}");
        }
    }

    #[test]
    fn json_escapes_are_found_once_and_twice() {
        let once = serde_json::to_string(SECRET).unwrap();
        let twice = serde_json::to_string(&once).unwrap();
        let units = each(SECRET.encode_utf16(), |unit| format!("\\u{unit:04X}"));
        let slashes = SECRET.replace('/', "\\/").replace('"', "\\\"");
        for text in [once, twice, units, slashes] {
            assert!(found(&json!(text)), "{text}");
        }
    }

    #[test]
    fn reversed_is_found() {
        assert!(found(&json!(SECRET.chars().rev().collect::<String>())));
    }

    #[test]
    fn odd_escapes_are_no_trouble() {
        for text in ["%", "%4", "\\", "\\u", "\\u12", "\\ud83d", "%\\%\\", "\\\u{fffd}"] {
            assert!(!found(&json!(text)), "{text:?}");
        }
    }

    #[test]
    fn short_answers_and_no_credentials_are_fine() {
        assert!(!holds_any(&json!(SECRET), &[]));
        assert!(!found(&json!("")));
    }
}
