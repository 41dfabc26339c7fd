//! The reply: what a worker answers.

use serde::{Deserialize, Serialize};

use crate::json::{self, Value};
use crate::limits::REPLY_UNITS;
use crate::measure::utf16_len;
use crate::text;

/// The worker's answer: JSON on its standard output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// Whether the turn succeeded.
    pub ok: bool,
    /// What to say to the guest; at most [`REPLY_UNITS`].
    pub text: String,
}

/// Standard output holds no valid reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InvalidReply {
    /// Not one JSON value.
    NotJson,
    /// Not an object with a boolean `ok` and a string `text`.
    Shape,
    /// The text is over [`REPLY_UNITS`].
    TooLong,
}

impl std::fmt::Display for InvalidReply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NotJson => "the reply is not JSON",
            Self::Shape => "the reply has no boolean \"ok\" and string \"text\"",
            Self::TooLong => "the reply's text is over 100000 UTF-16 code units",
        })
    }
}

impl std::error::Error for InvalidReply {}

impl Reply {
    /// Reads a worker's standard output, of which the host reads at most
    /// [`STDOUT_BYTES`](crate::limits::STDOUT_BYTES).
    ///
    /// # Errors
    /// See [`InvalidReply`]. Nothing of the output is in the error.
    pub fn parse(stdout: &[u8]) -> Result<Self, InvalidReply> {
        let value = json::parse(&text::decode(stdout)).map_err(|_| InvalidReply::NotJson)?;
        let Value::Object(mut map) = value else { return Err(InvalidReply::Shape) };
        match (map.swap_remove("ok"), map.swap_remove("text")) {
            (Some(Value::Bool(_)), Some(Value::String(text))) if utf16_len(&text) > REPLY_UNITS => {
                Err(InvalidReply::TooLong)
            }
            (Some(Value::Bool(ok)), Some(Value::String(text))) => Ok(Self { ok, text }),
            _ => Err(InvalidReply::Shape),
        }
    }

    /// The JSON for standard output.
    pub fn to_json(&self) -> String {
        let mut out = format!("{{\"ok\":{},\"text\":", self.ok).into_bytes();
        json::push_string(&mut out, &self.text);
        out.push(b'}');
        String::from_utf8(out).expect("JSON is written as UTF-8")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_read_as_it_was_written() {
        let reply = Reply { ok: true, text: "a\"\n\u{2028}😀".into() };
        assert_eq!(Reply::parse(reply.to_json().as_bytes()), Ok(reply));
    }

    #[test]
    fn other_output_is_refused() {
        let cases = [
            ("", InvalidReply::NotJson),
            ("{\"ok\":true,\"text\":\"a\"}x", InvalidReply::NotJson),
            ("{\"ok\":true,\"text\":\"a\"}{}", InvalidReply::NotJson),
            ("[]", InvalidReply::Shape),
            ("{\"ok\":1,\"text\":\"a\"}", InvalidReply::Shape),
            ("{\"ok\":true}", InvalidReply::Shape),
            ("{\"ok\":true,\"text\":null}", InvalidReply::Shape),
        ];
        for (stdout, error) in cases {
            assert_eq!(Reply::parse(stdout.as_bytes()), Err(error), "{stdout}");
        }
    }

    #[test]
    fn the_text_is_counted_in_utf16_units() {
        let parse = |text: String| Reply::parse(Reply { ok: true, text }.to_json().as_bytes());
        assert!(parse("😀".repeat(50_000)).is_ok());
        assert_eq!(parse("😀".repeat(50_000) + "a"), Err(InvalidReply::TooLong));
    }
}
