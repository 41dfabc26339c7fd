//! How an image is isolated: its profile, by its label and by what the operator set for it.
//!
//! A label is the image's own word and can only tighten. Whatever loosens is an [`ImageSettings`] of the
//! operator's for one reference.

use std::collections::BTreeMap;

use turnjail_images::{ImageConfig, ProfileLabel, Reference};
use turnjail_protocol::DATA_LIMIT_LABEL;
use turnjail_warden::seccomp::Profile;

use crate::StartError;

/// The isolation of one jail, resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Isolation {
    /// The profile.
    pub profile: Profile,
    /// A loopback of the jail's own. Only the general profile can have one.
    pub loopback: bool,
    /// Whether `RLIMIT_AS` bounds each process to the memory limit. Only a static program that reserves
    /// no more than it uses can live with it.
    pub address_space_limit: bool,
    /// Whether `RLIMIT_DATA` does the same for private writable memory alone.
    pub data_limit: bool,
    /// Whether the program clears a workspace for the host: the sealed filter then lets it open directories
    /// again that are closed to their owner.
    pub clears: bool,
}

impl Isolation {
    /// The sealed profile as it is.
    pub const SEALED: Self = Self {
        profile: Profile::Sealed,
        loopback: false,
        address_space_limit: true,
        data_limit: false,
        clears: false,
    };

    /// The general profile as it is.
    pub const GENERAL: Self = Self {
        profile: Profile::General,
        loopback: false,
        address_space_limit: false,
        data_limit: false,
        clears: false,
    };

    /// A combination that cannot be built is refused.
    pub(crate) fn check(self) -> Result<(), StartError> {
        if self.loopback && self.profile == Profile::Sealed {
            return Err(StartError::policy(
                "the sealed profile has no loopback",
                "set profile = \"general\" for the image as well, or take loopback away",
            ));
        }
        Ok(())
    }
}

impl From<Profile> for Isolation {
    fn from(profile: Profile) -> Self {
        match profile {
            Profile::Sealed => Self::SEALED,
            Profile::General => Self::GENERAL,
        }
    }
}

/// What an operator sets for one image. Nothing set changes nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ImageSettings {
    /// The profile, whatever the image's label asks for.
    pub profile: Option<Profile>,
    /// A loopback in the jail's empty network namespace, for programs that talk to themselves.
    pub loopback: bool,
    /// `RLIMIT_AS` on (in the general profile too) or off (in the sealed profile too).
    pub address_space_limit: Option<bool>,
    /// `RLIMIT_DATA` on or off, whatever the image's label asks for.
    pub data_limit: Option<bool>,
}

/// The settings of every image that has some, by reference.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImagePolicies(BTreeMap<String, ImageSettings>);

impl ImagePolicies {
    /// Settings for `reference`, in place of earlier ones. `name`, `name:latest` and
    /// `docker.io/library/name` are one reference. Settings for a tag are for the same image by its digest,
    /// too.
    pub fn set(&mut self, reference: &str, settings: ImageSettings) {
        self.0.insert(canonical(reference), settings);
    }

    /// The isolation of the image that `reference` was asked for and resolved to. `digest_of` resolves
    /// another reference.
    pub(crate) fn isolation(
        &self,
        reference: &str,
        config: &ImageConfig,
        digest_of: impl Fn(&str) -> Option<String>,
    ) -> Result<Isolation, StartError> {
        let settings = self.settings(reference, digest_of)?;
        let profile = match (settings.profile, config.profile()) {
            (Some(profile), _) => profile,
            (None, ProfileLabel::Sealed) => Profile::Sealed,
            (None, ProfileLabel::None) => Profile::General,
            (None, ProfileLabel::Unknown(word)) if word == Profile::General.as_str() => {
                Profile::General
            }
            (None, ProfileLabel::Unknown(word)) => return Err(unknown(reference, &word)),
        };
        let asks = config.labels.get(DATA_LIMIT_LABEL).is_some_and(|value| value == "true");
        let plain = Isolation::from(profile);
        let isolation = Isolation {
            profile,
            loopback: settings.loopback,
            address_space_limit: settings.address_space_limit.unwrap_or(plain.address_space_limit),
            data_limit: settings.data_limit.unwrap_or(asks),
            clears: false,
        };
        isolation.check()?;
        Ok(isolation)
    }
}

impl ImagePolicies {
    /// What is set for a reference. One with tag and digest has the settings of the tag; one with a digest
    /// alone those of a tag that means this digest now. Where others of the same repository have settings
    /// and it cannot be told whether these are meant, it is refused: they may tighten.
    fn settings(
        &self,
        reference: &str,
        digest_of: impl Fn(&str) -> Option<String>,
    ) -> Result<ImageSettings, StartError> {
        let asked = canonical(reference);
        if let Some(settings) = self.0.get(&asked) {
            return Ok(*settings);
        }
        let Some((named, digest)) = asked.rsplit_once('@') else {
            return Ok(ImageSettings::default());
        };
        if let Some(settings) = self.0.get(named) {
            return Ok(*settings);
        }
        let repository = repository(named);
        let related = self.0.iter().filter(|(other, _)| self::repository(other) == repository);
        let related: Vec<_> = related.collect();
        let same = related.iter().filter(|(other, _)| digest_of(other).as_deref() == Some(digest));
        let same: Vec<_> = same.map(|(_, settings)| **settings).collect();
        match &same[..] {
            [] if related.is_empty() || named != repository => Ok(ImageSettings::default()),
            [first, rest @ ..] if rest.iter().all(|other| other == first) => Ok(*first),
            _ => Err(StartError::policy(
                format!("it cannot be told which settings of [images] are meant for {reference:?}"),
                "write a table for this reference, or name the image by its tag",
            )),
        }
    }
}

