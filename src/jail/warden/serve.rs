//! The warden's loop: requests in, jails out, ends reported.

use std::collections::HashMap;
use std::io::IoSlice;
use std::os::fd::{AsFd as _, AsRawFd, OwnedFd, RawFd};
use std::process::ExitCode;
use std::rc::Rc;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sched::sched_yield;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{ControlMessage, MsgFlags, UnixAddr, sendmsg};
use nix::unistd::pipe2;

use crate::child::{self, Cgroup, Descriptors};
use crate::handover;
use crate::network::Network;
use crate::parked;
use crate::pool::{self, Parked, Pool, can_be_prepared};
use crate::prepare::{self, Policies, Prepared};
use crate::seccomp::{Filter, FilterOptions, Profile};
use crate::step::Step;
use crate::sys::{self, Cloned};
use crate::views::{self, Views};
use crate::wire::{Exit, Facts, Failure, MESSAGE_BYTES, Plan, Request, Response, Status, Way};

/// Every kind of namespace but time, which separates nothing.
pub const NAMESPACES: u64 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP) as u64;

/// The epoll datum of the socket; jails have their plan's number, which is never 0.
const CONTROL: u64 = 0;

/// Serves until the host's end of the socket closes; then the kernel ends every jail with this process.
pub fn run(control: &OwnedFd) -> ExitCode {
    match Warden::new(control).and_then(Warden::serve) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// How long nothing must have happened before anything is prepared, in milliseconds: whoever has just asked
/// for a jail waits for it, and making another would be in its way.
const IDLE: u16 = 2;

/// A request as it came.
struct Message {
    request: Request,
    fds: Vec<OwnedFd>,
}

/// A jail that is a plan's.
struct Made {
    pidfd: OwnedFd,
    status: OwnedFd,
    /// It was prepared before its plan was known.
    prepared: bool,
}

struct Warden<'a> {
    control: &'a OwnedFd,
    epoll: Epoll,
    policies: Policies,
    /// None where they cannot be had: then the host's is the only one.
    views: Option<Views>,
    network: Network,
    pool: Pool,
    jails: HashMap<u64, OwnedFd>,
    buffer: Vec<u8>,
}

impl<'a> Warden<'a> {
    fn new(control: &'a OwnedFd) -> nix::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(control, EpollEvent::new(EpollFlags::EPOLLIN, CONTROL))?;
        let policies = Policies::new();
        let warden = Self {
            control,
            epoll,
            views: policies.mechanisms.detached_mounts.then(|| Views::new().ok()).flatten(),
            policies,
            network: Network::default(),
            pool: Pool::default(),
            jails: HashMap::new(),
            buffer: vec![0; MESSAGE_BYTES],
        };
        let plain = FilterOptions::default();
        let clearing = FilterOptions { clears: true, ..plain };
        let loopback = FilterOptions { loopback: true, ..plain };
        let facts = Facts {
            mechanisms: warden.policies.mechanisms,
            landlock_abi: warden.policies.landlock_abi,
            mdwe: warden.policies.mdwe,
            sealed_filter: warden.policies.filter(Profile::Sealed, plain).digest(),
            sealed_stages: [&warden.policies.stages.first, &warden.policies.stages.second]
                .map(Filter::digest),
            clearing_filter: warden.policies.filter(Profile::Sealed, clearing).digest(),
            general_filter: warden.policies.filter(Profile::General, plain).digest(),
            loopback_filter: warden.policies.filter(Profile::General, loopback).digest(),
        };
        warden.answer(&Response::Ready(facts), &[])?;
        Ok(warden)
    }

    fn serve(mut self) -> nix::Result<()> {
        let mut events = [EpollEvent::empty(); 16];
        loop {
            let wanting = self.pool.wanting();
            let idle = wanting.is_some() || self.network.wanting();
            let patience = if idle { IDLE.into() } else { EpollTimeout::NONE };
            let count = match self.epoll.wait(&mut events, patience) {
                Err(Errno::EINTR) => continue,
                other => other?,
            };
            match (count, wanting) {
                (0, Some(example)) => self.refill(example),
                (0, None) => self.network.make(),
                _ => {}
            }
            for event in &events[..count] {
                match event.data() {
                    CONTROL => {
                        let Some(message) = self.receive()? else { return Ok(()) };
                        match message.request {
                            Request::Settings(settings) => self.pool.resize(settings.pool),
                            Request::Start(plan) => self.start(&plan, message.fds)?,
                        }
                    }
                    id => self.ended(id)?,
                }
            }
        }
    }

