//! What is told and written at the end of a turn.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use turnjail_broker::EventKind;

use crate::admission::Admitted;
use crate::audit::AuditRecord;
use crate::layout;
use crate::runtime::Host;
use crate::turn::{Record, Task};
use crate::{TurnError, TurnResult};

/// Tells listeners, the log and the audit sink that the turn is over.
pub(crate) fn finish(
    host: &Host,
    admitted: &Admitted,
    task: &Task,
    waited: Duration,
    took: Duration,
    record: &Record,
    result: &Result<TurnResult, TurnError>,
) {
    let ok = result.as_ref().is_ok_and(|result| result.reply.ok);
    task.events.emit(EventKind::TurnEnded { ok });
    let outcome = match result {
        Ok(_) if ok => "ok",
        Ok(_) => "not-ok",
        Err(error) => error.code(),
    };
    log(task, outcome, took, result);
    if let Some(audit) = &host.audit {
        let record = AuditRecord {
            time: jiff::Timestamp::now().to_string(),
            turn: task.id.clone(),
            channel: layout::channel_workspace(admitted.channel()),
            principal: task.request.speaker.principal_id.clone(),
            outcome,
            reset: admitted.reset(),
            waited_us: micros(waited),
            took_us: micros(took),
            calls: record.calls.calls,
            model_calls: record.calls.model_calls,
            failed_calls: record.calls.failed,
            request_bytes: record.calls.request_bytes,
            answer_bytes: record.calls.answer_bytes,
            call_records: record.calls.ended.clone(),
            tokens: record.calls.tokens,
            message_bytes: task.request.text.len() as u64,
            reply_bytes: result.as_ref().map_or(0, |result| result.reply.text.len() as u64),
            run: record.run.clone(),
        };
        if std::panic::catch_unwind(AssertUnwindSafe(|| audit.record(&record))).is_err() {
            tracing::error!(turn = task.id, "the audit sink panicked");
        }
    }
}

fn log(task: &Task, outcome: &str, took: Duration, result: &Result<TurnResult, TurnError>) {
    match result {
        Err(
            error @ (TurnError::Cleanup { .. } | TurnError::Host { .. } | TurnError::Driver(_)),
        ) => {
            tracing::error!(turn = task.id, outcome, ?took, %error, "turn ended");
        }
        Err(TurnError::WorkerFailed { code, cause, .. }) => {
            tracing::warn!(turn = task.id, outcome, ?took, code, cause, "turn ended");
        }
        _ => tracing::info!(turn = task.id, outcome, ?took, "turn ended"),
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
