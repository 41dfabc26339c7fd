//! A credential in memory.

use std::fmt;

use bytes::Bytes;
use hyper::header::HeaderValue;
use zeroize::Zeroizing;

/// A credential's text. It has no readable `Debug` and is wiped when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes a credential's text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(Zeroizing::new(text.into()))
    }

    /// The text itself: for the header that needs it and for nothing else.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The text without white space around it, the rest wiped.
    pub(crate) fn trimmed(&self) -> Self {
        Self::new(self.0.trim())
    }

    /// A header's value that is wiped when the last copy of it is dropped, or `None` when the text cannot
    /// stand in a header.
    pub(crate) fn header_value(&self, prefix: &str) -> Option<HeaderValue> {
        let mut text = Zeroizing::new(Vec::with_capacity(prefix.len() + self.0.len()));
        text.extend_from_slice(prefix.as_bytes());
        text.extend_from_slice(self.0.as_bytes());
        let mut value = HeaderValue::from_maybe_shared(Bytes::from_owner(text)).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}
