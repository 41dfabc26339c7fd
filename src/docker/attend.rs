//! One client that runs a worker: fed, read, waited for, and judged by how it ended.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use tokio::io::{AsyncRead, AsyncWriteExt as _};
use tokio::process::Child;
use tokio_util::sync::CancellationToken;
use turnjail_driver::ExitReason;
use turnjail_protocol::limits::{EXIT_OUT_OF_MEMORY, STDERR_BYTES, STDOUT_BYTES};

use crate::client::bounded;

/// What engines' clients exit with when the container was not run, or its program not found.
const ENGINE_FAILED: i32 = 125;
const NOT_EXECUTABLE: i32 = 126;
const NOT_FOUND: i32 = 127;
/// A program in a container that was ended by a signal: 128 and its number (signal(7)).
const SIGKILL: i32 = 128 + 9;
const SIGXCPU: i32 = 128 + 24;
const SIGXFSZ: i32 = 128 + 25;
const SIGSYS: i32 = 128 + 31;

/// A client that has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub cancelled: bool,
    /// The worker wrote more than is read, and its client was killed for it.
    pub over: bool,
}

/// What the engine remembers of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct History {
    pub started: bool,
    pub out_of_memory: bool,
}

/// Why the worker gave no reply, or that it ended well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub reason: ExitReason,
    /// One sentence, without anything that a worker wrote.
    pub cause: String,
}

/// How a run came out.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The worker ran.
    Worker(Verdict),
    /// The engine did not run it; what its client wrote is the engine's own.
    Engine,
    /// The engine did not run it, or the worker pretends so: what was written may be the worker's.
    Unclear,
}

/// Feeds, reads and waits at once. When `cancel` fires, or the worker writes more than is read, the
/// client is killed; its container has to be removed then.
pub(crate) async fn attend(
    mut child: Child,
    turn: &[u8],
    cancel: &CancellationToken,
) -> io::Result<Finished> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let streams = async {
        let feed = async {
            if let Some(mut stdin) = stdin {
                // A worker that ends without reading everything has its reasons.
                let _ = stdin.write_all(turn).await;
            }
        };
        let read =
            async { tokio::try_join!(within(stdout, STDOUT_BYTES), within(stderr, STDERR_BYTES)) };
        // The end of both outputs is the end of the client, whether or not it has read everything.
        tokio::pin!(feed, read);
        tokio::select! {
            read = &mut read => read,
            () = &mut feed => read.await,
        }
    };
    let streams = tokio::select! {
        biased;
        () = cancel.cancelled() => None,
        streams = streams => Some(streams),
    };
    let cancelled = streams.is_none();
    let (stdout, stderr, over) = match streams {
        None => (Vec::new(), Vec::new(), false),
        Some(Ok((stdout, stderr))) => (stdout, stderr, false),
        Some(Err(error)) if error.kind() == TOO_MUCH => (Vec::new(), Vec::new(), true),
        Some(Err(error)) => return Err(error),
    };
    if cancelled || over {
        child.start_kill()?;
    }
    let status = tokio::select! {
        biased;
        status = child.wait() => status?,
        () = cancel.cancelled() => {
            child.start_kill()?;
            let status = child.wait().await?;
            return Ok(Finished { status, stdout, stderr, cancelled: true, over });
        }
    };
    Ok(Finished { status, stdout, stderr, cancelled, over })
}

/// What a stream with more than is read ends with.
const TOO_MUCH: io::ErrorKind = io::ErrorKind::FileTooLarge;

/// All of a stream, or an error as soon as there is more than `limit`.
async fn within(stream: Option<impl AsyncRead + Unpin>, limit: usize) -> io::Result<Vec<u8>> {
    let bytes = bounded(stream, limit).await?;
    if bytes.len() > limit { Err(TOO_MUCH.into()) } else { Ok(bytes) }
}

impl Finished {
    /// Whether only the engine's history tells what happened.
    pub fn needs_history(&self) -> bool {
        let telling = [ENGINE_FAILED, NOT_EXECUTABLE, NOT_FOUND, SIGKILL];
        !self.cancelled
            && !self.over
            && self.status.code().is_some_and(|code| telling.contains(&code))
    }

