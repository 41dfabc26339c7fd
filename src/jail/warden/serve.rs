//! The warden's loop: requests in, jails out, ends reported.

use std::collections::HashMap;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};
use std::process::ExitCode;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, UnixAddr, recvmsg, sendmsg};
use nix::unistd::pipe2;

use crate::child::{self, Cgroup, Descriptors};
use crate::prepare::{Policies, Prepared};
use crate::seccomp::Profile;
use crate::step::Step;
use crate::sys::{self, Cloned};
use crate::wire::{Exit, Facts, Failure, MESSAGE_BYTES, Plan, Request, Response, Settings, Status};

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

struct Warden<'a> {
    control: &'a OwnedFd,
    epoll: Epoll,
    policies: Policies,
    settings: Settings,
    jails: HashMap<u64, OwnedFd>,
    buffer: Vec<u8>,
}

impl<'a> Warden<'a> {
    fn new(control: &'a OwnedFd) -> nix::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(control, EpollEvent::new(EpollFlags::EPOLLIN, CONTROL))?;
        let warden = Self {
            control,
            epoll,
            policies: Policies::new(),
            settings: Settings { pool: 0 },
            jails: HashMap::new(),
            buffer: vec![0; MESSAGE_BYTES],
        };
        let facts = Facts {
            landlock_abi: warden.policies.landlock_abi,
            mdwe: warden.policies.mdwe,
            sealed_filter: warden.policies.filter(Profile::Sealed, false).digest(),
            general_filter: warden.policies.filter(Profile::General, false).digest(),
            loopback_filter: warden.policies.filter(Profile::General, true).digest(),
        };
        warden.answer(&Response::Ready(facts), &[])?;
        Ok(warden)
    }

    fn serve(mut self) -> nix::Result<()> {
        let mut events = [EpollEvent::empty(); 16];
        loop {
            let count = match self.epoll.wait(&mut events, EpollTimeout::NONE) {
                Err(Errno::EINTR) => continue,
                other => other?,
            };
            for event in &events[..count] {
                match event.data() {
                    CONTROL => {
                        let Some((request, fds)) = self.receive()? else { return Ok(()) };
                        match request {
                            Request::Settings(settings) => self.settings = settings,
                            Request::Start(plan) => self.start(&plan, fds)?,
                        }
                    }
                    id => self.ended(id)?,
                }
            }
        }
    }

    /// The next request with its descriptors; none when the host is gone.
    fn receive(&mut self) -> nix::Result<Option<(Request, Vec<OwnedFd>)>> {
        let mut space = nix::cmsg_space!([RawFd; 4]);
        let mut parts = [IoSliceMut::new(&mut self.buffer)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let fd = self.control.as_raw_fd();
        let message = recvmsg::<UnixAddr>(fd, &mut parts, Some(&mut space), flags)?;
        let fds: Vec<OwnedFd> = message
            .cmsgs()?
            .filter_map(|part| match part {
                ControlMessageOwned::ScmRights(fds) => Some(fds),
                _ => None,
            })
            .flatten()
            .map(sys::received)
            .collect();
        let length = message.bytes;
        if length == 0 {
            return Ok(None);
        }
        // Both ends are of one build: anything else is a broken host, whose jails had better end.
        let request = postcard::from_bytes(&self.buffer[..length]).map_err(|_| Errno::EBADMSG)?;
        Ok(Some((request, fds)))
    }

    /// Starts a jail, or tells the host why not.
    fn start(&mut self, plan: &Plan, mut fds: Vec<OwnedFd>) -> nix::Result<()> {
        let cgroup = if plan.cgroup { fds.pop() } else { None };
        let started = <[OwnedFd; 3]>::try_from(fds)
            // Cut off where this process has no room for them.
            .map_err(|_| failure(Step::Stdio)(Errno::EMFILE))
            .and_then(|stdio| self.clone_jail(plan, &stdio, cgroup.as_ref()));
        match started {
            Err(failure) => self.answer(&Response::Rejected { id: plan.id, failure }, &[]),
            Ok((pidfd, status)) => {
                let fds = [pidfd.as_raw_fd(), status.as_raw_fd()];
                self.answer(&Response::Started { id: plan.id, prepared: false }, &fds)?;
                self.epoll.add(&pidfd, EpollEvent::new(EpollFlags::EPOLLIN, plan.id))?;
                self.jails.insert(plan.id, pidfd);
                Ok(())
            }
        }
    }

    /// Clones the jail; in the child this never returns.
    fn clone_jail(
        &self,
        plan: &Plan,
        stdio: &[OwnedFd; 3],
        cgroup: Option<&OwnedFd>,
    ) -> Result<(OwnedFd, OwnedFd), Failure> {
        let jail = Prepared::new(plan, &self.policies)?;
        let (reader, writer) = pipe2(OFlag::O_CLOEXEC).map_err(failure(Step::StatusPipe))?;
        let (cloned, enter) = clone_into(cgroup).map_err(failure(Step::JailNamespaces))?;
        match cloned {
            Cloned::Parent(pidfd) => Ok((pidfd, reader)),
            Cloned::Child => child::run(
                &jail,
                Descriptors {
                    stdio: [0, 1, 2].map(|n: usize| stdio[n].as_raw_fd()),
                    status: writer.as_raw_fd(),
                    cgroup: cgroup.map(|dir| Cgroup { dir: dir.as_raw_fd(), enter }),
                },
            ),
        }
    }

    /// Reaps a jail's first process, whose end means that the kernel has ended all others of its pid
    /// namespace, and tells the host.
    fn ended(&mut self, id: u64) -> nix::Result<()> {
        let Some(pidfd) = self.jails.remove(&id) else { return Ok(()) };
        // Removed before it is closed: children still hold copies, and epoll would fire for ever.
        self.epoll.delete(&pidfd)?;
        let (info, usage) = sys::reap(pidfd.as_fd())?;
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
fn clone_into(cgroup: Option<&OwnedFd>) -> nix::Result<(Cloned, bool)> {
    const OTHERS: u64 = NAMESPACES & !(libc::CLONE_NEWCGROUP as u64);
    let Some(cgroup) = cgroup else { return Ok((sys::clone3(NAMESPACES, None)?, false)) };
    match sys::clone3(OTHERS, Some(cgroup.as_fd())) {
        Err(Errno::ENOSYS | Errno::E2BIG | Errno::EINVAL) => Ok((sys::clone3(OTHERS, None)?, true)),
        cloned => Ok((cloned?, false)),
    }
}

fn failure(step: Step) -> impl Fn(Errno) -> Failure {
    move |errno| Failure { step, index: 0, errno: errno as i32 }
}
