//! One turn's resources: its directories, its lock, its broker, its worker. All are gone when
//! [`run`] returns.

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, timeout};
use turnjail_broker::{CallSummary, EventKind, EventSender, TurnBroker, TurnContext};
use turnjail_driver::{ContainerSpec, DriverError, ExitReason, Outcome, Progress, Receipt};
use turnjail_protocol::Reply;

use crate::TurnError;
use crate::admission::{Admitted, Cause, Ending};
use crate::layout::{self, TurnDirectories};
use crate::lock::FileLock;
use crate::request::TurnRequest;
use crate::run_dir::RunDir;
use crate::runtime::Host;

/// How long a driver or a broker may take to end what it has, once told.
const GRACE: Duration = Duration::from_secs(10);

/// A turn that may run.
#[derive(Debug)]
pub(crate) struct Task {
    pub id: String,
    pub request: TurnRequest,
    pub directories: TurnDirectories,
    pub json: String,
    pub events: EventSender,
}

/// A worker's answer, and what could not be cleaned up after it.
#[derive(Debug)]
pub(crate) struct Answer {
    pub reply: Reply,
    pub run: Receipt,
    pub left: Option<TurnError>,
}

/// What a turn came to, also when it failed.
#[derive(Debug, Default)]
pub(crate) struct Record {
    pub calls: CallSummary,
    pub run: Option<Receipt>,
}

/// Runs one turn whose workspace is free in this runtime.
pub(crate) async fn run(
    host: &Host,
    admitted: &Admitted,
    task: &Task,
    record: &mut Record,
) -> Result<Answer, TurnError> {
    let started = Instant::now();
    let _locks = lock(host, &task.directories)?;
    let spec = directories(host, task)?;
    let run_dir = RunDir::create(&host.roots.run).map_err(|error| run_root_error(host, &error))?;
    let spec = ContainerSpec { run_dir: run_dir.path().to_owned(), ..spec };
    let broker = open_broker(host, admitted.ending(), task, &run_dir).await?;

    let outcome = run_worker(host, admitted.ending(), task, &spec, started, record).await;
    if outcome.as_ref().is_ok_and(|outcome| outcome.reply.ok) {
        admitted.succeeded();
    }
    admitted.ending().over();

    let broker_ended = close_broker(broker, record).await;
    let directory_gone = remove(run_dir);
    let left = broker_ended.and(directory_gone).err();
    if let Some(left) = &left {
        tracing::error!(turn = task.id, %left, "turn not cleaned up");
    }
    outcome.map(|outcome| Answer { reply: outcome.reply, run: outcome.receipt, left })
}

/// Locks what the turn writes: the workspace, and the channel's state, which the channel could meet again
/// in another space.
fn lock(host: &Host, directories: &TurnDirectories) -> Result<Vec<FileLock>, TurnError> {
    let names = std::iter::once(&directories.workspace).chain(&directories.state);
    names.map(|name| host.roots.lock_workspace(name)).collect()
}

/// Makes the turn's directories and the specification of its run, but for the run directory.
fn directories(host: &Host, task: &Task) -> Result<ContainerSpec, TurnError> {
    let settings = &host.settings;
    let state = task.directories.state.as_deref();
    Ok(ContainerSpec {
        name: layout::run_name(&layout::channel_workspace(&task.request.channel), &task.id),
        image: settings.image.clone(),
        run_dir: PathBuf::new(),
        workspace_dir: host.roots.workspace(&task.directories.workspace)?,
        channel_dir: state.map(|name| host.roots.workspace(name)).transpose()?,
        uid: settings.ids.uid,
        gid: settings.ids.gid,
        limits: settings.limits,
    })
}

async fn open_broker(
    host: &Host,
    ending: &Ending,
    task: &Task,
    run_dir: &RunDir,
) -> Result<TurnBroker, TurnError> {
    let context = TurnContext {
        channel: task.request.channel.clone(),
        space: task.request.space.clone(),
        speaker: task.request.principal(),
        tool_result_bytes: host.settings.tool_result_bytes(),
        cancel: ending.token().clone(),
        events: task.events.clone(),
    };
    let socket = run_dir.path().join("broker.sock");
    host.broker.open(context, &socket).await.map_err(|error| TurnError::Host {
        remedy: error.remedy().map(str::to_owned),
        cause: error.to_string(),
    })
}

