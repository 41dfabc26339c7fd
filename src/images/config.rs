//! The part of an OCI image configuration that a jail needs.

use std::collections::BTreeMap;

use serde::Deserialize;
use turnjail_protocol::{PROFILE_LABEL, PROTOCOL_LABEL};

/// What an image's profile label says. A label can only tighten: it may ask for `sealed`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProfileLabel {
    /// No label.
    None,
    /// `sealed`.
    Sealed,
    /// Another value, which opens nothing.
    Unknown(String),
}

/// How to start what is in an image, in the words of the OCI image specification.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ImageConfig {
    /// The program and its first arguments.
    #[serde(rename = "Entrypoint")]
    pub entrypoint: Vec<String>,
    /// Further arguments.
    #[serde(rename = "Cmd")]
    pub cmd: Vec<String>,
    /// `NAME=value` lines.
    #[serde(rename = "Env")]
    pub env: Vec<String>,
    /// The working directory; empty means `/`.
    #[serde(rename = "WorkingDir")]
    pub working_dir: String,
    /// Labels.
    #[serde(rename = "Labels")]
    pub labels: BTreeMap<String, String>,
}

impl ImageConfig {
    /// The protocol version by the usual label, or none: no label or no positive decimal integer.
    pub fn protocol(&self) -> Option<u32> {
        self.protocol_by(PROTOCOL_LABEL)
    }

    /// The protocol version by the label `key`.
    pub fn protocol_by(&self, key: &str) -> Option<u32> {
        let value = self.labels.get(key)?;
        let decimal = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
        value.parse().ok().filter(|&version| decimal && version > 0)
    }

    /// What the profile label says.
    pub fn profile(&self) -> ProfileLabel {
        match self.labels.get(PROFILE_LABEL).map(String::as_str) {
            None => ProfileLabel::None,
            Some("sealed") => ProfileLabel::Sealed,
            Some(other) => ProfileLabel::Unknown(other.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labelled(value: &str) -> ImageConfig {
        let labels = [(PROTOCOL_LABEL.to_owned(), value.to_owned())].into();
        ImageConfig { labels, ..ImageConfig::default() }
    }

    #[test]
    fn only_positive_decimal_integers_are_protocol_versions() {
        assert_eq!(labelled("2").protocol(), Some(2));
        assert_eq!(labelled("007").protocol(), Some(7));
        for odd in ["", "0", "-1", "+2", "2.0", " 2", "two", "99999999999"] {
            assert_eq!(labelled(odd).protocol(), None, "{odd:?}");
        }
        assert_eq!(ImageConfig::default().protocol(), None);
    }

    #[test]
    fn a_profile_label_can_only_ask_for_sealed() {
        let with = |value: &str| ImageConfig {
            labels: [(PROFILE_LABEL.to_owned(), value.to_owned())].into(),
            ..ImageConfig::default()
        };
        assert_eq!(with("sealed").profile(), ProfileLabel::Sealed);
        assert_eq!(with("general").profile(), ProfileLabel::Unknown("general".to_owned()));
        assert_eq!(ImageConfig::default().profile(), ProfileLabel::None);
    }
}