    /// The next request with its descriptors; none when the host is gone.
    fn receive(&mut self) -> nix::Result<Option<Message>> {
        let (length, fds) = handover::receive(self.control.as_raw_fd(), &mut self.buffer)?;
        if length == 0 {
            return Ok(None);
        }
        // Both ends are of one build: anything else is a broken host, whose jails had better end.
        let request = postcard::from_bytes(&self.buffer[..length]).map_err(|_| Errno::EBADMSG)?;
        Ok(Some(Message { request, fds }))
    }

    /// Starts a jail, or tells the host why not.
    fn start(&mut self, plan: &Plan, mut fds: Vec<OwnedFd>) -> nix::Result<()> {
        let cgroup = if plan.cgroup { fds.pop() } else { None };
        let started = <[OwnedFd; 3]>::try_from(fds)
            // Cut off where this process has no room for them.
            .map_err(|_| failure(Step::Stdio)(Errno::EMFILE))
            .and_then(|stdio| self.make(plan, &stdio, cgroup.as_ref()));
        match started {
            Err(failure) => self.answer(&Response::Rejected { id: plan.id, failure }, &[])?,
            Ok(Made { pidfd, status, prepared }) => {
                let fds = [pidfd.as_raw_fd(), status.as_raw_fd()];
                if let Err(errno) = self.answer(&Response::Started { id: plan.id, prepared }, &fds)
                {
                    // Too many are on their way (ETOOMANYREFS). Where the host is gone, so is this soon.
                    self.epoll.delete(&pidfd)?;
                    end(&pidfd);
                    let failure = failure(Step::Stdio)(errno);
                    return self.answer(&Response::Rejected { id: plan.id, failure }, &[]);
                }
                self.jails.insert(plan.id, pidfd);
            }
        }
        if self.policies.mechanisms.detached_mounts {
            self.pool.learn(plan);
        }
        Ok(())
    }

    /// By the way that the plan asks for: from the pool, prepared now, or directly.
    fn make(
        &mut self,
        plan: &Plan,
        stdio: &[OwnedFd; 3],
        cgroup: Option<&OwnedFd>,
    ) -> Result<Made, Failure> {
        let detached = self.policies.mechanisms.detached_mounts;
        if detached && plan.way != Way::Direct && can_be_prepared(plan) {
            let parked = self.take(plan);
            if parked.is_some() || plan.way == Way::Prepared {
                return self.make_prepared(plan, parked, stdio);
            }
        }
        let (pidfd, status) = self.clone_jail(plan, stdio, cgroup)?;
        self.watch(&pidfd, plan.id)?;
        Ok(Made { pidfd, status, prepared: false })
    }

    /// A jail from the pool that fits and lives. One that has ended is left to the loop, which is going to
    /// hear of it.
    fn take(&mut self, plan: &Plan) -> Option<Parked> {
        loop {
            let parked = self.pool.take(plan)?;
            let pidfd = self.jails.get(&parked.number);
            if pidfd.is_some_and(|pidfd| !sys::has_ended(pidfd.as_fd())) {
                return Some(parked);
            }
        }
    }

    /// Makes a prepared jail the plan's, the given one or one that is prepared now, and hands it what is
    /// the plan's alone.
    fn make_prepared(
        &mut self,
        plan: &Plan,
        parked: Option<Parked>,
        stdio: &[OwnedFd; 3],
    ) -> Result<Made, Failure> {
        let trees = match prepare::trees(plan) {
            Ok(trees) => trees,
            Err(failure) => {
                if let Some(parked) = parked {
                    self.pool.add(parked);
                }
                return Err(failure);
            }
        };
        let parked = match parked {
            Some(parked) => parked,
            // Should its preparation fail meanwhile, its status says why.
            None => self.park(Rc::new(plan.clone()))?,
        };
        let Parked { number, control, status, .. } = parked;
        let pidfd = self.jails.remove(&number);
        let pidfd = pidfd.ok_or_else(|| failure(Step::Plan)(Errno::ESRCH))?;
        let mut event = EpollEvent::new(EpollFlags::EPOLLIN, plan.id);
        let given = self
            .epoll
            .modify(&pidfd, &mut event)
            .map_err(failure(Step::Watch))
            .and_then(|()| pass(&control, stdio.iter().chain(&trees)));
        if let Err(failure) = given {
            let _ = self.epoll.delete(&pidfd);
            end(&pidfd);
            return Err(failure);
        }
        // Where the two share a processor the jail goes first: the host waits for nothing else.
        let _ = sched_yield();
        Ok(Made { pidfd, status, prepared: true })
    }

