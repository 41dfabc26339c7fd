//! From settings to a runtime that takes turns, and one turn through it.

use std::future::Future;
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use turnjail_docker::DockerDriver;
use turnjail_driver::ContainerDriver;
use turnjail_jail::JailDriver;
use turnjail_jail::causes::evidence::Evidence;
use turnjail_jail::causes::{advise, table};
use turnjail_runtime::{EventSender, SandboxRuntime, TurnRequest, TurnResult};

use super::failure;
use super::signals::{Interrupts, cancelled};
use crate::config::{Config, Driver, LogFormat, Logging, Settings};
use crate::demo::Place;
use crate::error::{CliError, Exit};

/// Turns the log on: lines on standard error, of turnjail's own crates and nobody else's, so that no
/// library prints a header or a body.
pub fn log(logging: Logging) {
    let targets = Targets::new().with_target("turnjail", logging.level);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry().with(targets);
    match logging.format {
        LogFormat::Json => registry.with(lines.json().flatten_event(true)).init(),
        LogFormat::Text => {
            let plain = !std::io::stderr().is_terminal()
                || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            registry.with(lines.with_ansi(!plain).with_target(false)).init();
        }
    }
}

/// Runs a command's future. What it leaves in the background has a moment to end.
pub fn block_on<T>(future: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    check_open_files()?;
    check_threads()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| no_threads(&error))?;
    let result = runtime.block_on(future);
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

/// As many threads as a command needs at its start, all at once: a runtime panics where it cannot have
/// them.
fn check_threads() -> Result<(), CliError> {
    const NEEDED: usize = 6;
    let (hold, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let started = std::thread::scope(|scope| {
        let wait = || drop(held.lock().map(|held| held.recv()));
        let mut threads = 0..NEEDED;
        let started = threads
            .try_for_each(|_| std::thread::Builder::new().spawn_scoped(scope, wait).map(drop));
        drop(hold);
        started
    });
    started.map_err(|error| no_threads(&error))
}

/// Why there are no threads, in the words of the table of causes.
fn no_threads(error: &std::io::Error) -> CliError {
    let cause = match error.kind() {
        std::io::ErrorKind::WouldBlock => &table::PROCESS_LIMIT,
        std::io::ErrorKind::PermissionDenied => &table::OUTER_SECCOMP,
        _ => &table::MEMORY,
    };
    let advice = advise(cause, &Evidence::here(), &[]);
    let what = format!("threads cannot be started: {error}: {}", advice.why);
    CliError::new(Exit::CannotJail, advice.code, what, advice.remedy)
}

/// With fewer descriptors not even the threads' own start, which panics without.
fn check_open_files() -> Result<(), CliError> {
    const NEEDED: u64 = 64;
    match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((soft, _)) if soft < NEEDED => Err(CliError::new(
            Exit::Failed,
            "open-files",
            format_args!("this process may open {soft} files, and needs {NEEDED}"),
            "raise the limit of open files (ulimit -n)",
        )),
        _ => Ok(()),
    }
}

/// Runs a command's work with a private directory that is gone afterwards, whatever happened. Signals
/// are listened for before the directory is made, so that none can leave it behind.
pub fn in_private_place<T>(
    work: impl AsyncFnOnce(&Place, &mut Interrupts) -> Result<T, CliError>,
) -> Result<T, CliError> {
    block_on(async {
        let mut interrupts = Interrupts::listen()?;
        let place = Place::new()?;
        let result = work(&place, &mut interrupts).await;
        let removed = place.remove();
        // What is left on disk matters less than why the work failed.
        result.and_then(|result| removed.map(|()| result))
    })
}

/// Checks what a start would refuse, without making, asking or starting anything.
pub fn check(settings: &Settings) -> Result<(), CliError> {
    settings.sandbox_options()?.check().map_err(|error| failure::setup(&error))
}

/// The same, saying where in the configuration a setting stands.
pub fn check_config(config: &Config) -> Result<(), CliError> {
    let options = config.settings.sandbox_options()?;
    options.check().map_err(|error| failure::setup_of(&error, config))
}

/// Starts what runs workers by these settings.
pub async fn driver(settings: &Settings) -> Result<Arc<dyn ContainerDriver>, CliError> {
    let started: Result<Arc<dyn ContainerDriver>, _> = match settings.turn.driver {
        Driver::Jail => JailDriver::start(settings.jail_options_of_a_command())
            .await
            .map(|driver| Arc::new(driver) as _),
        Driver::Docker => {
            DockerDriver::start(settings.docker_options()).await.map(|driver| Arc::new(driver) as _)
        }
    };
    started.map_err(|error| failure::driver(&error))
}

/// Starts driver, broker and runtime, and checks that the image can run here.
pub async fn start(settings: &Settings) -> Result<SandboxRuntime, CliError> {
    // First, so that nothing is made below a directory that cannot be used.
    check(settings)?;
    let mut options = settings.sandbox_options()?;
    if let Some(log) = settings.audit_log()? {
        options = options.audit(log);
    }
    let runtime = SandboxRuntime::new(options, driver(settings).await?).await;
    let runtime = runtime.map_err(|error| failure::setup(&error))?;
    match runtime.verify_image().await {
        Ok(()) => Ok(runtime),
        Err(error) => {
            runtime.dispose().await;
            Err(failure::setup(&error))
        }
    }
}

/// One turn. A signal cancels it, and this returns only when nothing of it is left.
pub async fn answer(
    runtime: &SandboxRuntime,
    request: TurnRequest,
    events: EventSender,
    interrupts: &mut Interrupts,
) -> Result<TurnResult, CliError> {
    let turn = runtime.run_turn_observed(request, events);
    let exit = tokio::select! {
        result = turn => return result.map_err(|error| failure::turn(&error)),
        exit = interrupts.next() => exit,
    };
    // The turn's future is gone, which ended the turn; its clean-up goes on by itself.
    runtime.dispose().await;
    Err(cancelled(exit))
}
