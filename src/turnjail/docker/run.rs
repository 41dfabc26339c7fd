//! `run`: one jail, its streams and its exit code.

use std::io::{Read as _, Write as _};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use turnjail_driver::{ContainerSpec, DriverError, ExitReason, Limit, Receipt};
use turnjail_jail::{Ended, JailDriver, Status};
use turnjail_protocol::limits::{STDERR_BYTES, STDOUT_BYTES};

use super::failure::Failure;
use super::process::Identity;
use super::registry::{Entry, Registry};
use super::remove::REMOVE;
use super::run_options::RunOptions;
use super::{Done, Here};

/// The most that is read for a jail's standard input: four times the longest turn.
const STDIN_BYTES: u64 = 1 << 20;

/// What a jail that was killed ends with, as in a shell.
const KILLED: u8 = 128 + 9;

/// Runs an image's program to its end. What it reads is read to the end first, and what it writes is
/// handed on when it has ended, as a turn's worker does both.
pub fn run(here: &Here, arguments: &[String]) -> Result<Done, Failure> {
    let ids = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
    let name = format!("turnjail-{}", std::process::id());
    let options = RunOptions::parse(arguments, ids, &name)?;
    options.spec.check().map_err(Failure::engine)?;
    let jail_options = here.settings()?.jail_options_of_a_command();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::engine(format!("docker: {error}")))?;
    let done = runtime.block_on(async {
        let mut signals = Signals::listen()?;
        let driver = JailDriver::start(jail_options).await.map_err(|error| refusal(&error))?;
        let _entry = claim(&options.spec, &driver)?;
        in_jail(&driver, &options, &mut signals).await
    });
    // A thread that still waits for standard input is not waited for.
    runtime.shutdown_background();
    done
}

/// Takes the name, so that other commands find the jail.
fn claim(spec: &ContainerSpec, driver: &JailDriver) -> Result<Entry, Failure> {
    let registry = Registry::open()?;
    let created = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let name = &spec.name;
    let keeper = Identity::of(driver.keeper());
    let keeper = keeper.ok_or_else(|| Failure::engine("docker: the warden has died"))?;
    match registry.claim(spec, created, keeper) {
        Ok(Some((_, entry))) => Ok(entry),
        Ok(None) => Err(Failure::daemon(
            format!(
                "Conflict. The container name \"/{name}\" is already in use by container \"{name}\""
            ),
            "You have to remove that container to be able to reuse that name.",
        )),
        Err(error) => Err(Failure::engine(format!(
            "docker: the registry of running jails cannot be written: {error}"
        ))),
    }
}

async fn in_jail(
    driver: &JailDriver,
    options: &RunOptions,
    signals: &mut Signals,
) -> Result<Done, Failure> {
    let cancel = CancellationToken::new();
    let work = async {
        let input = if options.interactive { input().await? } else { Vec::new() };
        let ran = driver.run_program(&options.spec, &input, &cancel, &()).await;
        ran.map_err(|error| refusal(&error))
    };
    tokio::pin!(work);
    let ended = tokio::select! {
        ran = &mut work => ran?,
        code = signals.next() => {
            cancel.cancel();
            // A run that has not begun has nothing to end.
            let _ = tokio::time::timeout(std::time::Duration::from_secs(5), work).await;
            return Ok(Done { code, ..Done::default() });
        }
    };
    Ok(done(ended))
}

/// Reads standard input to its end, in a thread that may be left waiting.
async fn input() -> Result<Vec<u8>, Failure> {
    let (read, reading) = oneshot::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let result = std::io::stdin().take(STDIN_BYTES + 1).read_to_end(&mut bytes);
        let _ = read.send(result.map(|_| bytes));
    });
    match reading.await {
        Ok(Ok(bytes)) if bytes.len() as u64 > STDIN_BYTES => Err(Failure::engine(format!(
            "docker: standard input has more than {STDIN_BYTES} bytes"
        ))),
        Ok(Ok(bytes)) => Ok(bytes),
        _ => Err(Failure::engine("docker: standard input cannot be read")),
    }
}

/// What a finished jail leaves: its output, and its code.
fn done((ended, receipt): (Ended, Receipt)) -> Done {
    let code = match ended.exit.status {
        _ if ended.reason == ExitReason::Output => KILLED,
        Status::Code(code) => code as u8,
        Status::Signal(signal) => 128_u8.wrapping_add(signal as u8),
    };
    let Ended { mut stdout, mut stderr, reason, .. } = ended;
    if reason == ExitReason::Output {
        // What was cut had more: a reader that counts sees it by one byte.
        for (stream, limit) in [(&mut stdout, STDOUT_BYTES), (&mut stderr, STDERR_BYTES)] {
            if stream.len() == limit {
                stream.push(b'\n');
            }
        }
    } else if let Some(line) = limits_line(&receipt.limits) {
        let _ = writeln!(stderr, "{line}");
    }
    Done { stdout, stderr, code }
}

/// One line that says which limits are not a cgroup's, or not enforced at all.
fn limits_line(limits: &[Limit]) -> Option<String> {
    let asked = limits.iter().filter(|limit| {
        ["memory", "processes", "cpu share"].contains(&limit.name)
            && !limit.by.as_ref().is_some_and(|by| by.contains("cgroup"))
    });
    let said: Vec<_> = asked
        .map(|limit| match &limit.by {
            Some(by) => format!("{} by {by}", limit.name),
            None => format!("{} not enforced", limit.name),
        })
        .collect();
    (!said.is_empty()).then(|| format!("turnjail: limits without a cgroup: {}", said.join(", ")))
}

fn refusal(error: &DriverError) -> Failure {
    match error {
        DriverError::Image { cause, remedy } => {
            Failure::daemon(format!("No such image or not usable: {cause}"), remedy)
        }
        error => Failure::driver(error),
    }
}

/// What ends a jail from outside.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
    remove: Signal,
}

impl Signals {
    fn listen() -> Result<Self, Failure> {
        let on = |kind| {
            signal(kind).map_err(|error| Failure::engine(format!("docker: no signals: {error}")))
        };
        Ok(Self {
            interrupt: on(SignalKind::interrupt())?,
            terminate: on(SignalKind::terminate())?,
            hang_up: on(SignalKind::hangup())?,
            remove: on(SignalKind::from_raw(REMOVE.as_raw()))?,
        })
    }

    /// Waits for one and answers the exit code.
    async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => 130,
            _ = self.terminate.recv() => 143,
            _ = self.hang_up.recv() => 129,
            _ = self.remove.recv() => KILLED,
        }
    }
}