    /// Clones a jail that does every step by itself; in the child this never returns.
    fn clone_jail(
        &self,
        plan: &Plan,
        stdio: &[OwnedFd; 3],
        cgroup: Option<&OwnedFd>,
    ) -> Result<(OwnedFd, OwnedFd), Failure> {
        let jail = Prepared::new(plan, &self.policies, self.place(plan))?;
        let (reader, writer) = pipe2(OFlag::O_CLOEXEC).map_err(failure(Step::StatusPipe))?;
        let detached = self.policies.mechanisms.detached_mounts;
        let pair = detached.then(handover::pair).transpose().map_err(failure(Step::Plan))?;
        // A loopback is raised by the jail, whose own the namespace has to be.
        let cloned = self.clone_away(!plan.loopback, cgroup);
        let (cloned, enter) = cloned.map_err(|errno| match errno {
            // Only its cgroup: gone, threaded, or with processes in its children.
            Errno::ENODEV | Errno::EOPNOTSUPP | Errno::EBUSY => failure(Step::Cgroup)(errno),
            _ => failure(Step::JailNamespaces)(errno),
        })?;
        match cloned {
            Cloned::Child => child::run(
                jail,
                Descriptors {
                    stdio: [0, 1, 2].map(|n: usize| stdio[n].as_raw_fd()),
                    status: writer.as_raw_fd(),
                    trees: pair.as_ref().map(|(_, theirs)| theirs.as_raw_fd()),
                    cgroup: cgroup.map(|dir| Cgroup { dir: dir.as_raw_fd(), enter }),
                },
            ),
            Cloned::Parent(pidfd) => {
                if let Some((ours, _)) = &pair {
                    // While the child does what needs no directory.
                    let trees = prepare::all_trees(plan);
                    let given = trees.and_then(|trees| pass(ours, trees.iter()));
                    given.inspect_err(|_| end(&pidfd))?;
                }
                Ok((pidfd, reader))
            }
        }
    }

    /// Clones a jail that goes as far as it can without a turn; in the child this never returns.
    fn park(&mut self, example: Rc<Plan>) -> Result<Parked, Failure> {
        let place = Prepared::root_alone(&example, &self.policies, self.place(&example))?;
        let (reader, writer) = pipe2(OFlag::O_CLOEXEC).map_err(failure(Step::StatusPipe))?;
        let (ours, theirs) = handover::pair().map_err(failure(Step::Plan))?;
        let cloned = self.clone_away(true, None);
        match cloned.map_err(failure(Step::JailNamespaces))?.0 {
            Cloned::Child => parked::run(place, theirs.as_raw_fd(), writer.as_raw_fd()),
            Cloned::Parent(pidfd) => {
                drop(place);
                let parked = self.pool.parked(example, ours, reader);
                self.watch(&pidfd, parked.number)?;
                self.jails.insert(parked.number, pidfd);
                Ok(parked)
            }
        }
    }

    /// Prepares one jail for the pool. A failure is left to the next request to be told.
    fn refill(&mut self, example: Rc<Plan>) {
        match self.park(example) {
            Ok(parked) => self.pool.add(parked),
            Err(_) => self.pool.forget(),
        }
    }

