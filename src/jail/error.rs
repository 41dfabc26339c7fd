//! Why a jail or the warden could not be made.

use rustix::io::Errno;
use turnjail_driver::DriverError;
use turnjail_warden::canary::Attempt;
use turnjail_warden::step::Step;
use turnjail_warden::wire::{Failure, Status};

use crate::causes::evidence::Evidence;
use crate::causes::surroundings::Kind;
use crate::causes::table;
use crate::causes::{Advice, advise};
use crate::limits::watch::is_over;
use crate::stage;

/// Why a jail or the warden could not be made: the step, the object, the system's answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A step of the warden or of a jail failed.
    #[error("{}", stage::cause(*failure, object.as_deref()))]
    Step {
        /// The step and its errno.
        failure: Failure,
        /// What it was done to, for example a path.
        object: Option<String>,
    },
    /// The host's own part failed.
    #[error("cannot {what}: {errno}{}", self.because())]
    Host {
        /// What was tried.
        what: &'static str,
        /// The system's answer.
        errno: Errno,
    },
    /// The warden's program cannot be executed.
    #[error("cannot execute the warden: {}{}", .0, self.because())]
    Execute(Errno),
    /// The warden was gone before it said whether it is ready.
    #[error("cannot set up the warden{}", self.because())]
    WardenKilled,
    /// The warden ended while it was needed.
    #[error("the warden ended while the jail was running")]
    WardenDied,
    /// A wall does not stand: a throw-away program could do what must be refused.
    #[error("a jailed program could {} ({status:?})", attempt.words())]
    Breach {
        /// What it did.
        attempt: Attempt,
        /// How it ended.
        status: Status,
    },
    /// A policy of the operator is not met.
    #[error("{what}")]
    Policy {
        /// What is missing.
        what: String,
        /// What to do.
        remedy: String,
    },
}

impl StartError {
    pub(crate) fn host(what: &'static str, errno: Errno) -> Self {
        Self::Host { what, errno }
    }

    pub(crate) fn policy(what: impl Into<String>, remedy: &str) -> Self {
        Self::Policy { what: what.into(), remedy: remedy.to_owned() }
    }

    pub(crate) fn execute(error: &std::io::Error) -> Self {
        Self::Execute(Errno::from_io_error(error).unwrap_or(Errno::IO))
    }

    /// The cause, after a colon, when it is known.
    fn because(&self) -> String {
        self.advice().map(|advice| format!(": {}", advice.why)).unwrap_or_default()
    }

    pub(crate) fn step(failure: Failure, object: Option<String>) -> Self {
        Self::Step { failure, object }
    }

    /// A stable word, the same that `doctor` prints.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Step { .. } => self.advice().map_or("jail", |advice| advice.code),
            Self::Host { .. } => self.advice().map_or("host", |advice| advice.code),
            Self::Execute(_) => self.advice().map_or("warden-exec", |advice| advice.code),
            Self::WardenKilled => table::WARDEN_KILLED.code,
            Self::WardenDied => "warden-died",
            Self::Breach { .. } => "breach",
            Self::Policy { .. } => "policy",
        }
    }

    /// One line saying what to do, when known.
    pub fn remedy(&self) -> Option<String> {
        match self {
            Self::Step { .. } | Self::Host { .. } | Self::Execute(_) | Self::WardenKilled => {
                self.advice().map(|advice| advice.remedy)
            }
            Self::WardenDied => Some("try again; turnjail starts another warden".to_owned()),
            Self::Breach { .. } => Some(
                "do not use this host for turns; report the output of turnjail doctor".to_owned(),
            ),
            Self::Policy { remedy, .. } => Some(remedy.clone()),
        }
    }

    /// The cause in the table, when it is there.
    pub(crate) fn advice(&self) -> Option<Advice> {
        let here = Evidence::here();
        let plain = |cause| Some(advise(cause, &here, &[]));
        match self {
            Self::Step { failure, .. } => stage::advice(*failure, &here),
            Self::Host { errno, .. } | Self::Execute(errno) if too_many_files(*errno) => {
                plain(&table::OPEN_FILES)
            }
            Self::Host { errno, .. } | Self::Execute(errno) if *errno == Errno::AGAIN => {
                plain(&table::PROCESS_LIMIT)
            }
            Self::Host { errno, .. } | Self::Execute(errno) if *errno == Errno::NOMEM => {
                plain(&table::MEMORY)
            }
            Self::Host { errno, .. } if *errno == Errno::NOSYS => {
                plain(if Kind::of(&here) == Kind::Jail {
                    &table::NESTED_TURNJAIL
                } else {
                    &table::OLD_KERNEL
                })
            }
            Self::Host { errno, .. } if *errno == Errno::FBIG => plain(&table::FILE_TOO_LARGE),
            Self::Execute(_) if !here.exists("/proc/self/status") => plain(&table::NO_PROC),
            Self::Execute(_) => match here.sysctl("vm.memfd_noexec") {
                Some(value) if value != "0" => {
                    Some(advise(&table::MEMFD_NOEXEC, &here, &[("value", &value)]))
                }
                _ => plain(&table::WARDEN_EXEC),
            },
            Self::WardenKilled => plain(&table::WARDEN_KILLED),
            _ => None,
        }
    }

    /// Whether the failing step is one of the warden itself, so that no jail at all can be made.
    pub fn is_total(&self) -> bool {
        match self {
            Self::Step { failure, .. } => (failure.step as u8) <= Step::Propagation as u8,
            _ => true,
        }
    }
}

fn too_many_files(errno: Errno) -> bool {
    stage::TOO_MANY_FILES.contains(&errno)
}

impl From<StartError> for DriverError {
    fn from(error: StartError) -> Self {
        let (code, cause, remedy) = (error.code(), error.to_string(), error.remedy());
        if is_over(&error) {
            return Self::Workspace { code, cause, remedy };
        }
        Self::Start { code, cause, remedy }
    }
}