/// A canonical reference without tag and digest.
fn repository(canonical: &str) -> &str {
    let named = canonical.split_once('@').map_or(canonical, |(named, _)| named);
    // A colon before the last slash belongs to a port.
    match named.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => repository,
        _ => named,
    }
}

/// An image that asks for something stricter than is known must not get something looser.
fn unknown(reference: &str, word: &str) -> StartError {
    let word: String = word.chars().take(32).collect();
    StartError::policy(
        format!("image {reference:?} asks for the isolation profile {word:?}, which there is not"),
        "set a profile for this image: [images.\"<reference>\"] profile = \"sealed\"",
    )
}

/// The same for every way to write one reference.
fn canonical(reference: &str) -> String {
    reference
        .parse::<Reference>()
        .map_or_else(|_| reference.to_owned(), |parsed| parsed.canonical())
}

#[cfg(test)]
mod tests {
    use turnjail_protocol::PROFILE_LABEL;

    use super::*;

    fn isolation(
        labels: &[(&str, &str)],
        settings: ImageSettings,
    ) -> Result<Isolation, StartError> {
        let mut policies = ImagePolicies::default();
        policies.set("python:3", settings);
        let labels = labels.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect();
        policies.isolation("python:3", &ImageConfig { labels, ..ImageConfig::default() }, |_| None)
    }

    #[test]
    fn a_label_can_only_tighten() {
        let by_label = |labels: &[_]| isolation(labels, ImageSettings::default()).expect("known");
        assert_eq!(by_label(&[]), Isolation::GENERAL);
        assert_eq!(by_label(&[(PROFILE_LABEL, "general")]), Isolation::GENERAL);
        assert_eq!(by_label(&[(PROFILE_LABEL, "sealed")]), Isolation::SEALED);
        let limited = Isolation { data_limit: true, ..Isolation::GENERAL };
        assert_eq!(by_label(&[(DATA_LIMIT_LABEL, "true")]), limited);
        assert_eq!(by_label(&[("roundtable.sandbox.loopback", "true")]), Isolation::GENERAL);
        let error = isolation(&[(PROFILE_LABEL, "vault")], ImageSettings::default());
        assert_eq!(error.expect_err("unknown").code(), "policy");
    }

    #[test]
    fn settings_win_over_labels() {
        let general = ImageSettings { profile: Some(Profile::General), ..Default::default() };
        let sealed = ImageSettings { profile: Some(Profile::Sealed), ..Default::default() };
        let label = [(PROFILE_LABEL, "sealed")];
        assert_eq!(isolation(&label, general).expect("loosened"), Isolation::GENERAL);
        assert_eq!(isolation(&[], sealed).expect("tightened"), Isolation::SEALED);
        assert_eq!(isolation(&[(PROFILE_LABEL, "vault")], sealed).expect("set"), Isolation::SEALED);
        let limits = ImageSettings {
            address_space_limit: Some(true),
            data_limit: Some(false),
            ..Default::default()
        };
        let limited = isolation(&[(DATA_LIMIT_LABEL, "true")], limits).expect("set");
        assert_eq!(limited, Isolation { address_space_limit: true, ..Isolation::GENERAL });
    }

    #[test]
    fn a_loopback_needs_the_general_profile() {
        let loopback = ImageSettings { loopback: true, ..Default::default() };
        let with = isolation(&[], loopback).expect("general");
        assert_eq!(with, Isolation { loopback: true, ..Isolation::GENERAL });
        let error = isolation(&[(PROFILE_LABEL, "sealed")], loopback).expect_err("refused");
        assert!(error.remedy().is_some_and(|remedy| remedy.contains("general")), "{error}");
    }

    #[test]
    fn settings_are_for_one_reference() {
        let mut policies = ImagePolicies::default();
        let sealed = ImageSettings { profile: Some(Profile::Sealed), ..Default::default() };
        policies.set("python", sealed);
        let none = ImageConfig::default();
        let of = |name: &str| policies.isolation(name, &none, |_| None).expect("known").profile;
        for same in ["python", "python:latest", "docker.io/library/python"] {
            assert_eq!(of(same), Profile::Sealed, "{same}");
        }
        for other in ["python:3", "other", "registry.example/python"] {
            assert_eq!(of(other), Profile::General, "{other}");
        }
    }

    #[test]
    fn settings_of_a_tag_are_for_its_digest_too() {
        let (new, old) =
            (format!("sha256:{}", "1".repeat(64)), format!("sha256:{}", "2".repeat(64)));
        let mut policies = ImagePolicies::default();
        let sealed = ImageSettings { profile: Some(Profile::Sealed), ..Default::default() };
        policies.set("python:3", sealed);
        let none = ImageConfig::default();
        let now = |_: &str| Some(new.clone());
        let of = |name: &str| policies.isolation(name, &none, now).map(|found| found.profile);
        for meant in [format!("python:3@{old}"), format!("python:3@{new}"), format!("python@{new}")]
        {
            assert_eq!(of(&meant), Ok(Profile::Sealed), "{meant}");
        }
        for other in [format!("python:2@{old}"), format!("ruby@{new}"), "python:2".to_owned()] {
            assert_eq!(of(&other), Ok(Profile::General), "{other}");
        }
        let unclear = format!("python@{old}");
        assert!(of(&unclear).is_err_and(|error| error.to_string().contains(&unclear)));
        policies.set(&unclear, ImageSettings::default());
        let set = policies.isolation(&unclear, &none, now).map(|found| found.profile);
        assert_eq!(set, Ok(Profile::General), "said by the operator");
    }
}
