//! JSON as JavaScript's `JSON.stringify` writes it.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{CompactFormatter, Formatter, Serializer};

/// The whole numbers up to here are doubles, and JavaScript writes them as they are.
const SAFE_INTEGER: u64 = 1 << 53;

/// The JSON text of a value.
pub fn stringify(value: &Value) -> String {
    let mut out = Vec::with_capacity(128);
    push(&mut out, value);
    String::from_utf8(out).expect("JSON is written as UTF-8")
}

/// Appends the JSON text of a value.
pub fn push(out: &mut Vec<u8>, value: &Value) {
    let mut serializer = Serializer::with_formatter(out, JavaScript(CompactFormatter));
    // Writing to memory does not fail, and values have string keys.
    let _ = value.serialize(&mut serializer);
}

/// Appends the JSON text of a string.
pub fn push_string(out: &mut Vec<u8>, text: &str) {
    let _ = text.serialize(&mut Serializer::new(out));
}

/// Compact JSON with numbers as JavaScript writes doubles.
struct JavaScript(CompactFormatter);

impl Formatter for JavaScript {
    fn write_f64<W: ?Sized + Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        writer.write_all(ryu_js::Buffer::new().format(value).as_bytes())
    }

    fn write_u64<W: ?Sized + Write>(&mut self, writer: &mut W, value: u64) -> io::Result<()> {
        if value > SAFE_INTEGER {
            return self.write_f64(writer, value as f64);
        }
        self.0.write_u64(writer, value)
    }

    fn write_i64<W: ?Sized + Write>(&mut self, writer: &mut W, value: i64) -> io::Result<()> {
        if value.unsigned_abs() > SAFE_INTEGER {
            return self.write_f64(writer, value as f64);
        }
        self.0.write_i64(writer, value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_javascripts_forms() {
        let cases = [
            ("1.0", "1"),
            ("-0", "0"),
            ("-0.0", "0"),
            ("1e21", "1e+21"),
            ("1e20", "100000000000000000000"),
            ("123456789012345678901", "123456789012345680000"),
            ("0.000001", "0.000001"),
            ("0.0000001", "1e-7"),
            ("1.50", "1.5"),
            ("5e-324", "5e-324"),
            ("1e-400", "0"),
            ("1.7976931348623157e308", "1.7976931348623157e+308"),
            ("1e309", "null"),
            ("9007199254740993", "9007199254740992"),
            ("18446744073709551615", "18446744073709552000"),
            ("-9223372036854775808", "-9223372036854776000"),
            ("0.1", "0.1"),
            ("100", "100"),
            // The nearest double needs exact reading.
            ("2.2250738585072011e-308", "2.225073858507201e-308"),
            ("9.9e-1", "0.99"),
        ];
        for (json, written) in cases {
            assert_eq!(stringify(&crate::json::parse(json).unwrap()), written, "{json}");
        }
    }

    #[test]
    fn strings_have_javascripts_escapes() {
        let text = "\"\\/\u{8}\u{c}\n\r\t\0\u{1f}\u{7f}\u{80}\u{2028}\u{2029}ä漢😀";
        let mut out = Vec::new();
        push_string(&mut out, text);
        let json = "\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0000\\u001f\u{7f}\u{80}\u{2028}\u{2029}ä漢😀\"";
        assert_eq!(String::from_utf8(out).unwrap(), json);
        assert_eq!(stringify(&Value::from(text)), json);
    }
}
