//! When a failed call is tried again: only where trying again can help and cannot do harm.

use std::time::Duration;

use tokio::time::Instant;

use super::UpstreamError;

/// The wait before the first retry when the upstream names none; it doubles each time.
const FIRST_WAIT: Duration = Duration::from_millis(250);

/// Which failures may be tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetryOn {
    /// Those that another attempt may mend, for requests that change nothing.
    Passing,
    /// Those before a byte was sent, for requests that may have acted.
    Unsent,
}

/// How often and until when a call is tried.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempts {
    pub retries: u32,
    pub retry_on: RetryOn,
    pub deadline: Instant,
}

impl Attempts {
    /// Calls `attempt` until it succeeds, fails for good, or has been tried often enough; a wait that does
    /// not fit before the deadline ends it at once. Counts the retries in `retried`.
    pub async fn run<T, F>(
        self,
        retried: &mut u32,
        mut attempt: impl FnMut() -> F,
    ) -> Result<T, UpstreamError>
    where
        F: Future<Output = Result<T, UpstreamError>>,
    {
        loop {
            let error = match attempt().await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let Some(wait) = wait_before_retry(&error, self.retry_on, *retried) else {
                return Err(error);
            };
            // An upstream may name any wait, so the sum may be no time at all.
            let fits = Instant::now().checked_add(wait).is_some_and(|then| then < self.deadline);
            if *retried >= self.retries || !fits {
                return Err(error);
            }
            tracing::debug!(%error, wait_ms = wait.as_millis() as u64, "asking again");
            tokio::time::sleep(wait).await;
            *retried += 1;
        }
    }
}

/// How long to wait before another attempt, or `None` when there must be none.
fn wait_before_retry(error: &UpstreamError, retry_on: RetryOn, retried: u32) -> Option<Duration> {
    let back_off = FIRST_WAIT * 2_u32.pow(retried.min(8));
    match error {
        UpstreamError::Connect(_) => Some(back_off),
        _ if retry_on == RetryOn::Unsent => None,
        UpstreamError::NoAnswer(_) => Some(back_off),
        UpstreamError::Status { status: 429 | 500 | 502 | 503 | 504, retry_after } => {
            Some(retry_after.unwrap_or(back_off))
        }
        _ => None,
    }
}
