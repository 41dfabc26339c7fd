//! The messages between the host and its warden, and who waits for which.

use std::collections::HashMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::process::{Signal, pidfd_send_signal};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use turnjail_warden::step::Step;
use turnjail_warden::wire::{Exit, Failure, GroupLimits, MESSAGE_BYTES, Plan, Request, Response};

use crate::StartError;
use crate::limits::{Group, Lent};

/// The connection with a warden.
#[derive(Debug)]
pub(crate) struct Connection {
    /// A SOCK_SEQPACKET socket. Watched for reading alone: who watches it for writing is woken each time
    /// that the warden takes a request, and the warden pays for it.
    socket: AsyncFd<OwnedFd>,
    /// Jails that have been asked for and have not ended; none once the warden is gone.
    jails: Mutex<Option<HashMap<u64, Slot>>>,
    next: AtomicU64,
    /// The groups that the warden has for jails to come.
    pub lent: Lent,
}

/// Who waits for news of a jail.
#[derive(Debug)]
struct Slot {
    started: Option<oneshot::Sender<Result<Started, Failure>>>,
    exited: oneshot::Sender<Exit>,
}

/// What the warden tells of a jail that it has cloned.
#[derive(Debug)]
pub(crate) struct Started {
    pub process: Process,
    pub status: OwnedFd,
    pub prepared: bool,
    pub group: Option<Group>,
}

/// A jail's first process. Killed when dropped: whoever loses interest leaves nothing running.
#[derive(Debug)]
pub(crate) struct Process(pub OwnedFd);

