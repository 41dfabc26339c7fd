//! How the warden makes a jail: from the pool, prepared now, or directly.

use std::os::fd::{AsFd as _, AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sched::sched_yield;
use nix::sys::epoll::{EpollEvent, EpollFlags};
use nix::unistd::pipe2;

use crate::child::{self, Cgroup, Descriptors};
use crate::groups::Lent;
use crate::pool::{self, Parked, can_be_prepared};
use crate::prepare::{self, Prepared};
use crate::serve::{Living, Warden, failure};
use crate::step::Step;
use crate::sys::{self, Cloned};
use crate::wire::{Failure, Plan, Way};
use crate::{handover, parked, views};

/// Every kind of namespace but time, which separates nothing.
pub const NAMESPACES: u64 = (libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP) as u64;

/// The kernel counts namespaces for a while after their last process, on a busy machine for longer.
const LATELY: Duration = Duration::from_secs(1);

/// Whether there are too many namespaces (user_namespaces(7)) or processes for one more.
pub(crate) fn is_for_room(failure: Failure) -> bool {
    let errnos = [Errno::ENOSPC as i32, Errno::EAGAIN as i32];
    failure.step == Step::JailNamespaces && errnos.contains(&failure.errno)
}

/// A jail that is a plan's.
pub(crate) struct Made {
    pub pidfd: OwnedFd,
    pub status: OwnedFd,
    /// It was prepared before its plan was known.
    pub prepared: bool,
    /// The lent group that it is in.
    pub group: Option<u64>,
}

/// Why there is no jail.
pub(crate) struct Refused {
    pub failure: Failure,
    /// The lent group in which it was to be. Nothing is in it.
    pub group: Option<u64>,
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Self { failure, group: None }
    }
}

