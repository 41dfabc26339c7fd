//! A jail that is prepared before its turn is known.
//!
//! Everything that needs no more than the image and its limits has been done: namespaces, root, limits of
//! namespaces and resources, /tmp, the bounding set, no_new_privs, and a filter that lets through the rest
//! of the set-up. What is left is to receive the standard streams of one turn and its directories as
//! detached mount trees, to shut what is still open, and to execute the program, whose arguments are
//! known. It holds nothing but its control socket, its status pipe and a landlock ruleset that lacks the
//! directories; it serves one turn and no other, and ends when the warden lets go of the socket.

use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::fcntl::OFlag;

use crate::child::{self, Cgroup, Done, STATUS, fail};
use crate::look::look;
use crate::open::without_links;
use crate::prepare::Prepared;
use crate::step::Step;
use crate::wire::{Bounds, Failure, Report};
use crate::{handover, sys};

/// Where the control socket is kept.
const CONTROL: RawFd = STATUS + 1;
/// Where the ruleset is kept; all above is closed.
const RULESET: RawFd = CONTROL + 1;

/// What a jail holds while it waits.
struct Waiting {
    ruleset: Option<OwnedFd>,
    /// Device and inode of its /tmp.
    tmp: Identity,
}

type Identity = (libc::dev_t, libc::ino_t);

/// Prepares a jail in the calling process, waits for its turn, and executes the program.
pub fn run(mut place: Prepared, group: Option<Cgroup>, control: RawFd, mut status: RawFd) -> ! {
    let done =
        prepare(&mut place, group, control, &mut status).and_then(|waiting| serve(place, &waiting));
    let failure = done.unwrap_or_else(|failure| failure);
    let _ = sys::write(status, &Report::Failed(failure).encode());
    sys::exit_now(127)
}

fn prepare(
    place: &mut Prepared,
    group: Option<Cgroup>,
    control: RawFd,
    status: &mut RawFd,
) -> Result<Waiting, Failure> {
    child::cgroup(group)?;
    child::separate(place, *status)?;
    child::enter(place, *status)?;
    // The mount holds it from here on.
    place.root = None;
    child::lasting_privileges(place)?;
    let tmp = sys::identity(c"/tmp").map_err(fail(Step::Tmp))?;
    rehearse(place);
    let ruleset = child::ruleset(place)?;
    let ruleset = keep(control, *status, ruleset).map_err(fail(Step::Descriptors))?;
    *status = STATUS;
    child::limits(place)?;
    child::nice(place)?;
    child::filter(&place.policies.stages.first)?;
    Ok(Waiting { ruleset, tmp })
}

/// Does once, to no effect, what takes pages of memory: they are there then, when they are needed.
fn rehearse(place: &Prepared) {
    if let Some(bounds) = place.plan.bounds {
        // Without a look at the free space, which would be all.
        let _ = look(c"/tmp", &Bounds { reserve: 0, ..bounds });
    }
}

/// Leaves the standard streams, which lead nowhere, the status pipe, the control socket and the ruleset.
fn keep(control: RawFd, status: RawFd, ruleset: Option<OwnedFd>) -> nix::Result<Option<OwnedFd>> {
    // Out of each other's way first: any may have another's number.
    let control = sys::duplicate_above(control, RULESET + 1)?;
    let status = sys::duplicate_above(status, RULESET + 1)?;
    let above = |fd: OwnedFd| sys::duplicate_above(fd.as_raw_fd(), RULESET + 1);
    let ruleset = ruleset.map(above).transpose()?;
    sys::duplicate_to(status, STATUS, libc::O_CLOEXEC)?;
    sys::duplicate_to(control, CONTROL, libc::O_CLOEXEC)?;
    let ruleset = ruleset.map(|ruleset| sys::take_inherited(ruleset, RULESET)).transpose()?;
    sys::close_from(if ruleset.is_some() { RULESET + 1 } else { RULESET })?;
    Ok(ruleset)
}

/// Carries out one turn. Comes back with the failure that stopped it.
fn serve(mut jail: Prepared, waiting: &Waiting) -> Result<Failure, Failure> {
    let mut fds = receive().map_err(fail(Step::Plan))?.into_iter();
    let (Some(stdin), Some(stdout), Some(stderr)) = (fds.next(), fds.next(), fds.next()) else {
        return Err(fail(Step::Stdio)(Errno::EMFILE));
    };
    jail.receive_trees(fds)?;
    let before_exec = || -> Done {
        child::standard_streams([stdin.as_raw_fd(), stdout.as_raw_fd(), stderr.as_raw_fd()])?;
        tmp_is_there(waiting.tmp).map_err(fail(Step::Tmp))?;
        child::mounts(&jail)?;
        child::holdings(&jail)?;
        child::no_capabilities()?;
        landlock(&jail, waiting.ruleset.as_ref())?;
        child::close_descriptors(STATUS)?;
        child::filter(&jail.policies.stages.second)
    };
    Ok(child::execute(&jail, before_exec()))
}

/// What is handed over. Ends the process when the warden lets go of it.
fn receive() -> nix::Result<Vec<OwnedFd>> {
    match handover::receive(CONTROL, &mut [0])? {
        (0, _) => sys::exit_now(0),
        (_, fds) => Ok(fds),
    }
}

/// Whether the /tmp that was mounted a while ago is still there: an image is not to change, but where one
/// does, what is mounted on a directory that goes goes with it.
fn tmp_is_there(before: Identity) -> nix::Result<()> {
    if sys::identity(c"/tmp")? == before {
        return Ok(());
    }
    // What it is instead says more: a link, or no directory.
    without_links(c"/tmp", OFlag::O_PATH | OFlag::O_DIRECTORY)?;
    Err(Errno::ESTALE)
}

/// A tree is the directory that its rule is for.
fn landlock(jail: &Prepared, ruleset: Option<&OwnedFd>) -> Done {
    let Some(ruleset) = ruleset else { return Ok(()) };
    let tree = |target| {
        let tree = jail.trees.iter().find(|tree| tree.target == target);
        tree.map(|tree| tree.tree.as_fd()).ok_or(Errno::EBADF)
    };
    child::restrict(jail, ruleset, tree)
}
