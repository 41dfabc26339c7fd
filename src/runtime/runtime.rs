//! The runtime: what is admitted, what waits, what is stopped. Each turn owns its resources.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;
use turnjail_broker::{Broker, EventKind, EventSender};
use turnjail_driver::ContainerDriver;

use crate::admission::{Admission, Admitted, Cause, Ending};
use crate::audit::AuditSink;
use crate::options::SandboxOptions;
use crate::queue::{Full, Place, Queues};
use crate::receipt::{TurnReceipt, TurnResult};
use crate::record;
use crate::request::TurnRequest;
use crate::roots::Roots;
use crate::settings::{Settings, turn_json};
use crate::turn::{self, Answer, Record, Task};
use crate::{SetupError, TurnError, layout, start, verify};

/// Runs turns: at most one a channel, one at a time a workspace, each in a sealed place of its own.
///
/// Must be made and used within a tokio runtime. Cheap to clone; clones are the same runtime.
#[derive(Clone)]
pub struct SandboxRuntime {
    host: Arc<Host>,
}

/// What the turns of a runtime share.
pub(crate) struct Host {
    pub settings: Settings,
    pub driver: Arc<dyn ContainerDriver>,
    pub broker: Broker,
    pub roots: Roots,
    pub audit: Option<Arc<dyn AuditSink>>,
    pub admission: Arc<Admission>,
    pub queues: Arc<Queues>,
    pub turns: TaskTracker,
    pub tokio: Handle,
}

/// How many turns run and wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Turns whose workspace is theirs.
    pub running: usize,
    /// Turns that wait for their workspace.
    pub waiting: usize,
}

impl SandboxRuntime {
    /// Checks every option, makes and locks the roots, removes what a dead host left in them, starts the
    /// broker, and checks a whole turn with an empty text, so that settings under which every turn would
    /// fail stop start-up.
    pub async fn new(
        options: SandboxOptions,
        driver: Arc<dyn ContainerDriver>,
    ) -> Result<Self, SetupError> {
        Ok(Self { host: Arc::new(start::start(options, driver).await?) })
    }

    /// Checks that the driver can run the image here, and stops start-up when an option needs a newer
    /// worker than the image has. Ask before taking the first message.
    pub async fn verify_image(&self) -> Result<(), SetupError> {
        verify::verify_image(&*self.host.driver, &self.host.settings).await
    }

    /// Answers one message. Admission, the place in the workspace's line and the request to start afresh
    /// are those of this call, not of the first poll. Dropping the future ends the turn; its clean-up
    /// goes on by itself, and the workspace is free only after it.
    pub fn run_turn(&self, request: TurnRequest) -> PendingTurn {
        self.run_turn_observed(request, EventSender::discard())
    }

    /// Like [`run_turn`](Self::run_turn), telling what happens while it happens.
    pub fn run_turn_observed(&self, request: TurnRequest, events: EventSender) -> PendingTurn {
        match self.admit(request, events) {
            Ok(pending) => pending,
            Err(error) => PendingTurn { state: State::Refused(Some(error)) },
        }
    }

    /// Ends the channel's turn, running or waiting. False when it has none.
    pub fn stop(&self, channel: &str) -> bool {
        self.host.admission.stop(channel)
    }

    /// Has the next successful turn of the channel ignore its history. One that is running or waiting
    /// already does not count.
    pub fn start_fresh(&self, channel: &str) {
        self.host.admission.request_fresh(channel);
    }

    /// The channels with a turn, running or waiting.
    pub fn busy(&self) -> Vec<String> {
        self.host.admission.busy()
    }

    /// How many turns run and wait.
    pub fn load(&self) -> Load {
        let (running, waiting) = self.host.queues.counts();
        Load { running, waiting }
    }

    /// Takes no more turns, ends all there are, and returns when nothing of them is left.
    pub async fn dispose(&self) {
        self.host.admission.close();
        self.host.turns.close();
        self.host.turns.wait().await;
    }

    fn admit(&self, request: TurnRequest, events: EventSender) -> Result<PendingTurn, TurnError> {
        let host = &self.host;
        let settings = &host.settings;
        request.check()?;
        let directories =
            layout::turn_directories(settings.mode, &request.channel, request.space.as_deref());
        let admitted = host.admission.admit(&request.channel)?;
        let turn = settings.turn(&request, directories.state.is_some(), admitted.reset());
        let json = turn_json(&turn)?;
        let place = host
            .queues
            .join(&directories.workspace, settings.max_waiting)
            .map_err(|Full| TurnError::QueueFull { waiting: settings.max_waiting })?;
        let task = Task { id: turn_id()?, request, directories, json, events };

        let ending = admitted.ending().clone();
        let (answer, answered) = oneshot::channel();
        // Whatever is logged about the turn carries its id. Of the highest level, so that no filter that
        // lets a line through drops the id.
        let span = tracing::error_span!("turn", id = task.id);
        let supervised = supervise(host.clone(), admitted, place, task, answer).instrument(span);
        host.turns.spawn_on(supervised, &host.tokio);
        Ok(PendingTurn { state: State::Running { answered, ending } })
    }
}

