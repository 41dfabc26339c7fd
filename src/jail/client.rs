//! The host's end of the warden: one connection, many jails.

use std::collections::HashMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::process::{Pid, Signal, pidfd_send_signal};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt as _, Interest};
use tokio::net::unix::pipe;
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};
use turnjail_warden::step::Step;
use turnjail_warden::wire::{
    Exit, Facts, Failure, MESSAGE_BYTES, Plan, Report, Request, Response, Settings, Status, Way,
};

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
    _closing: DropGuard,
}

#[derive(Debug)]
struct Connection {
    /// A SOCK_SEQPACKET socket. Watched for reading alone: who watches it for writing is woken each time
    /// that the warden takes a request, and the warden pays for it.
    socket: AsyncFd<OwnedFd>,
    /// Jails that have been asked for and have not ended; none once the warden is gone.
    jails: Mutex<Option<HashMap<u64, Slot>>>,
    next: AtomicU64,
}

/// Who waits for news of a jail.
#[derive(Debug)]
struct Slot {
    started: Option<oneshot::Sender<Result<Started, Failure>>>,
    exited: oneshot::Sender<Exit>,
}

#[derive(Debug)]
struct Started {
    process: Process,
    status: OwnedFd,
    prepared: bool,
}

/// A jail's first process. Killed when dropped: whoever loses interest leaves nothing running.
#[derive(Debug)]
struct Process(OwnedFd);

impl Process {
    /// Kills the process, and with it its pid namespace. A process that has ended is not an error.
    fn kill(&self) {
        let _ = pidfd_send_signal(&self.0, Signal::KILL);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
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
        let socket =
            watched(socket, Interest::READABLE).map_err(|e| host_error("watch a socket", &e))?;
        let jails = Mutex::new(Some(HashMap::new()));
        let connection = Arc::new(Connection { socket, jails, next: AtomicU64::new(1) });
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
        self.connection.jails().is_some()
    }

    /// Clones a jail with these standard streams; its program runs when it is [ready](Jail::ready). The
    /// plan's number is set here.
    pub async fn jail(&self, plan: Plan, stdio: [OwnedFd; 3]) -> Result<Jail, StartError> {
        self.jail_in(plan, stdio, None).await
    }

    /// The same in a cgroup, of which the directory is given.
    pub(crate) async fn jail_in(
        &self,
        mut plan: Plan,
        stdio: [OwnedFd; 3],
        cgroup: Option<BorrowedFd<'_>>,
    ) -> Result<Jail, StartError> {
        plan.cgroup = cgroup.is_some();
        if plan.way == Way::Any {
            plan.way = self.way;
        }
        plan.id = self.connection.next.fetch_add(1, Ordering::Relaxed);
        let id = plan.id;
        let (started, starting) = oneshot::channel();
        let (exited, exiting) = oneshot::channel();
        let slot = Slot { started: Some(started), exited };
        match self.connection.jails().as_mut() {
            None => return Err(StartError::WardenDied),
            Some(jails) => jails.insert(id, slot),
        };
        let fds: Vec<BorrowedFd> = stdio.iter().map(|fd| fd.as_fd()).chain(cgroup).collect();
        let mut asking = Asking { connection: &self.connection, id, asked: false };
        let sent = self.connection.send(&Request::Start(&plan), &fds).await;
        sent.map_err(|e| match e.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => StartError::WardenDied,
            _ => host_error("write to the warden", &e),
        })?;
        asking.asked = true;
        drop(fds);
        drop(stdio);
        let Started { process, status, prepared } = match starting.await {
            Ok(Ok(started)) => started,
            Ok(Err(failure)) => return Err(StartError::step(failure, object(&plan, failure))),
            Err(_) => return Err(StartError::WardenDied),
        };
        let status = pipe::Receiver::from_owned_fd(status)
            .map_err(|e| host_error("watch the status of a jail", &e))?;
        let plan = Arc::new(plan);
        Ok(Jail { process, status, exited: exiting, plan, missing: Vec::new(), prepared })
    }
}

/// A request on its way. One that is given up there is none that anybody waits for.
struct Asking<'a> {
    connection: &'a Connection,
    id: u64,
    asked: bool,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if !self.asked {
            self.connection.forget(self.id);
        }
    }
}

impl Jail {
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

impl Connection {
    fn jails(&self) -> MutexGuard<'_, Option<HashMap<u64, Slot>>> {
        self.jails.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget(&self, id: u64) {
        self.jails().as_mut().and_then(|jails| jails.remove(&id));
    }

