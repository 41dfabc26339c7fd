//! Text as JavaScript reads and trims it.

use std::borrow::Cow;

/// Decodes bytes as UTF-8 the way `TextDecoder` does: one leading byte order mark is dropped, what is
/// not UTF-8 becomes U+FFFD.
pub fn decode(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes))
}

/// Drops leading and trailing white space as JavaScript's `trim` does: U+FEFF goes, U+0085 stays.
pub fn trim(text: &str) -> &str {
    text.trim_matches(is_white_space)
}

/// Whether the text is empty or only white space.
pub fn is_blank(text: &str) -> bool {
    text.chars().all(is_white_space)
}

fn is_white_space(c: char) -> bool {
    matches!(
        c,
        '\t'..='\r'
            | ' '
            | '\u{a0}'
            | '\u{1680}'
            | '\u{2000}'..='\u{200a}'
            | '\u{2028}'
            | '\u{2029}'
            | '\u{202f}'
            | '\u{205f}'
            | '\u{3000}'
            | '\u{feff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_order_mark_is_dropped_once() {
        assert_eq!(decode(b"\xef\xbb\xbf{}"), "{}");
        assert_eq!(decode(b"\xef\xbb\xbf\xef\xbb\xbf{}"), "\u{feff}{}");
        assert_eq!(decode(b"\xef\xbb{}"), "\u{fffd}{}");
    }

    #[test]
    fn bytes_that_are_not_utf_8_are_replaced() {
        assert_eq!(decode(b"a\xff\xf0\x9f\x98b"), "a\u{fffd}\u{fffd}b");
        assert_eq!(decode(b"\xed\xa0\xbd"), "\u{fffd}\u{fffd}\u{fffd}");
    }

    #[test]
    fn white_space_is_javascripts() {
        let all = "\t\n\u{b}\u{c}\r \u{a0}\u{1680}\u{2000}\u{200a}\u{2028}\u{2029}\u{202f}\u{205f}\u{3000}\u{feff}";
        assert!(is_blank(all));
        assert_eq!(trim(&format!("{all}a b{all}")), "a b");
        for kept in ["\u{85}", "\u{200b}", "\u{180e}", "\0", "\u{1c}"] {
            assert_eq!(trim(kept), kept, "{kept:?}");
        }
    }
}
