//! Why a runtime does not start, and why a turn gave no reply.

use std::path::PathBuf;
use std::time::Duration;

use turnjail_driver::{DriverError, ExitReason, Receipt};

use crate::TurnResult;

/// Why a runtime does not start. Each message is one sentence that names the option.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// An option's value is not allowed.
    #[error("{option} {problem}")]
    Option {
        /// The option, for example `turn_timeout`.
        option: &'static str,
        /// What is wrong with it, with the allowed range.
        problem: String,
        /// What to do, where the allowed range does not say it.
        remedy: Option<String>,
    },
    /// A root directory cannot be used.
    #[error("{option} {path:?} {problem}")]
    Root {
        /// `run_root` or `workspace_root`.
        option: &'static str,
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
        /// What to do.
        remedy: String,
    },
    /// A skill cannot be used.
    #[error("skills: {file:?}{}: {problem}", line.map(|line| format!(" line {line}")).unwrap_or_default())]
    Skill {
        /// The file or directory.
        file: PathBuf,
        /// The line, counted from 1, where there is one.
        line: Option<u64>,
        /// What is wrong with it.
        problem: String,
    },
    /// Settings under which every turn would fail.
    #[error("every turn would fail: {problem}")]
    EveryTurn {
        /// Why.
        problem: String,
        /// What to do.
        remedy: String,
    },
    /// The image's worker is older than an option needs.
    #[error("{problem}")]
    Protocol {
        /// Which image, which options, which versions.
        problem: String,
        /// What to do.
        remedy: String,
    },
    /// The process runs as a user whose files no worker may own.
    #[error("the host runs as user {uid} and group {gid}, and workers would have the same ids")]
    User {
        /// The process's user.
        uid: u32,
        /// The process's group.
        gid: u32,
    },
    /// The broker does not start.
    #[error(transparent)]
    Broker(#[from] turnjail_broker::SetupError),
    /// The driver cannot run the image here.
    #[error(transparent)]
    Driver(#[from] DriverError),
}

impl SetupError {
    pub(crate) fn option(option: &'static str, problem: impl Into<String>) -> Self {
        Self::Option { option, problem: problem.into(), remedy: None }
    }

    /// A stable word for logs and machines.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Option { .. } => "option",
            Self::Root { .. } => "root",
            Self::Skill { .. } => "skill",
            Self::EveryTurn { .. } => "every-turn",
            Self::Protocol { .. } => "image-protocol",
            Self::User { .. } => "root-user",
            Self::Broker(error) => error.code(),
            Self::Driver(error) => error.code(),
        }
    }

    /// One line saying what to do, when the message does not say it.
    pub fn remedy(&self) -> Option<&str> {
        match self {
            Self::Option { remedy, .. } => remedy.as_deref(),
            Self::Root { remedy, .. }
            | Self::EveryTurn { remedy, .. }
            | Self::Protocol { remedy, .. } => Some(remedy),
            Self::Skill { .. } => Some("repair the skill, or take its directory out of skills"),
            Self::User { .. } => Some("run the host as an ordinary user"),
            Self::Broker(error) => error.remedy(),
            Self::Driver(error) => error.remedy(),
        }
    }
}