    /// Hands the warden's messages to whoever waits for them, until either end closes.
    async fn dispatch(self: Arc<Self>, closing: CancellationToken) {
        loop {
            let message = tokio::select! {
                () = closing.cancelled() => break,
                message = self.receive() => message,
            };
            match message {
                Ok(Some((response, fds))) => self.deliver(response, fds),
                Ok(None) | Err(_) => break,
            }
        }
        // Everybody who waits learns that the warden is gone by the end of their channel.
        self.jails().take();
    }

    fn deliver(&self, response: Response, fds: Vec<OwnedFd>) {
        let mut jails = self.jails();
        let Some(jails) = jails.as_mut() else { return };
        match response {
            Response::Started { id, prepared } => {
                let mut fds = fds.into_iter();
                let process = fds.next().map(Process);
                let killed = process.is_some();
                let (Some(process), Some(status)) = (process, fds.next()) else {
                    // Cut off where this process has no room for them. What came is killed by its drop.
                    let errno = rustix::io::Errno::MFILE.raw_os_error();
                    let failure = Failure { step: Step::StatusPipe, index: 0, errno };
                    if let Some(Slot { started: Some(waiting), .. }) = jails.remove(&id) {
                        let _ = waiting.send(Err(failure));
                    }
                    // One that nobody can kill must not run on: the warden takes it along.
                    if !killed {
                        let both = rustix::net::Shutdown::Both;
                        let _ = rustix::net::shutdown(self.socket.get_ref(), both);
                    }
                    return;
                };
                let started = Started { process, status, prepared };
                // When nobody waits any more, the jail is dropped here and so killed.
                if let Some(waiting) = jails.get_mut(&id).and_then(|slot| slot.started.take()) {
                    let _ = waiting.send(Ok(started));
                }
            }
            Response::Rejected { id, failure } => {
                if let Some(Slot { started: Some(waiting), .. }) = jails.remove(&id) {
                    let _ = waiting.send(Err(failure));
                }
            }
            Response::Exited { id, exit } => {
                if let Some(slot) = jails.remove(&id) {
                    let _ = slot.exited.send(exit);
                }
            }
            Response::Ready(_) | Response::Unable(_) => {}
        }
    }

    /// The next message with its descriptors; none when the warden is gone.
    async fn receive(&self) -> io::Result<Option<(Response, Vec<OwnedFd>)>> {
        let mut buffer = vec![0_u8; 4096];
        let mut fds = Vec::new();
        let receive = |socket: &OwnedFd| {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut parts = [IoSliceMut::new(&mut buffer)];
            let flags = RecvFlags::CMSG_CLOEXEC;
            let message = recvmsg(socket, &mut parts, &mut control, flags)?;
            for part in control.drain() {
                if let RecvAncillaryMessage::ScmRights(received) = part {
                    fds.extend(received);
                }
            }
            Ok(message.bytes)
        };
        let length = self.socket.async_io(Interest::READABLE, receive).await?;
        if length == 0 {
            return Ok(None);
        }
        let response = postcard::from_bytes(&buffer[..length])
            .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
        Ok(Some((response, fds)))
    }

    async fn send(&self, request: &Request<&Plan>, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let message = postcard::to_allocvec(request).map_err(io::Error::other)?;
        if message.len() > MESSAGE_BYTES {
            return Err(rustix::io::Errno::MSGSIZE.into());
        }
        let send = |socket: &OwnedFd| {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            if !fds.is_empty() {
                control.push(SendAncillaryMessage::ScmRights(fds));
            }
            let parts = [IoSlice::new(&message)];
            sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL).map_err(io::Error::from)
        };
        match send(self.socket.get_ref()) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            other => return other.map(drop),
        }
        // More requests wait than the socket holds: the warden is far behind.
        let socket = self.socket.get_ref().try_clone()?;
        let socket = watched(socket, Interest::WRITABLE)?;
        socket.async_io(Interest::WRITABLE, send).await.map(drop)
    }
}

/// Deprecated for the sake of values that could come to name another descriptor; an `OwnedFd` is one for
/// its whole life, and what is to be used in its place asks for an unsafe block.
#[allow(deprecated)]
fn watched(socket: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(socket, interest)
}

fn host_error(what: &'static str, error: &io::Error) -> StartError {
    use rustix::io::Errno;
    let errno = match error.kind() {
        io::ErrorKind::TimedOut => Errno::TIMEDOUT,
        _ => Errno::from_io_error(error).unwrap_or(Errno::IO),
    };
    StartError::host(what, errno)
}
