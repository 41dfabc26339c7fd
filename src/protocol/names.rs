//! Which names and identifiers are valid.

use crate::limits::{CALL_ID_UNITS, FUNCTION_NAME_CHARS, TOOL_NAME_CHARS};
use crate::measure::utf16_len;

/// Whether `name` is a tool's or an MCP server's: `[a-z][a-z0-9_]{0,47}`.
pub fn valid_tool_name(name: &str) -> bool {
    is_snake_case(name, TOOL_NAME_CHARS)
}

/// Whether `name` is a function's as the model sees it: `[a-z][a-z0-9_]{0,63}`.
pub fn valid_function_name(name: &str) -> bool {
    is_snake_case(name, FUNCTION_NAME_CHARS)
}

/// Whether `id` identifies a tool call: 1 to 128 UTF-16 code units, any.
pub fn valid_call_id(id: &str) -> bool {
    // A unit takes at most three bytes, so that a long id need not be counted.
    !id.is_empty() && id.len() <= 3 * CALL_ID_UNITS && utf16_len(id) <= CALL_ID_UNITS
}

fn is_snake_case(name: &str, most: usize) -> bool {
    let mut bytes = name.bytes();
    name.len() <= most
        && bytes.next().is_some_and(|first| first.is_ascii_lowercase())
        && bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_lower_case_and_start_with_a_letter() {
        for name in ["a", "a1_", "host_clock"] {
            assert!(valid_tool_name(name) && valid_function_name(name), "{name}");
        }
        for name in ["", "A", "1a", "_a", "a-b", "a\n", "a b", "ä", "a.b"] {
            assert!(!valid_tool_name(name) && !valid_function_name(name), "{name:?}");
        }
    }

    #[test]
    fn names_have_a_length() {
        assert!(valid_tool_name(&"a".repeat(48)) && !valid_tool_name(&"a".repeat(49)));
        assert!(valid_function_name(&"a".repeat(64)) && !valid_function_name(&"a".repeat(65)));
    }

    #[test]
    fn ids_are_counted_in_utf16_units() {
        assert!(valid_call_id(" ") && !valid_call_id(""));
        assert!(valid_call_id(&"😀".repeat(64)) && !valid_call_id(&"😀".repeat(65)));
        assert!(valid_call_id(&"漢".repeat(128)) && !valid_call_id(&"漢".repeat(129)));
    }
}