impl Process {
    /// Kills the process, and with it its pid namespace. A process that has ended is not an error.
    pub fn kill(&self) {
        let _ = pidfd_send_signal(&self.0, Signal::KILL);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Connection {
    /// With a packet socket whose other end is a warden's.
    pub fn new(socket: OwnedFd) -> Result<Self, StartError> {
        let socket = watched(socket, Interest::READABLE);
        Ok(Self {
            socket: socket.map_err(|e| host_error("watch a socket", &e))?,
            jails: Mutex::new(Some(HashMap::new())),
            next: AtomicU64::new(1),
            lent: Lent::default(),
        })
    }

    /// Whether the warden still answers.
    pub fn alive(&self) -> bool {
        self.jails().is_some()
    }

    /// Asks for a jail and waits until it has been cloned, or the warden says why not.
    pub async fn ask(
        &self,
        plan: &mut Plan,
        stdio: [OwnedFd; 3],
        group: Option<Group>,
    ) -> Result<Result<(Started, oneshot::Receiver<Exit>), Failure>, StartError> {
        plan.id = self.next.fetch_add(1, Ordering::Relaxed);
        let (started, starting) = oneshot::channel();
        let (exited, exiting) = oneshot::channel();
        let slot = Slot { started: Some(started), exited };
        match self.jails().as_mut() {
            None => return Err(StartError::WardenDied),
            Some(jails) => jails.insert(plan.id, slot),
        };
        let mut asking = Asking { connection: self, id: plan.id, asked: false };
        let lending = match plan.group.zip(group) {
            Some((limits, group)) => Some(Lending::new(&self.lent, limits, group)?),
            None => None,
        };
        plan.lent = lending.as_ref().map_or(0, |lending| lending.number);
        let dir = lending.as_ref().map(|lending| lending.dir.as_fd());
        let fds: Vec<BorrowedFd> = stdio.iter().map(|fd| fd.as_fd()).chain(dir).collect();
        let sent = self.send(&Request::Start(&*plan), &fds).await;
        sent.map_err(|e| send_error(&e))?;
        asking.asked = true;
        drop(fds);
        // They are the warden's now, and a host with many jails needs the room.
        drop(stdio);
        if let Some(lending) = lending {
            lending.done();
        }
        let started = starting.await.map_err(|_| StartError::WardenDied)?;
        Ok(started.map(|started| (started, exiting)))
    }

    /// Lends the warden a group.
    pub async fn lend(&self, limits: GroupLimits, group: Group) -> Result<(), StartError> {
        let lending = Lending::new(&self.lent, limits, group)?;
        let request = Request::Lend { group: lending.number, limits };
        self.send(&request, &[lending.dir.as_fd()]).await.map_err(|e| send_error(&e))?;
        lending.done();
        Ok(())
    }

    fn jails(&self) -> MutexGuard<'_, Option<HashMap<u64, Slot>>> {
        self.jails.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn forget(&self, id: u64) {
        self.jails().as_mut().and_then(|jails| jails.remove(&id));
    }

    /// Hands the warden's messages to whoever waits for them, until either end closes.
    pub async fn dispatch(self: Arc<Self>, closing: CancellationToken) {
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
        // It and its jails end by this, so that no group is held any more.
        let _ = rustix::net::shutdown(self.socket.get_ref(), rustix::net::Shutdown::Both);
        // Everybody who waits learns that the warden is gone by the end of their channel.
        self.jails().take();
        let _ = tokio::task::spawn_blocking(move || self.lent.clear()).await;
    }

    fn deliver(&self, response: Response, fds: Vec<OwnedFd>) {
        // Before the lock, and so dropped after it.
        let mut lent = match &response {
            Response::Started { group, .. } | Response::Rejected { group, .. } => *group,
            Response::Returned { group } => Some(*group),
            _ => None,
        }
        .and_then(|group| self.lent.take(group));
        let mut guard = self.jails();
        let Some(jails) = guard.as_mut() else { return };
        match response {
            Response::Started { id, prepared, .. } => {
                let group = lent.take();
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
                let started = Started { process, status, prepared, group };
                // When nobody waits any more, the jail is dropped here and so killed.
                if let Some(waiting) = jails.get_mut(&id).and_then(|slot| slot.started.take()) {
                    let unwanted = waiting.send(Ok(started)).err();
                    drop(guard);
                    drop(unwanted);
                }
            }
            Response::Rejected { id, failure, .. } => {
                if let Some(Slot { started: Some(waiting), .. }) = jails.remove(&id) {
                    let _ = waiting.send(Err(failure));
                }
            }
            Response::Exited { id, exit } => {
                if let Some(slot) = jails.remove(&id) {
                    let _ = slot.exited.send(exit);
                }
            }
            Response::Returned { .. } | Response::Ready(_) | Response::Unable(_) => {}
        }
    }

    /// The next message with its descriptors; none when the warden is gone.
    pub async fn receive(&self) -> io::Result<Option<(Response, Vec<OwnedFd>)>> {
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

    pub async fn send(&self, request: &Request<&Plan>, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
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

/// A request on its way. Nobody waits for one that is given up.
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

/// A group on its way to the warden. One that does not get there is not lent.
struct Lending<'a> {
    lent: &'a Lent,
    number: u64,
    dir: OwnedFd,
    sent: bool,
}

impl<'a> Lending<'a> {
    fn new(lent: &'a Lent, limits: GroupLimits, group: Group) -> Result<Self, StartError> {
        let dir = group.dir().try_clone_to_owned();
        let dir = dir.map_err(|e| host_error("duplicate the descriptor of a cgroup", &e))?;
        Ok(Self { lent, number: lent.add(limits, group), dir, sent: false })
    }

    fn done(mut self) {
        self.sent = true;
    }
}

impl Drop for Lending<'_> {
    fn drop(&mut self) {
        if !self.sent {
            self.lent.take(self.number);
        }
    }
}

/// Deprecated for the sake of values that could come to name another descriptor; an `OwnedFd` is one for
/// its whole life, and what is to be used in its place asks for an unsafe block.
#[allow(deprecated)]
fn watched(socket: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(socket, interest)
}

fn send_error(error: &io::Error) -> StartError {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => StartError::WardenDied,
        _ => host_error("write to the warden", error),
    }
}

pub(crate) fn host_error(what: &'static str, error: &io::Error) -> StartError {
    use rustix::io::Errno;
    let errno = match error.kind() {
        io::ErrorKind::TimedOut => Errno::TIMEDOUT,
        _ => Errno::from_io_error(error).unwrap_or(Errno::IO),
    };
    StartError::host(what, errno)
}