    /// How it came out, given what the engine remembers, if it remembers anything.
    pub fn judge(&self, history: Option<History>) -> Outcome {
        let verdict = |reason, cause: String| Outcome::Worker(Verdict { reason, cause });
        let worker = |cause: String| verdict(ExitReason::WorkerFailed, cause);
        if self.cancelled {
            return verdict(ExitReason::Cancelled, "the worker was stopped".to_owned());
        }
        if self.over {
            let cause = format!(
                "the worker wrote more than {STDOUT_BYTES} bytes of output or {STDERR_BYTES} of errors"
            );
            return verdict(ExitReason::Output, cause);
        }
        let Some(code) = self.status.code() else {
            let signal = self.status.signal().unwrap_or_default();
            let cause = format!("the docker client was ended by signal {signal}");
            return verdict(ExitReason::Host, cause);
        };
        match code {
            0 => verdict(ExitReason::Ok, String::new()),
            ENGINE_FAILED | NOT_EXECUTABLE | NOT_FOUND => match history {
                Some(History { started: true, .. }) => {
                    worker(format!("the worker ended with exit code {code}"))
                }
                Some(_) => Outcome::Engine,
                None => Outcome::Unclear,
            },
            EXIT_OUT_OF_MEMORY => memory(),
            SIGKILL if history.is_some_and(|history| history.out_of_memory) => memory(),
            SIGKILL => worker(
                "the worker was killed from outside, perhaps because it or this host ran out of memory"
                    .to_owned(),
            ),
            SIGSYS => verdict(
                ExitReason::Filter,
                "the worker was killed for a system call that the engine's filter forbids".to_owned(),
            ),
            SIGXCPU => verdict(
                ExitReason::Cpu,
                "the worker reached its CPU time limit".to_owned(),
            ),
            SIGXFSZ => verdict(
                ExitReason::Disk,
                "the worker reached its file size limit".to_owned(),
            ),
            code => worker(format!("the worker ended with exit code {code}")),
        }
    }
}

fn memory() -> Outcome {
    let cause = "the worker reached its memory limit".to_owned();
    Outcome::Worker(Verdict { reason: ExitReason::Memory, cause })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(code: i32) -> Finished {
        let status = ExitStatus::from_raw(code << 8);
        Finished { status, stdout: Vec::new(), stderr: Vec::new(), cancelled: false, over: false }
    }

    fn reason(outcome: &Outcome) -> Option<ExitReason> {
        match outcome {
            Outcome::Worker(verdict) => Some(verdict.reason),
            _ => None,
        }
    }

    #[test]
    fn exit_codes_have_reasons() {
        let ran = Some(History { started: true, out_of_memory: false });
        let oom = Some(History { started: true, out_of_memory: true });
        for (code, history, expected) in [
            (0, None, ExitReason::Ok),
            (1, None, ExitReason::WorkerFailed),
            (EXIT_OUT_OF_MEMORY, None, ExitReason::Memory),
            (137, oom, ExitReason::Memory),
            (137, ran, ExitReason::WorkerFailed),
            (137, None, ExitReason::WorkerFailed),
            (159, None, ExitReason::Filter),
            (125, ran, ExitReason::WorkerFailed),
        ] {
            assert_eq!(reason(&finished(code).judge(history)), Some(expected), "{code}");
        }
    }

    #[test]
    fn a_worker_cannot_pretend_that_the_engine_failed() {
        let fresh = Some(History { started: false, out_of_memory: false });
        for code in [125, 126, 127] {
            assert!(finished(code).needs_history());
            assert_eq!(finished(code).judge(fresh), Outcome::Engine);
            assert_eq!(finished(code).judge(None), Outcome::Unclear);
        }
        assert!(!finished(0).needs_history() && !finished(1).needs_history());
    }

    #[test]
    fn what_the_host_did_comes_before_the_code() {
        let cancelled = Finished { cancelled: true, ..finished(0) };
        assert_eq!(reason(&cancelled.judge(None)), Some(ExitReason::Cancelled));
        let over = Finished { over: true, ..finished(0) };
        assert_eq!(reason(&over.judge(None)), Some(ExitReason::Output));
        let killed = Finished { status: ExitStatus::from_raw(9), ..finished(0) };
        assert_eq!(reason(&killed.judge(None)), Some(ExitReason::Host));
    }
}