/// Why a turn gave no reply. Each message is one sentence.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TurnError {
    /// The channel has a turn running or waiting already.
    #[error("the channel has a turn already")]
    ChannelBusy,
    /// As many turns wait for the workspace as may wait.
    #[error("{waiting} turns wait for the workspace already")]
    QueueFull {
        /// How many wait.
        waiting: usize,
    },
    /// The turn waited for its workspace as long as a turn may.
    #[error("the workspace was not free within {} s", after.as_secs_f64())]
    WaitedTooLong {
        /// How long.
        after: Duration,
    },
    /// Another runtime or process uses the workspace.
    #[error("the workspace is in use by {holder}")]
    WorkspaceBusy {
        /// Who, as they say.
        holder: String,
    },
    /// The turn was stopped.
    #[error("the turn was stopped{}", if *.waiting { " while waiting for its workspace" } else { "" })]
    Stopped {
        /// Whether it had not begun to run.
        waiting: bool,
    },
    /// The runtime takes no turns any more.
    #[error("the runtime is shutting down")]
    ShuttingDown,
    /// The turn ran as long as a turn may.
    #[error("the turn was not finished within {} s", after.as_secs_f64())]
    Timeout {
        /// How long.
        after: Duration,
    },
    /// The message, a name, or the whole turn is too large.
    #[error("{what} has {size}, and at most {limit} are allowed")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// How large it is, with its unit.
        size: String,
        /// How large it may be.
        limit: usize,
    },
    /// Something in the request is not as it must be.
    #[error("{problem}")]
    Refused {
        /// What.
        problem: String,
    },
    /// The worker ran and gave no reply.
    #[error("{cause}")]
    WorkerFailed {
        /// The worker's own failure code, when it gave one.
        code: Option<String>,
        /// How its run ended.
        reason: ExitReason,
        /// One sentence.
        cause: String,
        /// The record of the run.
        receipt: Box<Receipt>,
    },
    /// The driver could not run a worker.
    #[error(transparent)]
    Driver(DriverError),
    /// The host failed: a directory, the broker's socket, or a defect.
    #[error("{cause}")]
    Host {
        /// One sentence naming the object.
        cause: String,
        /// What to do, when something can be done.
        remedy: Option<String>,
    },
    /// The turn is over and something of it is left.
    #[error("{cause}")]
    Cleanup {
        /// What is left.
        cause: String,
        /// What to do.
        remedy: String,
        /// What came of the turn, when it succeeded otherwise.
        result: Option<Box<TurnResult>>,
    },
}

impl TurnError {
    /// A stable word for logs and machines.
    pub fn code(&self) -> &'static str {
        match self {
            Self::ChannelBusy => "channel-busy",
            Self::QueueFull { .. } => "queue-full",
            Self::WaitedTooLong { .. } => "waited-too-long",
            Self::WorkspaceBusy { .. } => "workspace-busy",
            Self::Stopped { .. } => "stopped",
            Self::ShuttingDown => "shutting-down",
            Self::Timeout { .. } => "timeout",
            Self::TooLarge { .. } => "too-large",
            Self::Refused { .. } => "refused",
            Self::WorkerFailed { reason, .. } => reason.as_str(),
            Self::Driver(error) => error.code(),
            Self::Host { .. } => "host",
            Self::Cleanup { .. } => "cleanup",
        }
    }

    /// One line saying what to do, when something can be done.
    pub fn remedy(&self) -> Option<&str> {
        match self {
            Self::ChannelBusy => Some("wait for the channel's turn to end, or stop it"),
            Self::QueueFull { .. } | Self::WaitedTooLong { .. } => Some("try again later"),
            Self::WorkspaceBusy { .. } => Some("wait for the other process, or end it"),
            Self::Driver(error) => error.remedy(),
            Self::Host { remedy, .. } => remedy.as_deref(),
            Self::Cleanup { remedy, .. } => Some(remedy),
            Self::WorkerFailed { reason, .. } => worker_remedy(*reason),
            _ => None,
        }
    }

    /// Whether the turn was declined or ended before it ran: nothing of it happened, and the same turn
    /// may succeed later.
    pub fn is_busy(&self) -> bool {
        matches!(
            self,
            Self::ChannelBusy
                | Self::QueueFull { .. }
                | Self::WaitedTooLong { .. }
                | Self::WorkspaceBusy { .. }
        )
    }

    pub(crate) fn refused(problem: impl Into<String>) -> Self {
        Self::Refused { problem: problem.into() }
    }
}

fn worker_remedy(reason: ExitReason) -> Option<&'static str> {
    match reason {
        ExitReason::Memory => Some("raise memory_mb, or have the guest ask for less"),
        ExitReason::Cpu => Some("raise cpus or turn_timeout"),
        ExitReason::Disk => Some("remove files of the workspace"),
        _ => None,
    }
}
