//! From the freshly executed program to the serving warden.
//!
//! The first process is only a keeper: it makes the warden as PID 1 of a user, pid and mount namespace
//! of its own, waits for it, and ends with it, so that the host has one child to wait for and nothing
//! becomes a zombie of somebody else.

use std::io::Write as _;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::process::ExitCode;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::mount::{MsFlags, mount};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{MsgFlags, SockType, getsockopt, send, sockopt};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{getgid, getuid, setsid};

use crate::network::{self, Network};
use crate::serve;
use crate::step::Step;
use crate::sys::{self, Cloned};
use crate::trial;
use crate::wire::{Failure, Response};

/// The namespaces of the warden itself; each jail has a full set of its own below these.
const NAMESPACES: u64 = (libc::CLONE_NEWUSER | libc::CLONE_NEWPID | libc::CLONE_NEWNS) as u64;

/// Where the warden keeps its socket; everything above is closed, whatever the host leaked.
const CONTROL: RawFd = 3;

/// The warden's `main`. Standard input is the warden's end of a packet socket.
pub fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|argument| argument == trial::ARGUMENT) {
        return trial::main();
    }
    let Some(control) = control_socket() else {
        let _ = writeln!(std::io::stderr(), "turnjail-warden is started by turnjail, not by hand");
        return ExitCode::from(2);
    };
    if let Err(failure) = become_private() {
        return refuse(control.as_fd(), failure);
    }
    // Asked before the clone: in a user namespace without maps every id reads as the overflow id, and the
    // limits of namespaces are its own.
    let ids = (getuid().as_raw(), getgid().as_raw());
    let network = Network::new(network::are_few("net"));
    let few_views = network::are_few("cgroup");
    match sys::clone3(NAMESPACES, None) {
        Err(errno) => refuse(control.as_fd(), failure(Step::WardenNamespaces)(errno)),
        Ok(Cloned::Parent(warden)) => keep(&control, &warden),
        Ok(Cloned::Child) => match enter_namespaces(ids) {
            Err(failure) => refuse(control.as_fd(), failure),
            Ok(()) => serve::run(&control, network, few_views),
        },
    }
}

/// Takes the socket from descriptor 0; none when it is no packet socket.
fn control_socket() -> Option<OwnedFd> {
    let kind = getsockopt(&std::io::stdin(), sockopt::SockType).ok()?;
    (kind == SockType::SeqPacket).then(|| sys::take_inherited(0, CONTROL).ok()).flatten()
}

/// Nothing of the host's process state stays: signals, session, descriptors, umask, core dumps.
fn become_private() -> Result<(), Failure> {
    let setup = failure(Step::WardenSetup);
    // Executed through a descriptor, the program would go by its number.
    nix::sys::prctl::set_name(c"turnjail-warden").map_err(&setup)?;
    sys::reset_signals();
    umask(Mode::from_bits_truncate(0o077));
    if sys::has_close_range() {
        sys::close_from(CONTROL + 1).map_err(&setup)?;
        room_for_descriptors().map_err(&setup)?;
    } else {
        sys::bound_descriptors(CONTROL + 1).map_err(&setup)?;
    }
    standard_streams_to_null().map_err(&setup)?;
    no_core_dumps().map_err(setup)
}

/// As many as the host may have at all: one stays open for each jail, and the kernel allows no more
/// descriptors to be under way in sockets, of all processes of this user together. A jail has its own limit.
fn room_for_descriptors() -> nix::Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
}

/// 1, not 0: a core handler behind a pipe runs as root on the host whatever the limit is, but for the
/// special value 1 (core(5)).
fn no_core_dumps() -> nix::Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_CORE)?;
    let limit = hard.min(1);
    setrlimit(Resource::RLIMIT_CORE, limit, limit)
}

fn standard_streams_to_null() -> nix::Result<()> {
    let null = open(c"/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())?;
    (0..3).try_for_each(|to| sys::duplicate_to(null.as_raw_fd(), to, 0))
}

/// A session of the warden's own (the keeper leads a process group and cannot start one), the one id
/// mapped, and the host's later mounts coming in but none going out.
fn enter_namespaces((uid, gid): (u32, u32)) -> Result<(), Failure> {
    setsid().map_err(failure(Step::WardenSetup))?;
    let put = |path: &str, text: &str| {
        let file = open(path, OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty())?;
        sys::write(file.as_raw_fd(), text.as_bytes())
    };
    put("/proc/self/setgroups", "deny").map_err(failure(Step::SetGroups))?;
    put("/proc/self/uid_map", &format!("{uid} {uid} 1")).map_err(failure(Step::UidMap))?;
    put("/proc/self/gid_map", &format!("{gid} {gid} 1")).map_err(failure(Step::GidMap))?;
    let none = None::<&std::ffi::CStr>;
    let slave = MsFlags::MS_REC | MsFlags::MS_SLAVE;
    mount(none, c"/", none, slave, none).map_err(failure(Step::Propagation))
}

/// Waits for the warden and ends with it. Should the host end while the warden is stopped, and so cannot
/// see it, the warden is killed here.
fn keep(control: &OwnedFd, warden: &OwnedFd) -> ExitCode {
    // No events asked for: a hang-up of the host's end is told anyway.
    let mut waiting = [
        PollFd::new(control.as_fd(), PollFlags::empty()),
        PollFd::new(warden.as_fd(), PollFlags::POLLIN),
    ];
    while let Err(Errno::EINTR) = poll(&mut waiting, PollTimeout::NONE) {}
    let ended = waiting[1].any().unwrap_or(false);
    if !ended {
        let _ = sys::kill(warden.as_fd());
    }
    loop {
        match sys::reap(warden.as_fd()) {
            Err(Errno::EINTR) => {}
            Ok((info, _)) if info.si_code == libc::CLD_EXITED => {
                return ExitCode::from(sys::exit_status(&info) as u8);
            }
            _ => return ExitCode::FAILURE,
        }
    }
}

fn failure(step: Step) -> impl Fn(Errno) -> Failure {
    move |errno| Failure { step, index: 0, errno: errno as i32 }
}

/// Tells the host why there is no warden.
fn refuse(control: BorrowedFd, failure: Failure) -> ExitCode {
    if let Ok(message) = postcard::to_allocvec(&Response::Unable(failure)) {
        let _ = send(control.as_raw_fd(), &message, MsgFlags::MSG_NOSIGNAL);
    }
    ExitCode::FAILURE
}
