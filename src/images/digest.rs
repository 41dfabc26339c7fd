//! Digests: the names of contents.

use std::fmt;
use std::io::{self, Read};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

const PREFIX: &str = "sha256:";
const HEX_BYTES: usize = 64;

/// The sha256 of a content, written `sha256:<64 lower case hexadecimal digits>`.
///
/// No other algorithm is understood: an identity that this program cannot check is none.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

impl Digest {
    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Hasher::default().with(bytes).finish()
    }

    /// The digest of all that `reader` yields, and how many bytes that was.
    pub fn of_reader(mut reader: impl Read) -> io::Result<(Self, u64)> {
        let mut hasher = Hasher::default();
        let mut buffer = vec![0; 128 * 1024];
        let mut size = 0;
        loop {
            let read = reader.read(&mut buffer)?;
            if read == 0 {
                return Ok((hasher.finish(), size));
            }
            hasher.update(&buffer[..read]);
            size += read as u64;
        }
    }

    /// The hexadecimal digits alone.
    pub fn hex(&self) -> &str {
        &self.0[PREFIX.len()..]
    }

    /// The digest with its algorithm.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The digest whose digits are `hex`.
    pub(crate) fn from_hex(hex: &str) -> Option<Self> {
        format!("{PREFIX}{hex}").parse().ok()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Digest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let short = || text.chars().take(96).collect::<String>();
        let hex = text
            .strip_prefix(PREFIX)
            .ok_or_else(|| format!("has the digest {:?}, which is not a sha256", short()))?;
        let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if hex.len() == HEX_BYTES && hex.bytes().all(digit) {
            return Ok(Self(text.to_owned()));
        }
        Err(format!(
            "has the digest {:?}; a sha256 has {HEX_BYTES} lower case hexadecimal digits",
            short()
        ))
    }
}

impl TryFrom<String> for Digest {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.0
    }
}

/// A digest being made.
#[derive(Default, Clone)]
pub(crate) struct Hasher(Sha256);

impl Hasher {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn with(mut self, bytes: &[u8]) -> Self {
        self.update(bytes);
        self
    }

    pub(crate) fn finish(self) -> Digest {
        use fmt::Write as _;
        let mut text = String::with_capacity(PREFIX.len() + HEX_BYTES);
        text.push_str(PREFIX);
        for byte in self.0.finalize() {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        Digest(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn contents_have_the_digests_that_everybody_else_computes() {
        assert_eq!(Digest::of(b"").as_str(), EMPTY);
        assert_eq!(Digest::of_reader(&b""[..]).expect("read"), (Digest::of(b""), 0));
    }

    #[test]
    fn what_cannot_be_checked_is_no_digest() {
        let upper = EMPTY.to_uppercase();
        let traversal = format!("sha256:../{}", &EMPTY[10..]);
        for text in ["", "sha256:", "sha512:00", "md5:00", &upper, &traversal, &EMPTY[7..]] {
            assert!(text.parse::<Digest>().is_err(), "{text}");
        }
    }
}
