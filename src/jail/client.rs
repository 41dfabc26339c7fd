//! The host's end of a warden, and of each of its jails.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Pid;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};
use turnjail_warden::pool::may_come_again;
use turnjail_warden::wire::{
    Exit, Facts, Failure, Plan, Report, Request, Response, Settings, Status, Way,
};

use crate::connection::{Connection, Process, Started, host_error};
use crate::limits::Group;
use crate::plan::object;
use crate::streams::Stock;
use crate::{Limiter, StartError, process};

/// How long a warden may take to say what it found out.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// How a warden makes jails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientOptions {
    /// How many jails are prepared ahead of need, at most [`MAX_POOL`]; 0 for none.
    pub pool: u16,
    /// The way of every jail whose plan leaves it open.
    pub way: Way,
}

/// The largest pool. A pool shortens the wait of a single request; it makes no more jails a second, and
/// each parked jail slows down the making of others.
pub const MAX_POOL: u16 = 64;

impl Default for ClientOptions {
    fn default() -> Self {
        Self { pool: 4, way: Way::Any }
    }
}

/// A running warden. Dropping it closes the connection, which ends the warden and with it every jail.
#[derive(Debug)]
pub struct Client {
    connection: Arc<Connection>,
    facts: Facts,
    keeper: Pid,
    limiter: Limiter,
    way: Way,
    streams: Stock,
    pool: usize,
    _closing: DropGuard,
}

/// A jail that has been cloned. Dropping it kills everything in it.
#[derive(Debug)]
pub struct Jail {
    process: Process,
    status: pipe::Receiver,
    exited: oneshot::Receiver<Exit>,
    plan: Arc<Plan>,
    missing: Vec<Failure>,
    prepared: bool,
    /// Removed after the process has been killed.
    group: Option<Group>,
}

impl Client {
    /// Starts a warden with the default options. Must be called within a tokio runtime.
    pub async fn start() -> Result<Self, StartError> {
        Self::start_with(ClientOptions::default()).await
    }

    /// Starts a warden. Must be called within a tokio runtime.
    pub async fn start_with(options: ClientOptions) -> Result<Self, StartError> {
        let limiter = Limiter::own();
        let (socket, keeper) = process::start()?;
        let connection = Arc::new(Connection::new(socket)?);
        let received = tokio::time::timeout(READY_WITHIN, connection.receive()).await;
        let received = received.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let facts = match received {
            Ok(Some((Response::Ready(facts), _))) => facts,
            Ok(Some((Response::Unable(failure), _))) => {
                return Err(StartError::step(failure, None));
            }
            Ok(None) => return Err(StartError::WardenKilled),
            Ok(Some(_)) => return Err(StartError::WardenDied),
            Err(e) => return Err(host_error("read from the warden", &e)),
        };
        // Before it has any child, so that all of them are where it is then.
        let limiter = limiter.for_warden(keeper).await;
        let settings = Settings { pool: options.pool.min(MAX_POOL) };
        connection
            .send(&Request::<&Plan>::Settings(settings), &[])
            .await
            .map_err(|e| host_error("write to the warden", &e))?;
        let closing = CancellationToken::new();
        tokio::spawn(Arc::clone(&connection).dispatch(closing.clone()));
        Ok(Self {
            connection,
            facts,
            keeper,
            limiter,
            way: options.way,
            streams: Stock::new(usize::from(settings.pool).max(1)),
            pool: usize::from(settings.pool),
            _closing: closing.drop_guard(),
        })
    }

    /// What the warden found out about this kernel.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The process that keeps the warden: a child of this one, which ends when nothing of any jail is
    /// left.
    pub fn keeper(&self) -> Pid {
        self.keeper
    }

    /// What holds the limits of its jails.
    pub fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// Pipes for the programs of its jails.
    pub(crate) fn streams(&self) -> &Stock {
        &self.streams
    }

    /// Whether the warden still answers.
    pub fn alive(&self) -> bool {
        self.connection.alive()
    }

