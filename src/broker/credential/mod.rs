//! Where credentials come from, and how they are kept: asked for on every call, wiped on drop, never shown.

mod file;
mod secret;
mod slot;
mod source;

pub use secret::Secret;
pub(crate) use slot::{Slot, header_name};
pub(crate) use source::SHORTEST_CHECKED;
use source::Source;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;

use crate::Principal;

/// For whom a credential is asked.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct CredentialRequest<'a> {
    /// The channel, for example `discord:1234`; empty when the host itself asks an MCP server for its
    /// tools at start-up.
    pub channel: &'a str,
    /// The space the channel belongs to, when it has one.
    pub space: Option<&'a str>,
    /// Whose turn it is.
    pub speaker: &'a Principal,
}

impl<'a> CredentialRequest<'a> {
    /// The request of the host itself at start-up, when there is no turn yet.
    pub(crate) fn at_start(nobody: &'a Principal) -> Self {
        Self { channel: "", space: None, speaker: nobody }
    }
}

/// Why a source gave no credential. The text is for the host's log; it must not hold a credential.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct CredentialError(String);

impl CredentialError {
    /// An error with one sentence that names the source.
    pub fn new(problem: impl Into<String>) -> Self {
        Self(problem.into())
    }
}

/// An embedder's own source of credentials.
#[async_trait]
pub trait CredentialSource: Send + Sync {
    /// The credential for a call, or `None` when there is none for this channel and speaker: the call then
    /// fails. Dropping the future must cancel the request.
    async fn credential(
        &self,
        request: CredentialRequest<'_>,
    ) -> Result<Option<Secret>, CredentialError>;
}

/// Where a credential comes from. It is asked for on every call.
#[derive(Clone)]
#[non_exhaustive]
pub enum Credential {
    /// The endpoint wants none: no header is sent and no answer is searched for it.
    None,
    /// An environment variable of the host process.
    Env(String),
    /// A file of at most 64 KiB, trimmed, read again when it changes.
    File(PathBuf),
    /// A program and its arguments, without a shell. It gets `{"channel","space","speaker"}` as JSON on its
    /// standard input and has 10 s to print the credential, which is trimmed.
    Command(Vec<String>),
    /// The embedder's own source.
    Source(Arc<dyn CredentialSource>),
}

impl Credential {
    /// The credential for something that the host does itself, outside of any turn: none where none is
    /// wanted. `setting` names it in errors.
    pub async fn for_host(&self, setting: &str) -> Result<Option<Secret>, CredentialError> {
        let checked = Source::check(setting, self);
        let source = checked.map_err(|error| CredentialError::new(error.to_string()))?;
        let nobody = Principal::default();
        match source {
            None => Ok(None),
            Some(source) => source.get(CredentialRequest::at_start(&nobody)).await.map(Some),
        }
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Env(name) => f.debug_tuple("Env").field(name).finish(),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            // Arguments may hold what an operator should not have put there.
            Self::Command(argv) => f.debug_tuple("Command").field(&argv.first()).finish(),
            Self::Source(_) => f.write_str("Source"),
        }
    }
}
