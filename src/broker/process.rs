//! Programs the operator declares, run on the host: without a shell, in their own process group, with an
//! environment made from nothing, bounded in time and output, and killed whole.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use crate::error::SetupError;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};

/// What is read of a program's standard error for the host's log.
const STDERR_BYTES: usize = 4096;
/// How long output may go on after the program itself has ended, for what is still in the pipe.
const LINGER: Duration = Duration::from_millis(200);

/// A program to run once.
pub(crate) struct Program<'a> {
    pub argv: &'a [String],
    pub env: &'a BTreeMap<String, String>,
    /// More of the environment, set by the broker.
    pub context: Option<(&'static str, String)>,
    pub stdin: Vec<u8>,
    /// Bytes of standard output; more fails.
    pub output_limit: usize,
    pub timeout: Duration,
}

/// Why a program gave no output.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProgramError {
    #[error("cannot start {program}: {error}")]
    Start { program: String, error: io::Error },
    #[error("{program}: {error}")]
    Io { program: String, error: io::Error },
    #[error("{program} ended with {status}")]
    Failed { program: String, status: ExitStatus },
    #[error("{program} printed more than {limit} bytes")]
    TooLarge { program: String, limit: usize },
    #[error("{program} printed something that is not UTF-8")]
    NotText { program: String },
    #[error("{program} did not end within {} s", timeout.as_secs_f32())]
    Timeout { program: String, timeout: Duration },
}

/// A command with an environment of `PATH` and what is declared, at `/`, leading its own process group.
pub(crate) fn command(argv: &[String], env: &BTreeMap<String, String>) -> Command {
    let (program, arguments) = argv.split_first().map_or(("", argv), |(first, rest)| (first, rest));
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| (OsString::from("PATH"), path)))
        .envs(env)
        .current_dir("/")
        .process_group(0)
        .kill_on_drop(true);
    command
}

/// Kills a process group when dropped, so that no ending of a call leaves anything running.
#[derive(Debug)]
pub(crate) struct GroupGuard(Option<Pid>);

impl GroupGuard {
    pub fn new(child: &Child) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Self(id.map(Pid::from_raw))
    }
}

impl Drop for GroupGuard {
    fn drop(&mut self) {
        // The leader may have been reaped by now. While anything of its group lives the number stays
        // taken, and when nothing does there is nothing to kill.
        if let Some(group) = self.0 {
            let _ = killpg(group, Signal::SIGKILL);
        }
    }
}

/// Runs a program to its end and returns its standard output. Dropping the future kills its whole group.
pub(crate) async fn run(program: Program<'_>) -> Result<String, ProgramError> {
    let name = program.argv.first().cloned().unwrap_or_default();
    let mut command = command(program.argv, program.env);
    command
        .envs(program.context)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child =
        command.spawn().map_err(|error| ProgramError::Start { program: name.clone(), error })?;
    let group = GroupGuard::new(&child);
    let ended = tokio::time::timeout(
        program.timeout,
        converse(&mut child, program.stdin, program.output_limit),
    )
    .await;
    drop(group);
    let (status, output, complaint) = match ended {
        Ok(Ok(ended)) => ended,
        Ok(Err(error)) => return Err(ProgramError::Io { program: name, error }),
        Err(_) => {
            return Err(ProgramError::Timeout { program: name, timeout: program.timeout });
        }
    };
    if output.len() > program.output_limit {
        return Err(ProgramError::TooLarge { program: name, limit: program.output_limit });
    }
    if !status.success() {
        tracing::debug!(program = %name, complaint_bytes = complaint.len(), "a program failed");
        return Err(ProgramError::Failed { program: name, status });
    }
    String::from_utf8(output).map_err(|_| ProgramError::NotText { program: name })
}

/// Feeds and reads a child until it has ended or has printed too much.
async fn converse(
    child: &mut Child,
    input: Vec<u8>,
    limit: usize,
) -> io::Result<(ExitStatus, Vec<u8>, Vec<u8>)> {
    let stdin = child.stdin.take();
    let mut output = Vec::new();
    let mut complaint = Vec::new();
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let status = {
        let streams = async {
            tokio::join!(
                feed(stdin, &input),
                read_bounded(stdout, &mut output, limit.saturating_add(1)),
                read_some(stderr, &mut complaint, STDERR_BYTES),
            );
        };
        tokio::pin!(streams);
        // What the program leaves running in the background may hold its pipes open: its own end counts.
        tokio::select! {
            status = child.wait() => {
                let _ = tokio::time::timeout(LINGER, &mut streams).await;
                status?
            }
            () = &mut streams => child.wait().await?,
        }
    };
    Ok((status, output, complaint))
}

/// Writes a program's input. A program need not read it; that it does not is no failure.
async fn feed(stdin: Option<ChildStdin>, input: &[u8]) {
    if let Some(mut stdin) = stdin {
        let _ = stdin.write_all(input).await;
    }
}

/// Reads at most `most` bytes, then stops.
async fn read_bounded(stream: Option<impl AsyncRead + Unpin>, into: &mut Vec<u8>, most: usize) {
    if let Some(stream) = stream {
        let _ = stream.take(most as u64).read_to_end(into).await;
    }
}

/// Keeps the first `most` bytes and reads the rest away.
async fn read_some(stream: Option<impl AsyncRead + Unpin>, into: &mut Vec<u8>, most: usize) {
    if let Some(mut stream) = stream {
        let _ = (&mut stream).take(most as u64).read_to_end(into).await;
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    }
}

/// Checks a declared program's arguments and environment for what no program can be given.
pub(crate) fn check_program(
    setting: &str,
    argv: &[String],
    env: &BTreeMap<String, String>,
) -> Result<(), SetupError> {
    if argv.first().is_none_or(String::is_empty) {
        return Err(SetupError::setting(format!("{setting}.command"), "must name a program"));
    }
    if argv.iter().any(|argument| argument.contains('\0')) {
        return Err(SetupError::setting(format!("{setting}.command"), "has a NUL character in it"));
    }
    let bad = |(name, value): &(&String, &String)| {
        name.is_empty() || name.contains(['=', '\0']) || value.contains('\0')
    };
    if let Some((name, _)) = env.iter().find(bad) {
        return Err(SetupError::setting(
            format!("{setting}.env"),
            format!("has `{}`, which cannot stand in an environment", name.escape_debug()),
        ));
    }
    Ok(())
}
