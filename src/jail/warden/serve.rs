//! The warden's loop: requests in, jails out, ends reported.

use std::collections::{HashMap, VecDeque};
use std::io::IoSlice;
use std::os::fd::{AsFd as _, AsRawFd, OwnedFd, RawFd};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{ControlMessage, MsgFlags, UnixAddr, sendmsg};

use crate::groups::{Groups, Lent};
use crate::handover;
use crate::make::{Made, Refused, end, is_for_room};
use crate::network::Network;
use crate::pool::{self, Pool};
use crate::prepare::Policies;
use crate::seccomp::{Filter, FilterOptions, Profile};
use crate::step::Step;
use crate::sys;
use crate::views::Views;
use crate::wire::{
    Exit, Facts, Failure, GroupLimits, MESSAGE_BYTES, Plan, Request, Response, Status,
};

/// The epoll datum of the socket; jails have their plan's number, which is never 0.
const CONTROL: u64 = 0;

/// Serves until the host's end of the socket closes; then the kernel ends every jail with this process.
/// `few_views` are few cgroup namespaces.
pub fn run(control: &OwnedFd, network: Network, few_views: bool) -> ExitCode {
    match Warden::new(control, network, few_views).and_then(Warden::serve) {
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

/// After how many milliseconds a request for which there was no room is tried again, and for how long.
const ROOM_AFTER: u16 = 5;
const ROOM_WITHIN: Duration = Duration::from_secs(1);

/// A request for which there is going to be room.
struct Waiting {
    plan: Box<Plan>,
    stdio: [OwnedFd; 3],
    until: Instant,
}

/// The first process of a jail.
#[derive(Debug)]
pub(crate) struct Living {
    pub pidfd: OwnedFd,
    /// The lent group that it is in, while it waits for a plan.
    pub group: Option<u64>,
}

pub(crate) struct Warden<'a> {
    control: &'a OwnedFd,
    pub(crate) epoll: Epoll,
    pub(crate) policies: Policies,
    /// None where they cannot be had: then the host's is the only one.
    pub(crate) views: Option<Views>,
    pub(crate) network: Network,
    pub(crate) pool: Pool,
    /// Those that live, by the host's number or the pool's.
    pub(crate) jails: HashMap<u64, Living>,
    waiting: VecDeque<Waiting>,
    /// When one has ended last.
    pub(crate) ended: Option<Instant>,
    pub(crate) groups: Groups,
    buffer: Vec<u8>,
}

impl<'a> Warden<'a> {
    fn new(control: &'a OwnedFd, network: Network, few_views: bool) -> nix::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(control, EpollEvent::new(EpollFlags::EPOLLIN, CONTROL))?;
        let policies = Policies::new();
        let warden = Self {
            control,
            epoll,
            views: policies.mechanisms.detached_mounts.then(|| Views::new().ok()).flatten(),
            policies,
            network,
            pool: Pool::new(few_views),
            jails: HashMap::new(),
            waiting: VecDeque::new(),
            ended: None,
            groups: Groups::default(),
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
            let wanting = wanting
                .filter(|example| self.has_group(example) || self.pool.is_in_the_way(example));
            let idle = wanting.is_some() || self.network.wanting();
            let patience = match idle {
                _ if !self.waiting.is_empty() => ROOM_AFTER.into(),
                true => IDLE.into(),
                false => EpollTimeout::NONE,
            };
            let count = match self.epoll.wait(&mut events, patience) {
                Err(Errno::EINTR) => continue,
                other => other?,
            };
            match (count, wanting) {
                _ if !self.waiting.is_empty() => {}
                (0, Some(example)) => self.refill(example)?,
                (0, None) => self.network.make(),
                _ => {}
            }
            for event in &events[..count] {
                match event.data() {
                    CONTROL => {
                        let Some(message) = self.receive()? else { return Ok(()) };
                        self.serve_one(message)?;
                    }
                    id => self.ended(id)?,
                }
            }
            self.try_waiting()?;
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

    fn serve_one(&mut self, Message { request, fds }: Message) -> nix::Result<()> {
        match request {
            Request::Settings(settings) => {
                let over = self.pool.resize(settings.pool);
                self.let_go(over);
            }
            Request::Lend { group, limits } => {
                return self.lend(group, limits, fds.into_iter().next());
            }
            Request::Start(plan) => return self.start(plan, fds),
        }
        Ok(())
    }

    fn lend(&mut self, number: u64, limits: GroupLimits, dir: Option<OwnedFd>) -> nix::Result<()> {
        let back = match dir {
            Some(dir) => self.groups.add(Lent { number, limits, dir }).map(|old| old.number),
            // Cut off where this process has no room for it.
            None => Some(number),
        };
        back.map_or(Ok(()), |group| self.answer(&Response::Returned { group }, &[]))
    }

    /// Starts a jail, tells the host why not, or tries again soon.
    fn start(&mut self, plan: Box<Plan>, mut fds: Vec<OwnedFd>) -> nix::Result<()> {
        let dir = fds.get(3).is_some().then(|| fds.pop()).flatten();
        let (Ok(stdio), true) =
            (<[OwnedFd; 3]>::try_from(fds), dir.is_some() == plan.group.is_some())
        else {
            // Cut off where this process has no room for them.
            let failure = failure(Step::Stdio)(Errno::EMFILE);
            let group = plan.group.map(|_| plan.lent);
            return self.tell(&plan, Err(Refused { failure, group }));
        };
        if let Some(limits) = plan.group {
            self.lend(plan.lent, limits, dir)?;
        }
        let until = Instant::now() + ROOM_WITHIN;
        if !self.waiting.is_empty() {
            // They come first.
            self.waiting.push_back(Waiting { plan, stdio, until });
            return Ok(());
        }
        let made = self.make(&plan, &stdio);
        let room = made.as_ref().is_err_and(|refused| is_for_room(refused.failure));
        if room && self.makes_room(&plan) {
            self.waiting.push_back(Waiting { plan, stdio, until });
            return Ok(());
        }
        self.tell(&plan, made)
    }

    /// Tries requests again for which there was no room, in their order.
    fn try_waiting(&mut self) -> nix::Result<()> {
        while let Some(Waiting { plan, stdio, until }) = self.waiting.pop_front() {
            let made = self.make(&plan, &stdio);
            let room = made.as_ref().is_err_and(|refused| is_for_room(refused.failure));
            if room && Instant::now() < until {
                self.waiting.push_front(Waiting { plan, stdio, until });
                return Ok(());
            }
            self.tell(&plan, made)?;
        }
        Ok(())
    }

    /// Tells the host what has become of a request.
    fn tell(&mut self, plan: &Plan, made: Result<Made, Refused>) -> nix::Result<()> {
        let id = plan.id;
        let Made { pidfd, status, prepared, group } = match made {
            Ok(made) => made,
            Err(Refused { failure, group }) => {
                // One came with it.
                let mut spare =
                    || plan.group.and_then(|limits| self.groups.take(limits, plan.lent));
                let group = group.or_else(|| spare().map(|lent| lent.number));
                return self.answer(&Response::Rejected { id, failure, group }, &[]);
            }
        };
        let fds = [pidfd.as_raw_fd(), status.as_raw_fd()];
        if let Err(errno) = self.answer(&Response::Started { id, prepared, group }, &fds) {
            // Too many are on their way (ETOOMANYREFS). Where the host is gone, so is this soon.
            self.epoll.delete(&pidfd)?;
            end(&pidfd);
            let failure = failure(Step::Stdio)(errno);
            return self.answer(&Response::Rejected { id, failure, group }, &[]);
        }
        self.jails.insert(id, Living { pidfd, group: None });
        if self.policies.mechanisms.detached_mounts {
            self.pool.learn(plan);
        }
        self.give_back_spare()
    }

    /// Gives groups back that no jail is going to be in.
    fn give_back_spare(&mut self) -> nix::Result<()> {
        let waiting = |limits| {
            self.waiting.iter().filter(|waiting| waiting.plan.group == Some(limits)).count()
        };
        let spare = self.groups.take_spare(|limits| self.pool.uses(limits) + waiting(limits));
        for lent in spare {
            self.answer(&Response::Returned { group: lent.number }, &[])?;
        }
        Ok(())
    }

    /// Prepares one jail for the pool, or sees to it that this is possible soon. A failure is left to the
    /// next request to be told.
    fn refill(&mut self, example: Rc<Plan>) -> nix::Result<()> {
        if !self.has_group(&example) {
            let cleared = self.pool.clear_the_way(&example);
            self.let_go(cleared);
            return Ok(());
        }
        match self.park(example) {
            Ok(parked) => {
                let other = self.pool.add(parked);
                self.let_go(other);
            }
            Err(Refused { group, .. }) => {
                self.pool.forget();
                if let Some(group) = group {
                    return self.answer(&Response::Returned { group }, &[]);
                }
            }
        }
        Ok(())
    }

    /// Reaps a jail's first process, whose end means that the kernel has ended all others of its pid
    /// namespace, and tells the host.
    fn ended(&mut self, id: u64) -> nix::Result<()> {
        let Some(Living { pidfd, group }) = self.jails.remove(&id) else { return Ok(()) };
        // Removed before it is closed: children still hold copies, and epoll would fire for ever.
        self.epoll.delete(&pidfd)?;
        let (info, usage) = sys::reap(pidfd.as_fd())?;
        self.ended = Some(Instant::now());
        if pool::is_ours(id) {
            self.pool.ended(id);
            return group.map_or(Ok(()), |group| self.answer(&Response::Returned { group }, &[]));
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

pub(crate) fn failure(step: Step) -> impl Fn(Errno) -> Failure {
    move |errno| Failure { step, index: 0, errno: errno as i32 }
}
