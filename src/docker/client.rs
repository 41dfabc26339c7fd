//! The engine's command line client as a program: a minimal environment, bounded output, bounded time.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use turnjail_driver::DriverError;

use crate::{DockerOptions, fault};

/// How long the client may take for a question that starts no container.
const ANSWERS_WITHIN: Duration = Duration::from_secs(20);
/// The most that is read of an answer.
const ANSWER_BYTES: usize = 4 * 1024 * 1024;
/// No such directory: the client's own settings and credentials are not the driver's business.
const NO_SETTINGS: &str = "/nonexistent/turnjail";

/// The client and how it is started.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    options: DockerOptions,
    /// Whether the program is Docker's, or understands its variables as Docker's does.
    is_docker: bool,
}

/// What a finished client left.
#[derive(Debug)]
pub(crate) struct Answer {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl Client {
    /// Finds out whose client it is, which asks no engine: to podman a directory of settings that is
    /// not there is an error.
    pub async fn start(options: DockerOptions) -> Result<Self, DriverError> {
        let unknown = Self { options, is_docker: false };
        let answer = unknown.ask(&["--version"]).await?;
        let said = String::from_utf8_lossy(&answer.stdout).to_lowercase();
        if !answer.ok() || !(said.starts_with("docker") || said.starts_with("podman")) {
            return Err(fault::start(
                "docker-program",
                format!("{} is neither Docker's nor podman's client", unknown.shown()),
                "set docker.program to the client's path",
            ));
        }
        Ok(Self { is_docker: said.starts_with("docker"), ..unknown })
    }

    /// The client with arguments, to be killed when it is dropped, with pipes for its streams.
    pub fn command<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Command {
        let options = &self.options;
        let mut command = Command::new(&options.program);
        command
            .args(arguments)
            .env_clear()
            .env("PATH", &options.path)
            .envs(self.is_docker.then_some(("DOCKER_CONFIG", NO_SETTINGS)))
            .envs(options.host.as_ref().map(|host| ("DOCKER_HOST", host)))
            .envs(options.home.as_ref().map(|home| ("HOME", home)))
            .envs(options.runtime_dir.as_ref().map(|dir| ("XDG_RUNTIME_DIR", dir)))
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Asks something and waits for the answer, whatever it is.
    pub async fn ask(&self, arguments: &[&str]) -> Result<Answer, DriverError> {
        self.ask_within(arguments, ANSWERS_WITHIN).await
    }

    pub async fn ask_within(
        &self,
        arguments: &[&str],
        limit: Duration,
    ) -> Result<Answer, DriverError> {
        let answer = tokio::time::timeout(limit, self.answer(arguments)).await;
        answer.unwrap_or_else(|_| {
            Err(fault::start(
                "docker-slow",
                format!("{} did not answer within {} s", self.shown(), limit.as_secs()),
                "look at the engine's log; restart it if it hangs",
            ))
        })
    }

    async fn answer(&self, arguments: &[&str]) -> Result<Answer, DriverError> {
        let mut child = self.command(arguments).spawn().map_err(|error| self.unable(&error))?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let read = async {
            tokio::try_join!(bounded(stdout, ANSWER_BYTES), bounded(stderr, ANSWER_BYTES))
        };
        let (stdout, stderr) = read.await.map_err(|error| self.unable(&error))?;
        if stdout.len() > ANSWER_BYTES || stderr.len() > ANSWER_BYTES {
            return Err(fault::start(
                "docker-answer",
                format!("{} answered with more than {ANSWER_BYTES} bytes", self.shown()),
                "name Docker's or podman's own program as docker.program",
            ));
        }
        let status = child.wait().await.map_err(|error| self.unable(&error))?;
        Ok(Answer { status, stdout, stderr })
    }

    /// Why the program cannot be used.
    pub fn unable(&self, error: &io::Error) -> DriverError {
        let remedy = match error.kind() {
            io::ErrorKind::NotFound => {
                "install Docker or podman, or set docker.program to the client's path"
            }
            io::ErrorKind::PermissionDenied => "make the program executable by this user",
            _ => "raise the limits of processes and open files (ulimit -u, ulimit -n)",
        };
        let cause = format!("{} cannot be started: {error}", self.shown());
        fault::start("docker-program", cause, remedy)
    }

    /// Whether the program is Docker's, or speaks as Docker's does.
    pub fn is_docker(&self) -> bool {
        self.is_docker
    }

    /// The program's name for people.
    pub fn shown(&self) -> String {
        self.options.program.display().to_string()
    }
}

impl Answer {
    pub fn ok(&self) -> bool {
        self.status.success()
    }

    /// Whether the client was ended by a signal, so that its answer says nothing.
    pub fn killed(&self) -> bool {
        self.status.signal().is_some()
    }
}

/// At most `limit` bytes and one more, which tells that there were more.
pub(crate) async fn bounded(
    stream: Option<impl AsyncRead + Unpin>,
    limit: usize,
) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        stream.take(limit as u64 + 1).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}
