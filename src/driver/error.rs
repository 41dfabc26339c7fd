//! Why a driver could not give a reply.

use crate::{ExitReason, Receipt, SpecError};

/// Why a driver could not give a reply. Each variant is one sentence naming the object; the remedy is
/// apart, and the code is stable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriverError {
    /// The specification is refused before anything is started.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The image is absent or not usable.
    #[error("{cause}")]
    Image {
        /// One sentence naming the image.
        cause: String,
        /// What to do.
        remedy: String,
    },
    /// The sealed place could not be made.
    #[error("{cause}")]
    Start {
        /// A stable code, for example `userns-disabled`, the same that `doctor` prints.
        code: &'static str,
        /// One sentence naming the step, the object and the errno.
        cause: String,
        /// What to do, when known.
        remedy: Option<String>,
    },
    /// A directory that the worker may write holds too much already; nothing was started.
    #[error("{cause}")]
    Workspace {
        /// A stable code, for example `workspace-full`.
        code: &'static str,
        /// One sentence naming the directory and the bound.
        cause: String,
        /// What to do.
        remedy: Option<String>,
    },
    /// The worker ran and gave no valid reply.
    #[error("{cause}")]
    Worker {
        /// Why it ended.
        reason: ExitReason,
        /// One sentence.
        cause: String,
        /// The worker's own failure code from the documented list, when it gave one.
        worker_code: Option<String>,
        /// The record of the run.
        receipt: Box<Receipt>,
    },
    /// The run was cancelled; nothing of it is left.
    #[error("the turn was cancelled")]
    Cancelled,
    /// Something could not be cleaned up.
    #[error("{cause}")]
    Cleanup {
        /// One sentence naming what is left.
        cause: String,
        /// What to do.
        remedy: String,
    },
}

impl DriverError {
    /// A stable word for logs and machines.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Spec(_) => "spec",
            Self::Image { .. } => "image",
            Self::Start { code, .. } | Self::Workspace { code, .. } => code,
            Self::Worker { reason, .. } => reason.as_str(),
            Self::Cancelled => "cancelled",
            Self::Cleanup { .. } => "cleanup",
        }
    }

    /// One line saying what to do, when something can be done.
    pub fn remedy(&self) -> Option<&str> {
        match self {
            Self::Image { remedy, .. } | Self::Cleanup { remedy, .. } => Some(remedy),
            Self::Start { remedy, .. } | Self::Workspace { remedy, .. } => remedy.as_deref(),
            // Only the kernel knows: a parent is told the signal alone.
            Self::Worker { reason: ExitReason::Filter, .. } => Some(
                "the kernel's log names the call and the machine's ABI: journalctl -k --grep=type=1326 \
                 (syscall=, arch=), as root or in the group systemd-journal",
            ),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Timing, Usage};

    #[test]
    fn a_death_by_the_filter_is_where_the_kernel_has_it() {
        let remedy = |reason| {
            let receipt = Receipt {
                driver: "jail",
                image: String::new(),
                image_digest: None,
                profile: None,
                loopback: None,
                walls: Vec::new(),
                limits: Vec::new(),
                exit: reason,
                timing: Timing { start_us: 1, run_us: 1, prepared: false },
                usage: Usage::default(),
            };
            let receipt = Box::new(receipt);
            let cause = "it ended".to_owned();
            let error = DriverError::Worker { reason, cause, worker_code: None, receipt };
            error.remedy().map(str::to_owned)
        };
        let words = remedy(ExitReason::Filter).expect("a remedy");
        for part in ["journalctl -k --grep=type=1326", "systemd-journal", "syscall=", "arch="] {
            assert!(words.contains(part), "{part}: {words}");
        }
        assert!(!words.contains('\n'), "one line");
        assert_eq!(remedy(ExitReason::WorkerFailed), None);
    }
}
