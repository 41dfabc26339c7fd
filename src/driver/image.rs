//! What every driver checks of an image before a turn: its reference, its architecture and its entry
//! point, and which protocol its label names.

use crate::spec::check_image;
use crate::{DriverError, ImageProtocol, SpecError};

/// What is known of an image that exists on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageFacts<'a> {
    /// The image as asked for.
    pub reference: &'a str,
    /// Its operating system in the words of OCI, `linux`; none where the image does not say.
    pub os: Option<&'a str>,
    /// Its architecture in the words of OCI, for example `amd64`; none where the image does not say.
    pub architecture: Option<&'a str>,
    /// Whether it names a program: an Entrypoint or a Cmd that is not empty.
    pub has_program: bool,
}

impl ImageFacts<'_> {
    /// Refuses an image that no worker can be started from on this host.
    pub fn check(&self) -> Result<(), DriverError> {
        let image = self.reference;
        let refuse = |cause: String, remedy: &str| {
            Err(DriverError::Image { cause, remedy: remedy.to_owned() })
        };
        match self.os {
            Some(os) if os != "linux" => {
                return refuse(
                    format!("image {image} is for {os}, and this host runs linux"),
                    "use an image for linux",
                );
            }
            _ => {}
        }
        match (self.architecture, host_architecture()) {
            (Some(of_image), of_host) if of_image != of_host => refuse(
                format!("image {image} is for {of_image}, and this host is {of_host}"),
                "import or pull the image for this host's architecture",
            ),
            _ if !self.has_program => refuse(
                format!("image {image} names no program"),
                "set its Entrypoint or Cmd and build it again",
            ),
            _ => Ok(()),
        }
    }
}

impl ImageProtocol {
    /// The version that the value of the label `roundtable.sandbox.protocol` says: a positive decimal
    /// integer and nothing else.
    pub fn of_label(value: Option<&str>) -> Self {
        let decimal = |text: &&str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let version = value.filter(decimal).and_then(|text| text.parse().ok());
        version.filter(|&version| version > 0).map_or(Self::Unlabelled, Self::Version)
    }
}

/// Refuses what is no image reference, with the reason.
pub fn check_reference(reference: &str) -> Result<(), SpecError> {
    check_image(reference)
}

/// The architecture of this host in the words of OCI, which are those of Go.
pub fn host_architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> ImageFacts<'static> {
        ImageFacts {
            reference: "worker:1",
            os: Some("linux"),
            architecture: Some(host_architecture()),
            has_program: true,
        }
    }

    #[test]
    fn an_image_for_this_host_with_a_program_passes() {
        assert!(facts().check().is_ok());
        assert!(ImageFacts { os: None, architecture: None, ..facts() }.check().is_ok());
    }

    #[test]
    fn others_are_refused_with_their_name_and_the_reason() {
        for (bad, says) in [
            (ImageFacts { os: Some("windows"), ..facts() }, "windows"),
            (ImageFacts { architecture: Some("s390x"), ..facts() }, "s390x"),
            (ImageFacts { has_program: false, ..facts() }, "no program"),
        ] {
            let error = bad.check().unwrap_err();
            assert!(matches!(error, DriverError::Image { .. }) && error.remedy().is_some());
            let cause = error.to_string();
            assert!(cause.contains("worker:1") && cause.contains(says), "{cause}");
        }
    }

    #[test]
    fn only_positive_decimal_integers_are_versions() {
        assert_eq!(ImageProtocol::of_label(Some("2")), ImageProtocol::Version(2));
        assert_eq!(ImageProtocol::of_label(Some("007")), ImageProtocol::Version(7));
        for odd in ["", "0", "-1", "+2", "2.0", " 2", "two", "99999999999", "2\n"] {
            assert_eq!(ImageProtocol::of_label(Some(odd)), ImageProtocol::Unlabelled, "{odd:?}");
        }
        assert_eq!(ImageProtocol::of_label(None), ImageProtocol::Unlabelled);
    }
}
