//! A jail that is prepared before its turn is known.
//!
//! Everything that needs no more than the image and its limits has been done: namespaces, root, limits of
//! namespaces and resources, /tmp, the bounding set, no_new_privs, and a filter that lets through the rest
//! of the set-up. What is left is to receive one plan, with its standard streams and its mounts as detached
//! trees, and to carry it out. It holds nothing but its control socket and its status pipe, serves one plan
//! and no other, and ends when the warden lets go of the socket.

use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};

use nix::errno::Errno;

use crate::child::{self, Done, STATUS, fail};
use crate::prepare::Prepared;
use crate::step::Step;
use crate::wire::{Failure, MESSAGE_BYTES, Plan, Report, Request};
use crate::{handover, sys};

/// Where the control socket is kept; all above is closed.
const CONTROL: RawFd = STATUS + 1;

/// Prepares a jail in the calling process, waits for its plan, and executes the plan's program.
pub fn run(place: &Prepared, control: RawFd, mut status: RawFd) -> ! {
    let done = prepare(place, control, &mut status).and_then(|()| serve(place));
    let failure = done.unwrap_or_else(|failure| failure);
    let _ = sys::write(status, &Report::Failed(failure).encode());
    sys::exit_now(127)
}

fn prepare(place: &Prepared, control: RawFd, status: &mut RawFd) -> Done {
    child::separate(place, *status)?;
    child::enter(place, *status)?;
    child::lasting_privileges(place)?;
    rehearse(place).map_err(fail(Step::Plan))?;
    keep(control, *status).map_err(fail(Step::Descriptors))?;
    *status = STATUS;
    child::limits(place)?;
    child::filter(&place.policies.stages.first)
}

/// Does once, to no effect, what is going to be done with a plan: the memory that it takes is there then,
/// which after a clone costs more than the act.
fn rehearse(place: &Prepared) -> nix::Result<()> {
    let request = Request::Start(Box::new(place.plan.clone()));
    let bytes = postcard::to_allocvec(&request).map_err(|_| Errno::EBADMSG)?;
    if let Request::Start(plan) = postcard::from_bytes(&bytes).map_err(|_| Errno::EBADMSG)? {
        // Whatever fails here fails with the plan, and is told then.
        let _ =
            Prepared::without_root(&plan, place.policies).and_then(|jail| child::ruleset(&jail));
    }
    Ok(())
}

/// Leaves the standard streams, which lead nowhere, the status pipe and the control socket.
fn keep(control: RawFd, status: RawFd) -> nix::Result<()> {
    // Out of each other's way first: either may have the other's number.
    let control = sys::duplicate_above(control, CONTROL + 1)?;
    let status = sys::duplicate_above(status, CONTROL + 1)?;
    sys::duplicate_to(status, STATUS, libc::O_CLOEXEC)?;
    sys::duplicate_to(control, CONTROL, libc::O_CLOEXEC)?;
    sys::close_from(CONTROL + 1)
}

/// Carries out one plan. Comes back with the failure that stopped it.
fn serve(place: &Prepared) -> Result<Failure, Failure> {
    let (plan, fds) = receive().map_err(fail(Step::Plan))?;
    let mut fds = fds.into_iter();
    let (Some(stdin), Some(stdout), Some(stderr)) = (fds.next(), fds.next(), fds.next()) else {
        return Err(fail(Step::Stdio)(Errno::EMFILE));
    };
    let mut jail = Prepared::without_root(&plan, place.policies)?;
    jail.receive_trees(fds)?;
    let before_exec = || -> Done {
        child::standard_streams([stdin.as_raw_fd(), stdout.as_raw_fd(), stderr.as_raw_fd()])?;
        child::tmp_is_there()?;
        child::mounts(&jail)?;
        child::holdings(&jail)?;
        child::no_capabilities()?;
        child::landlock(&jail)?;
        child::close_descriptors(STATUS)?;
        child::nice(&jail)?;
        child::filter(&jail.policies.stages.second)
    };
    Ok(child::execute(&jail, before_exec()))
}

/// The plan with its descriptors. Ends the process when the warden lets go of it.
fn receive() -> nix::Result<(Box<Plan>, Vec<OwnedFd>)> {
    // Not zeros, so that the memory is there before it is needed: until then there is time.
    let mut buffer = vec![1; MESSAGE_BYTES];
    let (length, fds) = handover::receive(CONTROL, &mut buffer)?;
    if length == 0 {
        sys::exit_now(0);
    }
    let request = postcard::from_bytes(&buffer[..length]);
    // To give so much memory back to the kernel takes longer than to read the plan.
    std::mem::forget(buffer);
    match request {
        Ok(Request::Start(plan)) => Ok((plan, fds)),
        _ => Err(Errno::EBADMSG),
    }
}
