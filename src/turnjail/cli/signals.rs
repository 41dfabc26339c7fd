//! Ctrl-C, SIGTERM and SIGHUP: the turn is cancelled and cleaned up, however often they come.

use std::future::Future;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::{CliError, Exit};

/// How much later than its effect a signal may be noticed.
const MOMENT: Duration = Duration::from_millis(20);

/// SIGXFSZ, the same on x86_64 and aarch64 (signal(7)).
const FILE_TOO_LARGE: i32 = 25;

/// Listens from now on. While it lives, none of the three ends the process by itself, so that a second
/// Ctrl-C cannot interrupt the clean-up that the first one began.
pub struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
    /// Listened to so that a file over the limit (ulimit -f) is an error that says so, and not a death.
    _file_too_large: Signal,
}

impl Interrupts {
    /// Starts listening; needs a tokio runtime.
    pub fn listen() -> Result<Self, CliError> {
        let on = |kind| {
            signal(kind).map_err(|error| {
                CliError::new(
                    Exit::Failed,
                    "signals",
                    format_args!("signals cannot be listened for: {error}"),
                    "raise the limit of open files (ulimit -n)",
                )
            })
        };
        Ok(Self {
            interrupt: on(SignalKind::interrupt())?,
            terminate: on(SignalKind::terminate())?,
            hang_up: on(SignalKind::hangup())?,
            _file_too_large: on(SignalKind::from_raw(FILE_TOO_LARGE))?,
        })
    }

    /// Does some work unless a signal comes first. A terminal sends Ctrl-C to everything in the
    /// foreground, such as a helper that is just starting, so work that failed at the same moment counts
    /// as interrupted.
    pub async fn guard<T>(
        &mut self,
        work: impl Future<Output = Result<T, CliError>>,
    ) -> Result<T, CliError> {
        let error = tokio::select! {
            biased;
            exit = self.next() => return Err(cancelled(exit)),
            result = work => match result {
                Ok(done) => return Ok(done),
                Err(error) => error,
            },
        };
        match tokio::time::timeout(MOMENT, self.next()).await {
            Ok(exit) => Err(cancelled(exit)),
            Err(_) => Err(error),
        }
    }

    /// Waits for one and answers how the process should end.
    pub async fn next(&mut self) -> Exit {
        tokio::select! {
            _ = self.interrupt.recv() => Exit::Interrupted,
            _ = self.terminate.recv() => Exit::Terminated,
            _ = self.hang_up.recv() => Exit::Terminated,
        }
    }
}

/// What a cancelled command says at its end.
pub fn cancelled(exit: Exit) -> CliError {
    CliError::new(
        exit,
        "cancelled",
        "cancelled; nothing of the turn is left running",
        "run the command again",
    )
}
