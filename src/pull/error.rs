//! Why an image was not pulled.

use oci_client::errors::{OciDistributionError, OciErrorCode};
use turnjail_images::ImageError;

/// Why an image was not pulled: one sentence naming the registry or image; the remedy apart. No error holds
/// a credential or the address of a signed download.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PullError {
    /// The registry does not let this user pull.
    #[error("registry {registry} refuses: {what}")]
    Denied {
        /// The registry.
        registry: String,
        /// What it said, in words of our own.
        what: &'static str,
    },
    /// The registry does not have it.
    #[error("registry {0} does not have the image")]
    Absent(String),
    /// The registry cannot be reached, or does not answer as one.
    #[error("registry {registry}: {what}")]
    Registry {
        /// The registry.
        registry: String,
        /// What went wrong.
        what: String,
    },
    /// What came is no image for this machine, or breaks a rule.
    #[error(transparent)]
    Image(#[from] ImageError),
}

impl PullError {
    /// A stable word for logs and machines.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Denied { .. } => "registry-denied",
            Self::Absent(_) => "registry-absent",
            Self::Registry { .. } => "registry",
            Self::Image(error) => error.code(),
        }
    }

    /// One line saying what to do.
    pub fn remedy(&self) -> String {
        match self {
            Self::Denied { registry, .. } => format!(
                "set username and password of [[registries]] host = {registry:?} to an account that may pull"
            ),
            Self::Absent(_) => {
                "check name and tag; some registries say this of private images too".to_owned()
            }
            Self::Registry { registry, .. } => format!(
                "check the network and the registry's name; for one without TLS set allow_http of \
                 [[registries]] host = {registry:?}"
            ),
            Self::Image(error) => error.remedy(),
        }
    }

    pub(crate) fn of(registry: &str, error: OciDistributionError) -> Self {
        let registry = registry.to_owned();
        let other = |what: String| Self::Registry { registry: registry.clone(), what };
        let denied = |what| Self::Denied { registry: registry.clone(), what };
        match error {
            OciDistributionError::UnauthorizedError { .. }
            | OciDistributionError::ServerError { code: 401 | 403, .. } => {
                denied("it wants a login")
            }
            OciDistributionError::AuthenticationFailure(_) => denied("the login is wrong"),
            OciDistributionError::RegistryError { envelope, .. } => {
                let has = |codes: &[OciErrorCode]| {
                    envelope.errors.iter().any(|error| codes.contains(&error.code))
                };
                if has(&[OciErrorCode::Unauthorized, OciErrorCode::Denied]) {
                    denied("this login may not pull the image, or there is none")
                } else if has(&[
                    OciErrorCode::ManifestUnknown,
                    OciErrorCode::NameUnknown,
                    OciErrorCode::NotFound,
                    OciErrorCode::BlobUnknown,
                ]) {
                    Self::Absent(registry)
                } else {
                    other("it answers with an error".to_owned())
                }
            }
            OciDistributionError::ImageManifestNotFoundError(_)
            | OciDistributionError::ServerError { code: 404, .. } => Self::Absent(registry),
            OciDistributionError::ServerError { code, .. } => {
                other(format!("it answers with status {code}"))
            }
            // Addresses of downloads can carry signatures.
            OciDistributionError::RequestError(error) => other(chain(&error.without_url())),
            OciDistributionError::DigestError(_) => {
                other("it sent something else than what was promised by its digest".to_owned())
            }
            OciDistributionError::IoError(error) => other(format!("a part of the image: {error}")),
            OciDistributionError::SpecViolationError(what) => other(what),
            _ => other("it does not answer as a registry".to_owned()),
        }
    }
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}