impl Warden<'_> {
    /// By the way that the plan asks for: from the pool, prepared now, or directly.
    pub fn make(&mut self, plan: &Plan, stdio: &[OwnedFd; 3]) -> Result<Made, Refused> {
        let detached = self.policies.mechanisms.detached_mounts;
        if detached && plan.way != Way::Direct && can_be_prepared(plan) {
            let parked = self.take(plan);
            if parked.is_some() || plan.way == Way::Prepared {
                return self.make_prepared(plan, parked, stdio);
            }
        }
        let lent = self.take_group(plan)?;
        let made = self.make_directly(plan, stdio, lent.as_ref());
        made.map_err(|failure| self.refuse(failure, lent))
    }

    fn make_directly(
        &self,
        plan: &Plan,
        stdio: &[OwnedFd; 3],
        lent: Option<&Lent>,
    ) -> Result<Made, Failure> {
        let (pidfd, status) = self.clone_jail(plan, stdio, lent)?;
        self.watch(&pidfd, plan.id)?;
        Ok(Made { pidfd, status, prepared: false, group: lent.map(|lent| lent.number) })
    }

    /// Keeps the group where the request may be tried again.
    fn refuse(&mut self, failure: Failure, lent: Option<Lent>) -> Refused {
        let group = lent.as_ref().map(|lent| lent.number);
        match lent {
            Some(lent) if is_for_room(failure) => {
                let over = self.groups.add(lent).map(|old| old.number);
                Refused { failure, group: over }
            }
            _ => Refused { failure, group },
        }
    }

    /// Whether there may be room soon for a jail that there was none for: another has ended lately, or those
    /// are ended that wait, for a host may have room for few namespaces or processes, and what waits gives
    /// way to what is asked for.
    pub fn makes_room(&mut self, plan: &Plan) -> bool {
        let mut leaves = self.ended.is_some_and(|ended| ended.elapsed() < LATELY);
        // Not to a mere look.
        if !plan.look_only {
            self.pool.empty();
            // Those that were let go before are on their way out, too. The loop hears of their ends.
            for (_, living) in self.jails.iter().filter(|(number, _)| pool::is_ours(**number)) {
                let _ = sys::kill(living.pidfd.as_fd());
                leaves = true;
            }
        }
        leaves
    }

    /// Ends jails that wait no more. The loop hears of it.
    pub fn let_go(&self, parked: impl IntoIterator<Item = Parked>) {
        for Parked { number, .. } in parked {
            if let Some(living) = self.jails.get(&number) {
                let _ = sys::kill(living.pidfd.as_fd());
            }
        }
    }

    /// A jail from the pool that fits and lives. One that has ended is left to the loop, which is going to
    /// hear of it.
    fn take(&mut self, plan: &Plan) -> Option<Parked> {
        loop {
            let parked = self.pool.take(plan)?;
            let living = self.jails.get(&parked.number);
            if living.is_some_and(|living| !sys::has_ended(living.pidfd.as_fd())) {
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
    ) -> Result<Made, Refused> {
        let trees = match prepare::trees(plan) {
            Ok(trees) => trees,
            Err(failure) => {
                let other = parked.and_then(|parked| self.pool.add(parked));
                self.let_go(other);
                return Err(failure.into());
            }
        };
        let parked = match parked {
            Some(parked) => parked,
            // Should its preparation fail meanwhile, its status says why.
            None => self.park(Rc::new(plan.clone()))?,
        };
        let Parked { number, control, status, .. } = parked;
        let living = self.jails.remove(&number);
        let Living { pidfd, group } = living.ok_or_else(|| failure(Step::Plan)(Errno::ESRCH))?;
        let mut event = EpollEvent::new(EpollFlags::EPOLLIN, plan.id);
        let given = self
            .epoll
            .modify(&pidfd, &mut event)
            .map_err(failure(Step::Watch))
            .and_then(|()| pass(&control, stdio.iter().chain(&trees)));
        if let Err(failure) = given {
            let _ = self.epoll.delete(&pidfd);
            end(&pidfd);
            return Err(Refused { failure, group });
        }
        // Where the two share a processor the jail goes first: the host waits for nothing else.
        let _ = sched_yield();
        Ok(Made { pidfd, status, prepared: true, group })
    }

    /// Clones a jail that does every step by itself; in the child this never returns.
    fn clone_jail(
        &self,
        plan: &Plan,
        stdio: &[OwnedFd; 3],
        lent: Option<&Lent>,
    ) -> Result<(OwnedFd, OwnedFd), Failure> {
        let jail = Prepared::new(plan, &self.policies, self.place(plan))?;
        let (reader, writer) = pipe2(OFlag::O_CLOEXEC).map_err(failure(Step::StatusPipe))?;
        let detached = self.policies.mechanisms.detached_mounts;
        let pair = detached.then(handover::pair).transpose().map_err(failure(Step::Plan))?;
        // A loopback is raised by the jail, whose own the namespace has to be.
        let (cloned, cgroup) = self.clone_away(!plan.loopback, lent)?;
        match cloned {
            Cloned::Child => child::run(
                jail,
                Descriptors {
                    stdio: [0, 1, 2].map(|n: usize| stdio[n].as_raw_fd()),
                    status: writer.as_raw_fd(),
                    trees: pair.as_ref().map(|(_, theirs)| theirs.as_raw_fd()),
                    cgroup,
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
    pub fn park(&mut self, example: Rc<Plan>) -> Result<Parked, Refused> {
        let lent = self.take_group(&example)?;
        self.park_in(example, lent.as_ref()).map_err(|failure| self.refuse(failure, lent))
    }

    fn park_in(&mut self, example: Rc<Plan>, lent: Option<&Lent>) -> Result<Parked, Failure> {
        let place = Prepared::root_alone(&example, &self.policies, self.place(&example))?;
        let (reader, writer) = pipe2(OFlag::O_CLOEXEC).map_err(failure(Step::StatusPipe))?;
        let (ours, theirs) = handover::pair().map_err(failure(Step::Plan))?;
        match self.clone_away(true, lent)? {
            (Cloned::Child, cgroup) => {
                parked::run(place, cgroup, theirs.as_raw_fd(), writer.as_raw_fd())
            }
            (Cloned::Parent(pidfd), _) => {
                drop(place);
                let number = self.pool.number();
                self.watch(&pidfd, number)?;
                let group = lent.map(|lent| lent.number);
                self.jails.insert(number, Living { pidfd, group });
                Ok(Parked { number, example, control: ours, status: reader })
            }
        }
    }

    /// A lent group for a plan that asks for one.
    fn take_group(&mut self, plan: &Plan) -> Result<Option<Lent>, Failure> {
        let Some(limits) = plan.group else { return Ok(None) };
        let lent = self.groups.take(limits, plan.lent);
        lent.map(Some).ok_or_else(|| failure(Step::Cgroup)(Errno::EAGAIN))
    }

    /// Whether there is a group for a plan, where it asks for one.
    pub fn has_group(&self, plan: &Plan) -> bool {
        plan.group.is_none_or(|limits| self.groups.has(limits))
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
        lent: Option<&Lent>,
    ) -> Result<(Cloned, Option<Cgroup>), Failure> {
        let namespaces = failure(Step::JailNamespaces);
        if let Some(views) = &self.views {
            views.enter().map_err(&namespaces)?;
        }
        let ahead = may_be_ahead && self.network.take();
        let made = if ahead { libc::CLONE_NEWNET as u64 } else { 0 };
        let cloned = clone_into(NAMESPACES & !made, lent);
        if !matches!(cloned, Ok((Cloned::Child, _))) {
            if ahead {
                self.network.leave();
            }
            if let Some(views) = &self.views {
                views.leave();
            }
        }
        cloned.map_err(|errno| match errno {
            // Only its cgroup: gone, threaded, or with processes in its children.
            Errno::ENODEV | Errno::EOPNOTSUPP | Errno::EBUSY => failure(Step::Cgroup)(errno),
            _ => namespaces(errno),
        })
    }

    /// Has the loop told when a jail ends. One that cannot be watched is ended here.
    fn watch(&self, pidfd: &OwnedFd, number: u64) -> Result<(), Failure> {
        let event = EpollEvent::new(EpollFlags::EPOLLIN, number);
        self.epoll.add(pidfd, event).map_err(|errno| {
            end(pidfd);
            failure(Step::Watch)(errno)
        })
    }
}

/// Clones a jail into its cgroup, and what the child has still to do for that: it enters the group itself
/// where the kernel cannot do it (before Linux 5.7 it takes no such argument; a filter may forbid what it
/// does not know). Its cgroup namespace it makes itself, once it is there: what that has as its root is
/// where it is then, and nothing can be entered from within that lies outside.
fn clone_into(namespaces: u64, lent: Option<&Lent>) -> nix::Result<(Cloned, Option<Cgroup>)> {
    let Some(Lent { dir, .. }) = lent else { return Ok((sys::clone3(namespaces, None)?, None)) };
    let others = namespaces & !(libc::CLONE_NEWCGROUP as u64);
    let (cloned, enter) = match sys::clone3(others, Some(dir.as_fd())) {
        Err(Errno::ENOSYS | Errno::E2BIG | Errno::EINVAL) => (sys::clone3(others, None)?, true),
        cloned => (cloned?, false),
    };
    Ok((cloned, Some(Cgroup { dir: dir.as_raw_fd(), enter })))
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
pub(crate) fn end(pidfd: &OwnedFd) {
    let _ = sys::kill(pidfd.as_fd());
    while let Err(Errno::EINTR) = sys::reap(pidfd.as_fd()) {}
}