    /// Makes ready, while a program runs, what the next one like it is going to need. Where that fails, the
    /// next one is told.
    pub(crate) async fn prepare_for(&self, plan: &Plan) {
        self.streams.refill();
        let Some(limits) = plan.group else { return };
        let lent = &self.connection.lent;
        if !lent.is_ready(limits)
            && let Ok(group) = self.limiter.group(limits)
        {
            lent.keep_ready(limits, group);
        }
        // One for each jail that waits: a request brings one with it, and takes one.
        let waits = self.facts.mechanisms.detached_mounts && may_come_again(plan);
        for _ in 0..if waits { self.pool } else { 0 } {
            // Other turns lend some, too, meanwhile.
            if lent.count(limits) >= self.pool {
                return;
            }
            let Ok(group) = self.limiter.group(limits) else { return };
            if self.connection.lend(limits, group).await.is_err() {
                return;
            }
            // The program's output comes first.
            tokio::task::yield_now().await;
        }
    }

    /// Clones a jail with these standard streams; its program runs when it is [ready](Jail::ready). The
    /// plan's number is set here. Where the plan asks for a group, and this host has cgroups, the jail is
    /// born in one with its limits; where it has none, that is an error.
    pub async fn jail(&self, mut plan: Plan, stdio: [OwnedFd; 3]) -> Result<Jail, StartError> {
        if plan.way == Way::Any {
            plan.way = self.way;
        }
        let group = match plan.group {
            Some(limits) => match self.connection.lent.take_ready(limits) {
                None => Some(self.limiter.group(limits)?),
                ready => ready,
            },
            None => None,
        };
        match self.connection.ask(&mut plan, stdio, group).await? {
            Ok((started, exited)) => Jail::new(started, plan, exited),
            Err(failure) => Err(StartError::step(failure, object(&plan, failure))),
        }
    }
}

impl Jail {
    fn new(
        started: Started,
        plan: Plan,
        exited: oneshot::Receiver<Exit>,
    ) -> Result<Self, StartError> {
        let Started { process, status, prepared, group } = started;
        let status = pipe::Receiver::from_owned_fd(status)
            .map_err(|e| host_error("watch the status of a jail", &e))?;
        let (plan, missing) = (Arc::new(plan), Vec::new());
        Ok(Self { process, status, exited, plan, missing, prepared, group })
    }

    /// Waits until the program has been executed: the end of the status pipe, or an init that says so. A
    /// jail that is killed before that is no error here; its [end](Self::ended) tells. When a step failed,
    /// nothing of the jail is left on return.
    pub async fn ready(&mut self) -> Result<(), StartError> {
        let result = self.executed().await;
        if result.is_err() {
            self.kill();
            self.ended().await?;
        }
        result
    }

    async fn executed(&mut self) -> Result<(), StartError> {
        let mut record = [0; Report::BYTES];
        loop {
            match self.status.read_exact(&mut record).await {
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(e) => return Err(host_error("read the status of a jail", &e)),
                Ok(_) => match Report::decode(record) {
                    Some(Report::Missing(failure)) => self.missing.push(failure),
                    Some(Report::Failed(failure)) => {
                        return Err(StartError::step(failure, object(&self.plan, failure)));
                    }
                    Some(Report::Running) => return Ok(()),
                    Some(Report::Signal(_)) | None => return Err(StartError::WardenDied),
                },
            }
        }
    }

    /// What was asked for.
    pub(crate) fn plan(&self) -> Arc<Plan> {
        Arc::clone(&self.plan)
    }

    /// The group that holds its limits, where it has one. Until it is taken, it goes with the jail.
    pub(crate) fn take_group(&mut self) -> Option<Group> {
        self.group.take()
    }

    /// A pidfd of the jail's first process.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.process.0.as_fd()
    }

    /// The walls that the plan allowed to be missing and that are.
    pub fn missing(&self) -> &[Failure] {
        &self.missing
    }

    /// Whether it was prepared before its plan was known.
    pub fn prepared(&self) -> bool {
        self.prepared
    }

    /// Kills everything in the jail.
    pub fn kill(&self) {
        self.process.kill();
    }

    /// Waits until nothing of the jail is left.
    pub async fn ended(&mut self) -> Result<Exit, StartError> {
        let mut exit = (&mut self.exited).await.map_err(|_| StartError::WardenDied)?;
        let mut record = [0; Report::BYTES];
        while self.status.read_exact(&mut record).await.is_ok() {
            match Report::decode(record) {
                // What an init says of its program: it cannot die of the same signal itself.
                Some(Report::Signal(signal)) => exit.status = Status::Signal(signal),
                // Left where the run was cancelled before the program ran.
                Some(Report::Missing(failure)) => self.missing.push(failure),
                _ => {}
            }
        }
        Ok(exit)
    }
}