/// Has the driver run the worker until it is done, the time is up or somebody ends the turn. A panic of
/// the driver is this turn's failure and nobody else's.
async fn run_worker(
    host: &Host,
    ending: &Ending,
    task: &Task,
    spec: &ContainerSpec,
    started: Instant,
    record: &mut Record,
) -> Result<Outcome, TurnError> {
    let progress = Watch::new(&task.events);
    let run = host.driver.run(spec, task.json.as_bytes(), ending.token(), &progress);
    let mut run = pin!(AssertUnwindSafe(run).catch_unwind());
    let finished = tokio::select! {
        biased;
        finished = &mut run => Ok(finished),
        () = ending.token().cancelled() => timeout(GRACE, run).await,
        () = tokio::time::sleep_until(started + host.settings.turn_timeout) => {
            ending.end(Cause::Timeout);
            timeout(GRACE, run).await
        }
    };
    record.run = progress.receipt();
    let result = match finished {
        Ok(Ok(result)) => result,
        Ok(Err(_panic)) => return Err(driver_defect(host, "panicked")),
        Err(_elapsed) => {
            return Err(not_ended(&format!("the worker run by {}", host.driver.name())));
        }
    };
    match &result {
        Ok(outcome) => record.run = Some(outcome.receipt.clone()),
        Err(DriverError::Worker { receipt, .. }) => record.run = Some((**receipt).clone()),
        Err(_) => {}
    }
    if let (Some(Cause::Timeout), Some(run)) = (ending.cause(), record.run.as_mut()) {
        // To the driver it was cancelled like any other.
        run.exit = ExitReason::Timeout;
    }
    result.map_err(|error| worker_error(host, ending, error))
}

/// A run that was ended from outside failed for that reason, whatever the driver saw of it.
fn worker_error(host: &Host, ending: &Ending, error: DriverError) -> TurnError {
    let error = match error {
        DriverError::Cleanup { cause, remedy } => {
            return TurnError::Cleanup { cause, remedy, result: None };
        }
        error => error,
    };
    if let Some(cause) = ending.cause() {
        return ended(host, cause, false);
    }
    match error {
        DriverError::Worker { reason: ExitReason::Timeout, .. } => {
            TurnError::Timeout { after: host.settings.turn_timeout }
        }
        DriverError::Worker { reason, cause, worker_code, receipt } => {
            TurnError::WorkerFailed { code: worker_code, reason, cause, receipt }
        }
        error => TurnError::Driver(error),
    }
}

/// The error of a turn that was ended from outside.
pub(crate) fn ended(host: &Host, cause: Cause, waiting: bool) -> TurnError {
    match cause {
        Cause::Timeout => TurnError::Timeout { after: host.settings.turn_timeout },
        Cause::ShuttingDown => TurnError::ShuttingDown,
        Cause::Stopped | Cause::Dropped => TurnError::Stopped { waiting },
    }
}

async fn close_broker(broker: TurnBroker, record: &mut Record) -> Result<(), TurnError> {
    record.calls =
        timeout(GRACE, broker.close()).await.map_err(|_| not_ended("the turn's broker"))?;
    Ok(())
}

fn remove(run_dir: RunDir) -> Result<(), TurnError> {
    let path = run_dir.path().to_owned();
    run_dir.remove().map_err(|error| TurnError::Cleanup {
        cause: format!("run directory {path:?} is left: {error}"),
        remedy: "remove it, or restart the host, which does".to_owned(),
        result: None,
    })
}

fn run_root_error(host: &Host, error: &std::io::Error) -> TurnError {
    TurnError::Host {
        cause: format!("cannot make a run directory in {:?}: {error}", host.roots.run.path),
        remedy: Some("free space or inodes of its file system".to_owned()),
    }
}

fn driver_defect(host: &Host, what: &str) -> TurnError {
    TurnError::Host {
        cause: format!("the driver {} {what}", host.driver.name()),
        remedy: Some("report it with the log".to_owned()),
    }
}

fn not_ended(what: &str) -> TurnError {
    TurnError::Cleanup {
        cause: format!("{what} did not end within {} s of being told", GRACE.as_secs()),
        remedy: "look for what is left of it, and restart the host".to_owned(),
        result: None,
    }
}

/// Tells the turn's listeners when the worker runs, and keeps the run's record.
struct Watch<'a> {
    events: &'a EventSender,
    begun: Instant,
    receipt: Mutex<Option<Receipt>>,
}

impl<'a> Watch<'a> {
    fn new(events: &'a EventSender) -> Self {
        Self { events, begun: Instant::now(), receipt: Mutex::default() }
    }

    fn receipt(&self) -> Option<Receipt> {
        self.receipt.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Progress for Watch<'_> {
    fn started(&self) {
        self.events.emit(EventKind::JailReady { took: self.begun.elapsed() });
    }

    fn ended(&self, receipt: &Receipt) {
        *self.receipt.lock().unwrap_or_else(PoisonError::into_inner) = Some(receipt.clone());
    }
}
