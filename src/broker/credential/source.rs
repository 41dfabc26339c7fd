//! A declared source, checked at start-up and asked on every call.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::file::SecretFile;
use super::{Credential, CredentialError, CredentialRequest, CredentialSource, Secret};
use crate::error::SetupError;
use crate::process::{self, Program};

/// How long a credential's program may take.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
/// The most a credential's program may print.
const COMMAND_OUTPUT: usize = 64 * 1024;
/// Credentials under this length are not looked for in answers: they would be found everywhere.
pub(crate) const SHORTEST_CHECKED: usize = 8;

/// A source that has been checked.
#[derive(Clone)]
pub(crate) struct Source(Kind);

#[derive(Clone)]
enum Kind {
    Env(String),
    File(Arc<SecretFile>),
    Command(Arc<[String]>),
    Custom(Arc<dyn CredentialSource>),
}

impl Source {
    /// Checks a declared source; `None` when the endpoint wants no credential. A variable or a file must
    /// hold a credential already: finding out at the first guest's message would be too late.
    pub fn check(setting: &str, credential: &Credential) -> Result<Option<Self>, SetupError> {
        let kind = match credential {
            Credential::None => return Ok(None),
            Credential::Env(name) => {
                let secret = from_env(name).ok_or_else(|| {
                    SetupError::setting(
                        setting,
                        format!("names the variable {name}, which is not set or empty"),
                    )
                })?;
                warn_if_short(setting, &secret);
                Kind::Env(name.clone())
            }
            Credential::File(path) => {
                let file = SecretFile::new(path.clone());
                let secret = file.read().map_err(|error| SetupError::File {
                    setting: setting.to_owned(),
                    path: path.clone(),
                    error,
                })?;
                if secret.expose().is_empty() {
                    return Err(SetupError::setting(
                        setting,
                        format!("names the file {}, which is empty", path.display()),
                    ));
                }
                warn_if_short(setting, &secret);
                Kind::File(Arc::new(file))
            }
            Credential::Command(argv) => {
                if argv.first().is_none_or(String::is_empty) {
                    return Err(SetupError::setting(setting, "names a command without a program"));
                }
                Kind::Command(argv.clone().into())
            }
            Credential::Source(source) => Kind::Custom(Arc::clone(source)),
        };
        Ok(Some(Self(kind)))
    }

    /// The credential for a call; nothing and an empty text are failures.
    pub async fn get(&self, request: CredentialRequest<'_>) -> Result<Secret, CredentialError> {
        let (secret, named) = match &self.0 {
            Kind::Env(name) => (from_env(name), format!("variable {name}")),
            Kind::File(file) => {
                let named = format!("file {}", file.path().display());
                let secret = file.read().map_err(|error| {
                    CredentialError::new(format!("credential {named}: {error}"))
                })?;
                (Some(secret), named)
            }
            Kind::Command(argv) => {
                (Some(from_command(argv, request).await?), format!("command {}", argv[0]))
            }
            Kind::Custom(source) => (source.credential(request).await?, "source".to_owned()),
        };
        secret
            .filter(|secret| !secret.expose().is_empty())
            .ok_or_else(|| CredentialError::new(format!("the credential {named} yields nothing")))
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Kind::Env(_) => "Source(env)",
            Kind::File(_) => "Source(file)",
            Kind::Command(_) => "Source(command)",
            Kind::Custom(_) => "Source(custom)",
        })
    }
}

fn warn_if_short(setting: &str, secret: &Secret) {
    if secret.expose().len() < SHORTEST_CHECKED {
        tracing::warn!(
            setting,
            "the credential is under {SHORTEST_CHECKED} bytes, so answers are not searched for it"
        );
    }
}

fn from_env(name: &str) -> Option<Secret> {
    // Names with these characters make the standard library panic.
    if name.is_empty() || name.contains(['=', '\0']) {
        return None;
    }
    std::env::var(name)
        .ok()
        .map(|text| Secret::new(text).trimmed())
        .filter(|secret| !secret.expose().is_empty())
}

async fn from_command(
    argv: &[String],
    request: CredentialRequest<'_>,
) -> Result<Secret, CredentialError> {
    let input = json!({
        "channel": request.channel,
        "space": request.space,
        "speaker": {
            "id": request.speaker.id,
            "name": request.speaker.name,
            "principalId": request.speaker.principal_id,
        },
    });
    let program = Program {
        argv,
        env: &BTreeMap::new(),
        context: None,
        stdin: input.to_string().into_bytes(),
        output_limit: COMMAND_OUTPUT,
        timeout: COMMAND_TIMEOUT,
    };
    process::run_secret(program)
        .await
        .map_err(|error| CredentialError::new(format!("credential command: {error}")))
}