    /// Where a jail's root is attached.
    fn place<'p>(&self, plan: &'p Plan) -> &'p [u8] {
        if self.views.is_some() { views::ROOT } else { &plan.root.path }
    }

    /// Clones a jail where nothing of the host's can be seen, in the network namespace that was made ahead
    /// where there is one and it may be.
    fn clone_away(
        &self,
        may_be_ahead: bool,
        cgroup: Option<&OwnedFd>,
    ) -> nix::Result<(Cloned, bool)> {
        if let Some(views) = &self.views {
            views.enter()?;
        }
        let ahead = may_be_ahead && self.network.take();
        let made = if ahead { libc::CLONE_NEWNET as u64 } else { 0 };
        let cloned = clone_into(NAMESPACES & !made, cgroup);
        if matches!(cloned, Ok((Cloned::Child, _))) {
            return cloned;
        }
        if ahead {
            self.network.leave();
        }
        if let Some(views) = &self.views {
            views.leave();
        }
        cloned
    }

    /// Has the loop told when a jail ends. One that cannot be watched is ended here.
    fn watch(&self, pidfd: &OwnedFd, number: u64) -> Result<(), Failure> {
        let event = EpollEvent::new(EpollFlags::EPOLLIN, number);
        self.epoll.add(pidfd, event).map_err(|errno| {
            end(pidfd);
            failure(Step::Watch)(errno)
        })
    }

    /// Reaps a jail's first process, whose end means that the kernel has ended all others of its pid
    /// namespace, and tells the host.
    fn ended(&mut self, id: u64) -> nix::Result<()> {
        let Some(pidfd) = self.jails.remove(&id) else { return Ok(()) };
        // Removed before it is closed: children still hold copies, and epoll would fire for ever.
        self.epoll.delete(&pidfd)?;
        let (info, usage) = sys::reap(pidfd.as_fd())?;
        if pool::is_ours(id) {
            self.pool.ended(id);
            return Ok(());
        }
        let microseconds = |t: libc::timeval| t.tv_sec as u64 * 1_000_000 + t.tv_usec as u64;
        let exit = Exit {
            status: match info.si_code {
                libc::CLD_EXITED => Status::Code(sys::exit_status(&info)),
                _ => Status::Signal(sys::exit_status(&info)),
            },
            user_us: microseconds(usage.ru_utime),
            system_us: microseconds(usage.ru_stime),
            max_rss_kib: usage.ru_maxrss as u64,
        };
        self.answer(&Response::Exited { id, exit }, &[])
    }

    fn answer(&self, response: &Response, fds: &[RawFd]) -> nix::Result<()> {
        let message = postcard::to_allocvec(response).map_err(|_| Errno::EMSGSIZE)?;
        let rights = [ControlMessage::ScmRights(fds)];
        let rights = if fds.is_empty() { &rights[..0] } else { &rights[..] };
        let parts = [IoSlice::new(&message)];
        let flags = MsgFlags::MSG_NOSIGNAL;
        sendmsg::<UnixAddr>(self.control.as_raw_fd(), &parts, rights, flags, None).map(drop)
    }
}

/// Clones a jail into its cgroup; whether the child still has to enter that itself, because the kernel
/// cannot do it (before Linux 5.7 it takes no such argument; a filter may forbid what it does not know).
/// Its cgroup namespace it makes itself, once it is there: what that has as its root is where it is then,
/// and nothing can be entered from within that lies outside.
fn clone_into(namespaces: u64, cgroup: Option<&OwnedFd>) -> nix::Result<(Cloned, bool)> {
    let Some(cgroup) = cgroup else { return Ok((sys::clone3(namespaces, None)?, false)) };
    let others = namespaces & !(libc::CLONE_NEWCGROUP as u64);
    match sys::clone3(others, Some(cgroup.as_fd())) {
        Err(Errno::ENOSYS | Errno::E2BIG | Errno::EINVAL) => Ok((sys::clone3(others, None)?, true)),
        cloned => Ok((cloned?, false)),
    }
}

/// Hands descriptors to a jail. One that has ended is told of by its end and its status.
fn pass<'a>(jail: &OwnedFd, fds: impl Iterator<Item = &'a OwnedFd>) -> Result<(), Failure> {
    let fds: Vec<RawFd> = fds.map(AsRawFd::as_raw_fd).collect();
    match handover::send(jail.as_raw_fd(), &fds) {
        Ok(()) | Err(Errno::EPIPE | Errno::ECONNRESET) => Ok(()),
        Err(errno) => Err(failure(Step::Plan)(errno)),
    }
}

/// Ends a jail that the host is not going to hear of.
fn end(pidfd: &OwnedFd) {
    let _ = sys::kill(pidfd.as_fd());
    while let Err(Errno::EINTR) = sys::reap(pidfd.as_fd()) {}
}

fn failure(step: Step) -> impl Fn(Errno) -> Failure {
    move |errno| Failure { step, index: 0, errno: errno as i32 }
}
