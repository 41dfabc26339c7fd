//! The part of an OCI image configuration that a jail needs.

use std::collections::BTreeMap;

use oci_spec::image::{Config, ImageConfiguration};
use serde::{Deserialize, Serialize};
use turnjail_protocol::labels::{PROFILE_LABEL, PROTOCOL_LABEL, parse_protocol};

/// The architecture of this machine in the words of the OCI image specification, which are Go's.
pub fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

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
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase", deny_unknown_fields)]
pub struct ImageConfig {
    /// The program and its first arguments.
    pub entrypoint: Vec<String>,
    /// Further arguments, or the program where there is no entrypoint.
    pub cmd: Vec<String>,
    /// `NAME=value` lines.
    pub env: Vec<String>,
    /// The working directory; empty means `/`.
    pub working_dir: String,
    /// Labels. They are data: none of them opens anything.
    pub labels: BTreeMap<String, String>,
    /// The signal that asks it to end, such as `SIGTERM` or `15`; empty means SIGTERM.
    pub stop_signal: String,
    /// The architecture that it is for, such as `amd64`; empty means this machine's.
    pub architecture: String,
    /// The operating system that it is for; empty means `linux`.
    pub os: String,
}

impl ImageConfig {
    /// The program and its arguments.
    pub fn command(&self) -> impl Iterator<Item = &String> {
        self.entrypoint.iter().chain(&self.cmd)
    }

    /// Whether this machine can run it.
    pub fn is_for_this_machine(&self) -> bool {
        (self.os.is_empty() || self.os == "linux")
            && (self.architecture.is_empty() || self.architecture == architecture())
    }

    /// The protocol version by the usual label, or none: no label or no positive decimal integer.
    pub fn protocol(&self) -> Option<u32> {
        self.protocol_by(PROTOCOL_LABEL)
    }

    /// The protocol version by the label `key`.
    pub fn protocol_by(&self, key: &str) -> Option<u32> {
        parse_protocol(self.labels.get(key)?)
    }

    /// What the profile label says.
    pub fn profile(&self) -> ProfileLabel {
        match self.labels.get(PROFILE_LABEL).map(String::as_str) {
            None => ProfileLabel::None,
            Some("sealed") => ProfileLabel::Sealed,
            Some(other) => ProfileLabel::Unknown(other.to_owned()),
        }
    }

    /// What counts of a whole OCI configuration, or what is wrong with it.
    pub(crate) fn of(configuration: &ImageConfiguration) -> Result<Self, String> {
        let config = configuration.config().as_ref();
        let list = |of: Option<&Option<Vec<String>>>| of.cloned().flatten().unwrap_or_default();
        let text = |of: Option<&Option<String>>| of.cloned().flatten().unwrap_or_default();
        let labels = config.and_then(|config| config.labels().clone()).unwrap_or_default();
        let found = Self {
            entrypoint: list(config.map(Config::entrypoint)),
            cmd: list(config.map(Config::cmd)),
            env: list(config.map(Config::env)),
            working_dir: text(config.map(Config::working_dir)),
            labels: labels.into_iter().collect(),
            stop_signal: text(config.map(Config::stop_signal)),
            architecture: configuration.architecture().to_string(),
            os: configuration.os().to_string(),
        };
        found.check()?;
        Ok(found)
    }

    /// No program can be given what holds a NUL, and a variable has a name.
    pub(crate) fn check(&self) -> Result<(), String> {
        let texts = self.command().chain(&self.env).chain([&self.working_dir]);
        if texts.into_iter().any(|text| text.contains('\0')) {
            return Err("its configuration has a NUL character in a text".to_owned());
        }
        let named = |line: &String| line.split_once('=').is_some_and(|(name, _)| !name.is_empty());
        if !self.env.iter().all(named) {
            return Err("its configuration has a variable without name or =".to_owned());
        }
        Ok(())
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
