//! When a failed call is tried again: only where trying again can help and cannot do harm.

use std::time::Duration;

use tokio::time::Instant;

use super::UpstreamError;

/// The wait before the first retry when the upstream names none; it doubles each time.
const FIRST_WAIT: Duration = Duration::from_millis(250);

/// Calls `attempt` until it succeeds, fails for good, or has been retried `retries` times; a wait that does
/// not fit before `deadline` ends it at once. Returns how often it was retried as well.
pub(crate) async fn with_retries<T, F>(
    retries: u32,
    deadline: Instant,
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
        let Some(wait) = wait_before_retry(&error, *retried) else { return Err(error) };
        if *retried >= retries || Instant::now() + wait >= deadline {
            return Err(error);
        }
        tracing::debug!(%error, wait_ms = wait.as_millis() as u64, "asking the model again");
        tokio::time::sleep(wait).await;
        *retried += 1;
    }
}

/// How long to wait before another attempt, or `None` when there must be none.
fn wait_before_retry(error: &UpstreamError, retried: u32) -> Option<Duration> {
    let back_off = FIRST_WAIT * 2_u32.pow(retried.min(8));
    match error {
        UpstreamError::Connect(_) | UpstreamError::NoAnswer(_) => Some(back_off),
        UpstreamError::Status { status: 429 | 500 | 502 | 503 | 504, retry_after } => {
            Some(retry_after.unwrap_or(back_off))
        }
        _ => None,
    }
}
