//! How an endpoint's credential gets into a request.

use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue};

use super::{Credential, CredentialError, CredentialRequest, Secret, Source};
use crate::error::SetupError;
use crate::settings::CredentialHeader;

/// Names that a request has by itself or that would change how it is read.
const RESERVED: [&str; 12] = [
    "accept",
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// An endpoint's credential: where it comes from and which header carries it.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    source: Source,
    header: HeaderName,
    prefix: &'static str,
}

impl Slot {
    /// Checks the settings of one endpoint; `None` when it wants no credential. `setting` names the
    /// credential's own setting.
    pub fn check(
        setting: &str,
        credential: &Credential,
        header: &CredentialHeader,
    ) -> Result<Option<Self>, SetupError> {
        let (header, prefix) = match header {
            CredentialHeader::Bearer => (AUTHORIZATION, "Bearer "),
            CredentialHeader::Named(name) => (header_name(&format!("{setting}_header"), name)?, ""),
        };
        let source = Source::check(setting, credential)?;
        Ok(source.map(|source| Self { source, header, prefix }))
    }

    /// The name of the header that carries it.
    pub fn header(&self) -> &HeaderName {
        &self.header
    }

    /// Asks for the credential.
    pub async fn get(&self, request: CredentialRequest<'_>) -> Result<Secret, CredentialError> {
        self.source.get(request).await
    }

    /// The header's value for a credential.
    pub fn header_value(&self, secret: &Secret) -> Result<HeaderValue, CredentialError> {
        secret.header_value(self.prefix).ok_or_else(|| {
            CredentialError::new("the credential has characters that cannot stand in a header")
        })
    }
}

/// Checks the name of a header that the operator adds.
pub(crate) fn header_name(setting: &str, name: &str) -> Result<HeaderName, SetupError> {
    name.parse::<HeaderName>().ok().filter(|name| !RESERVED.contains(&name.as_str())).ok_or_else(
        || {
            SetupError::setting(
                setting,
                format!("names `{name}`, which is no header that may be set"),
            )
        },
    )
}
