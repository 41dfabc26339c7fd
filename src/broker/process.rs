//! Programs the operator declares, run on the host: without a shell, in their own process group, with an
//! environment made from nothing, bounded in time and output, and killed whole.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use rustix::process::PidfdFlags;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, Interest};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use zeroize::Zeroizing;

use crate::credential::Secret;
use crate::error::SetupError;

/// What is read of a program's standard error for the host's log.
const STDERR_BYTES: usize = 4096;
/// How long output may go on after the program itself has ended, for what is still in the pipe.
const LINGER: Duration = Duration::from_millis(200);
/// What a buffer needs beyond its content to see, without growing, that there is no more.
const ROOM_TO_END: usize = 64;

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

impl Program<'_> {
    fn name(&self) -> String {
        self.argv.first().cloned().unwrap_or_default()
    }
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

/// A running program that leads its own process group. The group is killed while the leader is still there
/// or waits to be reaped, so that its number cannot belong to anybody else; dropping this kills it as well.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    /// Readable once the leader has ended.
    exit: AsyncFd<OwnedFd>,
}

impl Running {
    pub fn start(command: &mut Command) -> io::Result<Self> {
        let child = command.spawn()?;
        match watch(&child) {
            Ok(exit) => Ok(Self { child, exit }),
            Err(error) => {
                kill_group(&child);
                Err(error)
            }
        }
    }

    /// The streams that are piped, each to be taken once.
    pub fn streams(&mut self) -> (Option<ChildStdin>, Option<ChildStdout>, Option<ChildStderr>) {
        (self.child.stdin.take(), self.child.stdout.take(), self.child.stderr.take())
    }

    /// Waits until the program itself has ended, and leaves it to be reaped.
    pub async fn ended(&self) -> io::Result<()> {
        self.exit.readable().await?.retain_ready();
        Ok(())
    }

    /// Kills what is left of the group.
    pub fn kill(&self) {
        kill_group(&self.child);
    }

    /// Kills what is left of the group, then reaps the program.
    pub async fn reap(mut self) -> io::Result<ExitStatus> {
        self.kill();
        self.child.wait().await
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

#[allow(
    deprecated,
    reason = "an owned descriptor stays open and its own, which the successor asks unsafely"
)]
fn watch(child: &Child) -> io::Result<AsyncFd<OwnedFd>> {
    let id = child.id().and_then(|id| i32::try_from(id).ok());
    let id = id.and_then(rustix::process::Pid::from_raw).ok_or(io::ErrorKind::NotFound)?;
    let exit = rustix::process::pidfd_open(id, PidfdFlags::empty())?;
    AsyncFd::with_interest(exit, Interest::READABLE)
}

fn kill_group(child: &Child) {
    // There is no number once it has been reaped, and nothing but `reap` does that.
    if let Some(group) = child.id().and_then(|id| i32::try_from(id).ok()) {
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
}

/// Runs a program to its end and returns its standard output. Dropping the future kills its whole group.
pub(crate) async fn run(program: Program<'_>) -> Result<String, ProgramError> {
    let mut output = Vec::new();
    let name = program.name();
    run_into(program, &mut output).await?;
    String::from_utf8(output).map_err(|_| ProgramError::NotText { program: name })
}

/// The same for a program that prints a secret: its output is only ever in one place, which is wiped.
pub(crate) async fn run_secret(program: Program<'_>) -> Result<Secret, ProgramError> {
    let mut output = Zeroizing::new(Vec::with_capacity(program.output_limit + ROOM_TO_END));
    let name = program.name();
    run_into(program, &mut output).await?;
    let text = std::str::from_utf8(&output).map_err(|_| ProgramError::NotText { program: name })?;
    Ok(Secret::new(text.trim()))
}

async fn run_into(program: Program<'_>, output: &mut Vec<u8>) -> Result<(), ProgramError> {
    let name = program.name();
    let mut command = command(program.argv, program.env);
    command
        .envs(program.context)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let running = Running::start(&mut command)
        .map_err(|error| ProgramError::Start { program: name.clone(), error })?;
    let ended = tokio::time::timeout(
        program.timeout,
        converse(running, program.stdin, output, program.output_limit),
    )
    .await;
    let (status, complaint) = match ended {
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
    Ok(())
}

/// Feeds and reads a program until it has ended or has printed too much.
async fn converse(
    mut running: Running,
    input: Vec<u8>,
    output: &mut Vec<u8>,
    limit: usize,
) -> io::Result<(ExitStatus, Vec<u8>)> {
    let mut complaint = Vec::new();
    let (stdin, stdout, stderr) = running.streams();
    {
        let streams = async {
            tokio::join!(
                feed(stdin, &input),
                read_bounded(stdout, output, limit.saturating_add(1)),
                read_some(stderr, &mut complaint, STDERR_BYTES),
            );
        };
        tokio::pin!(streams);
        // What the program leaves running in the background may hold its pipes open: its own end counts.
        tokio::select! {
            ended = running.ended() => {
                let _ = tokio::time::timeout(LINGER, &mut streams).await;
                ended?;
            }
            () = &mut streams => running.ended().await?,
        }
    }
    Ok((running.reap().await?, complaint))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        command(&["sh", "-c", script].map(str::to_owned), &BTreeMap::new())
    }

    /// Whether a process is there, be it as one that waits to be reaped.
    fn exists(id: u32) -> bool {
        std::path::Path::new(&format!("/proc/{id}")).exists()
    }

    #[tokio::test]
    async fn a_group_is_killed_before_its_leader_is_reaped() {
        let mut command = shell("sleep 1000 & echo $!");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut running = Running::start(&mut command).unwrap();
        let leader = running.child.id().unwrap();
        let mut line = [0; 16];
        let got = running.streams().1.unwrap().read(&mut line).await.unwrap();
        let member: u32 = std::str::from_utf8(&line[..got]).unwrap().trim().parse().unwrap();
        running.ended().await.unwrap();
        // Ended, but its number is still its own, and its group goes on.
        assert!(exists(leader) && running.child.id() == Some(leader) && exists(member));
        assert!(running.reap().await.unwrap().success());
        assert!(!exists(leader));
        for _ in 0..500 {
            let stat = std::fs::read_to_string(format!("/proc/{member}/stat")).unwrap_or_default();
            if stat.is_empty() || stat.contains(") Z ") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("a member of the group goes on");
    }

    #[tokio::test]
    async fn a_secret_of_any_size_stays_in_its_buffer() {
        const LIMIT: usize = 64 * 1024;
        for printed in [0, 1, LIMIT - 1, LIMIT, LIMIT + 1, 4 * LIMIT] {
            let script = format!("head -c {printed} /dev/zero");
            let argv = ["sh", "-c", &script].map(str::to_owned);
            let program = Program {
                argv: &argv,
                env: &BTreeMap::new(),
                context: None,
                stdin: Vec::new(),
                output_limit: LIMIT,
                timeout: Duration::from_secs(10),
            };
            let mut output = Vec::with_capacity(LIMIT + ROOM_TO_END);
            let place = output.as_ptr();
            let ran = run_into(program, &mut output).await;
            assert_eq!(ran.is_ok(), printed <= LIMIT, "{printed}");
            assert_eq!(output.as_ptr(), place, "{printed}: moved, and left a copy behind");
        }
    }
}
