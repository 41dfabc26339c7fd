//! Why a broker does not start or listen.

use std::io;
use std::path::PathBuf;

/// Why [`Broker::start`](crate::Broker::start) refuses. Each message is one sentence that names the setting;
/// none holds a credential.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// A setting's value is not allowed.
    #[error("{setting} {problem}")]
    Setting {
        /// The setting, for example `max_calls` or `mcp.files.tools.get_sum`.
        setting: String,
        /// What is wrong with it, with the allowed range.
        problem: String,
    },
    /// A file that a setting names cannot be used.
    #[error("{setting}: cannot read {}: {error}", path.display())]
    File {
        /// The setting.
        setting: String,
        /// The file.
        path: PathBuf,
        /// The system's answer.
        error: io::Error,
    },
    /// An MCP server does not answer as it must at start-up.
    #[error("MCP server {server}: {problem}")]
    Mcp {
        /// The server's declared name.
        server: String,
        /// What it did not do.
        problem: String,
    },
}

impl SetupError {
    pub(crate) fn setting(setting: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Setting { setting: setting.into(), problem: problem.into() }
    }

    pub(crate) fn mcp(server: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Mcp { server: server.into(), problem: problem.into() }
    }

    /// A stable word for logs and machines.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Setting { .. } => "broker-setting",
            Self::File { .. } => "broker-file",
            Self::Mcp { .. } => "mcp-server",
        }
    }

    /// One line saying what to do.
    pub fn remedy(&self) -> Option<&str> {
        match self {
            Self::Setting { .. } => None,
            Self::File { .. } => Some("name a readable file, or remove the setting"),
            Self::Mcp { .. } => {
                Some("start or repair the server, or remove it from the configuration")
            }
        }
    }
}

/// Why a turn's broker cannot listen.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on the broker socket {}: {step}: {error}", path.display())]
pub struct ListenError {
    pub(crate) path: PathBuf,
    pub(crate) step: &'static str,
    pub(crate) error: io::Error,
}

impl ListenError {
    /// A stable word for logs and machines.
    pub fn code(&self) -> &'static str {
        "broker-listen"
    }

    /// One line saying what to do, when something can be done.
    pub fn remedy(&self) -> Option<&str> {
        match self.error.raw_os_error() {
            Some(libc_code) if libc_code == nix::libc::EMFILE || libc_code == nix::libc::ENFILE => {
                Some("raise the limit of open files, or run fewer turns at once")
            }
            Some(libc_code) if libc_code == nix::libc::ENOSPC || libc_code == nix::libc::EDQUOT => {
                Some("free space or inodes under the run directory")
            }
            _ => None,
        }
    }
}