impl std::fmt::Debug for SandboxRuntime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SandboxRuntime")
            .field("settings", &self.host.settings)
            .field("driver", &self.host.driver.name())
            .field("load", &self.load())
            .finish_non_exhaustive()
    }
}

/// A turn's life apart from its caller's: waits, runs, records, frees, answers.
async fn supervise(
    host: Arc<Host>,
    admitted: Admitted,
    place: Place,
    task: Task,
    answer: oneshot::Sender<Result<TurnResult, TurnError>>,
) {
    let result = drive(&host, &admitted, place, &task).await;
    drop(admitted);
    // Nobody may be waiting any more.
    let _ = answer.send(result);
}

/// The turn while it has its place in the line.
async fn drive(
    host: &Host,
    admitted: &Admitted,
    mut place: Place,
    task: &Task,
) -> Result<TurnResult, TurnError> {
    let arrived = Instant::now();
    let reached = wait_for_workspace(host, admitted.ending(), &mut place).await;
    let waited = arrived.elapsed();
    let started = Instant::now();
    let mut record = Record::default();
    let ran = match reached {
        Ok(()) => {
            task.events.emit(EventKind::TurnStarted);
            let run = AssertUnwindSafe(turn::run(host, admitted, task, &mut record));
            // A defect of the runtime ends this turn alone, and it is recorded like any other.
            run.catch_unwind().await.unwrap_or_else(|_panic| {
                Err(TurnError::Host {
                    cause: "the turn failed by a defect of turnjail".to_owned(),
                    remedy: Some("report it with the log".to_owned()),
                })
            })
        }
        Err(error) => Err(error),
    };
    let result = ran.and_then(|Answer { reply, run, left }| {
        let receipt = TurnReceipt {
            turn: task.id.clone(),
            reset: admitted.reset(),
            waited,
            took: started.elapsed(),
            calls: record.calls.clone(),
            run,
        };
        TurnResult { reply, receipt }.unless_left(left)
    });
    record::finish(host, admitted, task, waited, started.elapsed(), &record, &result);
    result
}

/// Waits until every turn ahead has ended. Holds nothing but the place.
async fn wait_for_workspace(
    host: &Host,
    ending: &Ending,
    place: &mut Place,
) -> Result<(), TurnError> {
    let max_wait: Duration = host.settings.max_wait;
    tokio::select! {
        biased;
        () = ending.token().cancelled() => {
            let cause = ending.cause().unwrap_or(Cause::Dropped);
            Err(turn::ended(host, cause, true))
        }
        () = place.reach_head() => Ok(()),
        () = tokio::time::sleep(max_wait) => Err(TurnError::WaitedTooLong { after: max_wait }),
    }
}

pub(crate) fn turn_id() -> Result<String, TurnError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| TurnError::Host {
        cause: format!("no random numbers for the turn's id: {error}"),
        remedy: None,
    })?;
    Ok(layout::hex(&bytes))
}

/// The answer to one message, to be awaited. Dropping it ends the turn.
#[must_use = "dropping it ends the turn"]
#[derive(Debug)]
pub struct PendingTurn {
    state: State,
}

#[derive(Debug)]
enum State {
    Refused(Option<TurnError>),
    Running { answered: oneshot::Receiver<Result<TurnResult, TurnError>>, ending: Ending },
    Done,
}

impl Future for PendingTurn {
    type Output = Result<TurnResult, TurnError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let result = match &mut self.state {
            State::Refused(error) => Err(error.take().unwrap_or_else(lost)),
            State::Running { answered, .. } => match Pin::new(answered).poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(answer) => answer.unwrap_or_else(|_| Err(lost())),
            },
            State::Done => Err(lost()),
        };
        self.state = State::Done;
        Poll::Ready(result)
    }
}

impl Drop for PendingTurn {
    fn drop(&mut self) {
        if let State::Running { ending, .. } = &self.state {
            ending.end(Cause::Dropped);
        }
    }
}

/// The turn's task is gone without an answer: it panicked, or tokio is shutting down.
fn lost() -> TurnError {
    TurnError::Host {
        cause: "the turn's task ended without an answer".to_owned(),
        remedy: Some("report it with the log".to_owned()),
    }
}
