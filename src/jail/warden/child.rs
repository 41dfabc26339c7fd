//! The straight line from clone to exec.
//!
//! This runs in the child of the single-threaded warden. Its contract: no logging, no panic, and it never
//! returns. It opens nothing by a path of the plan that was not opened and compared before
//! ([`crate::prepare`]), but where the kernel has no detached mounts ([`crate::classic`]). With one thread
//! no lock of the allocator can be held by somebody who was not copied, so it may allocate; it does so for
//! descriptors that it receives, and where older calls stand in for newer ones. A failure goes to the host
//! as a fixed record on the status pipe; the end of that pipe without one means that the program runs.

use std::ffi::{CStr, OsStr};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{chdir, fchdir, mkdir, pivot_root, sethostname, setsid};

use crate::look::look;
use crate::open::{without_links, without_magic_links};
use crate::prepare::Prepared;
use crate::seccomp::{Filter, Profile};
use crate::step::Step;
use crate::wire::{Failure, Report, Target};
use crate::{classic, devices, handover, init, sys};

/// The descriptors that the child starts with.
#[derive(Debug, Clone, Copy)]
pub struct Descriptors {
    /// The worker's standard input, output and error.
    pub stdio: [RawFd; 3],
    /// The writing end of the status pipe.
    pub status: RawFd,
    /// Where the trees of the plan's directories arrive; none where the child binds them itself.
    pub trees: Option<RawFd>,
    /// The directory of the jail's cgroup, when there is one.
    pub cgroup: Option<Cgroup>,
}

/// The cgroup of a jail.
#[derive(Debug, Clone, Copy)]
pub struct Cgroup {
    /// Its directory.
    pub dir: RawFd,
    /// The child was born elsewhere and has to enter it.
    pub enter: bool,
}

/// Where the status pipe is moved at the end, so that everything above can be closed.
pub(crate) const STATUS: RawFd = 3;

/// SECBIT_NOROOT, NO_SETUID_FIXUP, KEEP_CAPS (off) and NO_CAP_AMBIENT_RAISE, all locked
/// (capabilities(7)).
const SECURE_BITS: u32 = 0xEF;

/// Where the limits of namespaces in a process's user namespace and below stand.
const NAMESPACE_LIMITS: &CStr = c"/proc/sys/user";
const KINDS: [&CStr; 8] = [
    c"max_user_namespaces",
    c"max_mnt_namespaces",
    c"max_pid_namespaces",
    c"max_net_namespaces",
    c"max_ipc_namespaces",
    c"max_uts_namespaces",
    c"max_cgroup_namespaces",
    c"max_time_namespaces",
];

/// How many inotify instances and watches a jail may have. The kernel counts them for the host's user as
/// well, and a jail could take all that it has (128 instances by default).
const WATCHERS: [(&CStr, &[u8]); 2] =
    [(c"max_inotify_instances", b"16"), (c"max_inotify_watches", b"8192")];

pub(crate) type Done = Result<(), Failure>;

/// Builds the jail around the calling process and executes the program.
pub fn run(mut jail: Prepared, descriptors: Descriptors) -> ! {
    let mut status = descriptors.status;
    let built = build(&mut jail, descriptors, &mut status);
    let failure = execute(&jail, built);
    let _ = sys::write(status, &Report::Failed(failure).encode());
    sys::exit_now(127)
}

/// Every step in its order, up to exec.
fn build(jail: &mut Prepared, descriptors: Descriptors, status: &mut RawFd) -> Done {
    cgroup(descriptors.cgroup)?;
    standard_streams(descriptors.stdio)?;
    separate(jail, *status)?;
    receive_trees(jail, descriptors.trees)?;
    enter(jail, *status)?;
    mounts(jail)?;
    // The warden's, of which there may be more than a jail can have.
    *status = close_descriptors(*status)?;
    limits(jail)?;
    holdings(jail)?;
    lasting_privileges(jail)?;
    no_capabilities()?;
    landlock(jail)?;
    if jail.plan.profile == Profile::General {
        *status = init::split(jail, *status)?;
    }
    *status = close_descriptors(*status)?;
    nice(jail)?;
    filter(jail.policies.filter(jail.plan.profile, jail.plan.filter_options()))
}

/// The steps that need nothing of the host's directories. The warden opens those meanwhile.
pub(crate) fn separate(jail: &Prepared, status: RawFd) -> Done {
    identity(jail)?;
    own_session(jail)?;
    network(jail)?;
    forbid_namespaces(jail, status)
}

/// The steps that need a plan's image but nothing of its turn.
pub(crate) fn enter(jail: &Prepared, status: RawFd) -> Done {
    enter_root(jail, status)?;
    tmp(jail)
}

/// Waits for the warden, which kills this process when it has no trees for it.
fn receive_trees(jail: &mut Prepared, trees: Option<RawFd>) -> Done {
    let Some(socket) = trees else { return Ok(()) };
    let (_, fds) = handover::receive(socket, &mut [0]).map_err(fail(Step::Plan))?;
    jail.receive(fds)
}

/// The program, or the canary's attempt in its place, after what came before. Comes back with a failure.
pub(crate) fn execute(jail: &Prepared, before: Done) -> Failure {
    match (before, jail.plan.attempt) {
        (Err(failure), _) => failure,
        (Ok(()), Some(attempt)) => attempt.run(jail.plan),
        (Ok(()), None) => fail(Step::Exec)(jail.execute()),
    }
}

pub(crate) fn fail(step: Step) -> impl Fn(Errno) -> Failure {
    fail_at(step, 0)
}

pub(crate) fn fail_at(step: Step, index: u16) -> impl Fn(Errno) -> Failure {
    move |errno| Failure { step, index, errno: errno as i32 }
}

/// First of all, so that nothing of the jail is outside of its limits. A cgroup namespace made here has
/// the jail's own cgroup as its root.
pub(crate) fn cgroup(cgroup: Option<Cgroup>) -> Done {
    let Some(cgroup) = cgroup else { return Ok(()) };
    let enter = || {
        if cgroup.enter {
            let flags = OFlag::O_WRONLY | OFlag::O_CLOEXEC;
            let procs = sys::open_at(cgroup.dir, c"cgroup.procs", flags.bits())?;
            sys::write(procs, b"0")?;
        }
        view_of_group()
    };
    enter().map_err(fail(Step::Cgroup))
}

/// The kernel counts the namespaces of jails that have ended for a while.
fn view_of_group() -> nix::Result<()> {
    for _ in 0..200 {
        match unshare(CloneFlags::CLONE_NEWCGROUP) {
            Err(Errno::ENOSPC) => std::thread::sleep(Duration::from_millis(5)),
            other => return other,
        }
    }
    Err(Errno::ENOSPC)
}

pub(crate) fn standard_streams(stdio: [RawFd; 3]) -> Done {
    for (from, to) in stdio.into_iter().zip(0..) {
        sys::duplicate_to(from, to, 0).map_err(fail_at(Step::Stdio, to as u16))?;
    }
    Ok(())
}

/// One id each way. setgroups is already denied: the flag is inherited from the warden's namespace.
fn identity(jail: &Prepared) -> Done {
    put(c"/proc/self/uid_map", jail.uid_map.as_bytes()).map_err(fail(Step::UidMap))?;
    put(c"/proc/self/gid_map", jail.gid_map.as_bytes()).map_err(fail(Step::GidMap))
}

/// Without a session of its own, `kill(0)` and PRIO_PGRP would reach the host's process group through
/// the pid namespace.
fn own_session(jail: &Prepared) -> Done {
    setsid().map_err(fail(Step::Session))?;
    umask(Mode::from_bits_truncate(0o077));
    sethostname(OsStr::from_bytes(&jail.plan.hostname)).map_err(fail(Step::HostName))
}

/// The loopback of the new network namespace is down, and stays so unless it is asked for.
fn network(jail: &Prepared) -> Done {
    if jail.plan.loopback && jail.plan.profile == Profile::General {
        sys::raise_loopback().map_err(fail(Step::Loopback))?;
    }
    Ok(())
}

/// Nested namespaces end in ENOSPC even if a filter were missing. Where /proc/sys is read-only (inside a
/// container) the filter alone forbids them, and the host is told.
fn forbid_namespaces(jail: &Prepared, status: RawFd) -> Done {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    // These files are made for each user namespace as they are looked up, so the way there is taken once.
    let limits = open(NAMESPACE_LIMITS, flags, Mode::empty());
    let set = |name: &CStr, value: &[u8]| {
        let limits = limits.as_ref().map_err(|&errno| errno)?;
        let file = openat(limits, name, OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty())?;
        sys::write(file.as_raw_fd(), value)
    };
    // The sealed list has no inotify.
    if jail.plan.profile == Profile::General {
        for (name, value) in WATCHERS {
            // Where it is not to be had, neither are the limits of namespaces, which is told.
            let _ = set(name, value);
        }
    }
    for (name, index) in KINDS.into_iter().zip(0..) {
        let Err(errno) = set(name, b"0") else { continue };
        let missing = Report::Missing(fail_at(Step::NamespaceLimit, index)(errno));
        sys::write(status, &missing.encode()).map_err(fail(Step::StatusPipe))?;
    }
    put(c"/proc/self/oom_score_adj", b"1000").map_err(fail(Step::OomScore))
}

/// After this nothing of the host is left but the mounts that the plan names.
fn enter_root(jail: &Prepared, status: RawFd) -> Done {
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(NONE, c"/", NONE, private, NONE).map_err(fail(Step::Propagation))?;
    let bound;
    let root = if let Some(root) = &jail.root {
        let attached = sys::attach_tree(root.as_fd(), &jail.root_path);
        attached.and_then(|()| fchdir(root)).map_err(fail(Step::AttachRoot))?;
        root
    } else {
        bound = classic::root(jail)?;
        &bound
    };
    if jail.plan.profile == Profile::General {
        proc(root, status)?;
    }
    pivot_root(c".", c".").map_err(fail(Step::PivotRoot))?;
    // The old root now lies over the new one at ".": this takes it away.
    umount2(c".", MntFlags::MNT_DETACH).map_err(fail(Step::DetachOldRoot))?;
    chdir(c"/").map_err(fail(Step::DetachOldRoot))
}

/// A /proc of the jail's own pid namespace, with nothing but its processes. The kernel allows it only
/// while a fully visible /proc of the host is still there, so before the pivot, at a target that is
/// proved to be no link. Inside a container, whose /proc is masked, there is none; then the host is told.
fn proc(root: &OwnedFd, status: RawFd) -> Done {
    let make = || {
        let target = without_links(c"proc", OFlag::O_PATH | OFlag::O_DIRECTORY)?;
        fchdir(&target)?;
        let tight = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        let tight = tight | MsFlags::MS_RDONLY;
        let options = Some(c"subset=pid,hidepid=ptraceable");
        mount(Some(c"proc"), c".", Some(c"proc"), tight, options)
    };
    match make() {
        Ok(()) => {}
        Err(Errno::EPERM) => {
            let missing = Report::Missing(fail(Step::Proc)(Errno::EPERM));
            sys::write(status, &missing.encode()).map_err(fail(Step::StatusPipe))?;
        }
        Err(errno) => return Err(fail(Step::Proc)(errno)),
    }
    fchdir(root).map_err(fail(Step::Proc))
}

/// No host path can be reached any more, so a hostile image's links could only lead back into it.
pub(crate) fn mounts(jail: &Prepared) -> Done {
    for (tree, index) in jail.trees.iter().zip(1..) {
        let attached = sys::attach_tree(tree.tree.as_fd(), tree.target.path());
        attached.map_err(fail_at(Step::AttachMount, index))?;
    }
    if !jail.devices.is_empty() {
        plain_directory(c"/dev").map_err(fail(Step::Devices))?;
        let attach =
            |index: usize, place: &CStr| sys::attach_tree(jail.devices[index].as_fd(), place);
        devices::populate(attach).map_err(fail(Step::Devices))?;
    }
    working_dir(jail).map_err(fail(Step::WorkingDir))
}

fn tmp(jail: &Prepared) -> Done {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    plain_directory(c"/tmp").map_err(fail(Step::Tmp))?;
    mount(Some(c"tmpfs"), c"/tmp", Some(c"tmpfs"), flags, Some(jail.tmp_options.as_c_str()))
        .map_err(fail(Step::Tmp))?;
    mkdir(c"/tmp/home", Mode::S_IRWXU).map_err(fail(Step::Tmp))
}

/// mount(2) follows links; a link could only lead elsewhere in the image, but is still not what it seems.
fn plain_directory(path: &CStr) -> nix::Result<()> {
    without_links(path, OFlag::O_PATH | OFlag::O_DIRECTORY).map(drop)
}

/// Links of the image are followed within its root, links of /proc to descriptors are not.
fn working_dir(jail: &Prepared) -> nix::Result<()> {
    // Where it has been since it entered its root.
    if jail.working_dir.as_c_str() == c"/" {
        return Ok(());
    }
    fchdir(without_magic_links(&jail.working_dir, OFlag::O_PATH | OFlag::O_DIRECTORY)?)
}

/// Late, for until then it is the host that waits. In a jail that is prepared ahead, where nobody does, with
/// the limits: later it would let others go first.
pub(crate) fn nice(jail: &Prepared) -> Done {
    sys::raise_nice(jail.plan.nice).map_err(fail(Step::Nice))
}

pub(crate) fn limits(jail: &Prepared) -> Done {
    for (&(resource, value), index) in jail.plan.rlimits.iter().zip(0..) {
        sys::lower_limit(resource, value).map_err(fail_at(Step::ResourceLimit, index))?;
    }
    umask(Mode::from_bits_truncate(jail.plan.umask));
    Ok(())
}

/// What a guest left in the writable directories is counted before anything runs on it, while no
/// permission bits of a guest's can hide a part. A jail that is made for nothing else ends here.
pub(crate) fn holdings(jail: &Prepared) -> Done {
    if let Some(bounds) = &jail.plan.bounds {
        let places = jail.plan.binds.iter().zip(0..);
        for (place, bind) in places.filter(|(place, _)| !place.target.read_only()) {
            let over = look(place.target.path(), bounds);
            // The index of the path, as for other failures of a mount.
            if let Some(over) = over.map_err(fail_at(Step::HoldingsWalk, bind + 1))? {
                return Err(fail_at(Step::Holdings, over.index(bind + 1))(Errno::EDQUOT));
            }
        }
    }
    if jail.plan.look_only {
        sys::exit_now(0);
    }
    Ok(())
}

/// What no exec and no mistake later gives back. The capabilities themselves, which this takes, go last.
pub(crate) fn lasting_privileges(jail: &Prepared) -> Done {
    for capability in 0..jail.policies.capabilities {
        let index = capability as u16;
        sys::drop_from_bounding_set(capability).map_err(fail_at(Step::BoundingSet, index))?;
    }
    sys::set_secure_bits(SECURE_BITS).map_err(fail(Step::SecureBits))?;
    sys::clear_ambient_set().map_err(fail(Step::AmbientSet))?;
    nix::sys::prctl::set_no_new_privs().map_err(fail(Step::NoNewPrivileges))?;
    if jail.policies.mdwe && jail.plan.profile == Profile::Sealed {
        sys::deny_executable_memory().map_err(fail(Step::MemoryDenyWriteExecute))?;
    }
    Ok(())
}

/// All sets: nothing of the set-up is left to do that needs one.
pub(crate) fn no_capabilities() -> Done {
    sys::drop_capabilities().map_err(fail(Step::Capabilities))
}

/// After all mounts: a landlocked process may not mount.
pub(crate) fn landlock(jail: &Prepared) -> Done {
    let Some(ruleset) = ruleset(jail)? else { return Ok(()) };
    restrict(jail, &ruleset, |target| look_at(target.path()))
}

/// The ruleset without the rules of the plan's directories; none where landlock is not applied.
pub(crate) fn ruleset(jail: &Prepared) -> Result<Option<OwnedFd>, Failure> {
    let Some(policy) = jail.ruleset else { return Ok(None) };
    let program = without_magic_links(&jail.program, OFlag::O_PATH).map_err(fail(Step::Exec))?;
    let make = || {
        let ruleset = sys::landlock_create(&policy.attributes, policy.attribute_bytes)?;
        sys::landlock_grant(ruleset.as_fd(), program.as_fd(), policy.program_rights)?;
        for rule in policy.rules.iter().filter(|rule| Target::at(rule.path).is_none()) {
            sys::landlock_grant(ruleset.as_fd(), look_at(rule.path)?.as_fd(), rule.rights)?;
        }
        Ok(ruleset)
    };
    make().map(Some).map_err(fail(Step::Landlock))
}

/// Adds the rules of the directories that this jail has, each found by `find`, and enforces the ruleset.
pub(crate) fn restrict<D: AsFd>(
    jail: &Prepared,
    ruleset: &OwnedFd,
    find: impl Fn(Target) -> nix::Result<D>,
) -> Done {
    let rules = jail.ruleset.iter().flat_map(|policy| &policy.rules);
    let there = |target: Target| jail.plan.binds.iter().any(|bind| bind.target == target);
    let enforce = || {
        for rule in rules {
            if let Some(target) = Target::at(rule.path).filter(|&target| there(target)) {
                sys::landlock_grant(ruleset.as_fd(), find(target)?.as_fd(), rule.rights)?;
            }
        }
        sys::landlock_enforce(ruleset.as_fd())
    };
    enforce().map_err(fail(Step::Landlock))
}

/// A place of ours: what is mounted there is meant, not what a link of the image leads to.
fn look_at(path: &CStr) -> nix::Result<OwnedFd> {
    without_links(path, OFlag::O_PATH)
}

/// Leaves the standard streams and the status pipe, which closes itself at exec.
pub(crate) fn close_descriptors(status: RawFd) -> Result<RawFd, Failure> {
    if status != STATUS {
        sys::duplicate_to(status, STATUS, libc::O_CLOEXEC).map_err(fail(Step::Descriptors))?;
    }
    sys::close_from(STATUS + 1).map_err(fail(Step::Descriptors))?;
    Ok(STATUS)
}

/// The last act before exec, so that no call of the set-up needs to be allowed.
pub(crate) fn filter(filter: &Filter) -> Done {
    sys::install_filter(filter.instructions()).map_err(fail(Step::Seccomp))
}

const NONE: Option<&CStr> = None;

/// Writes a short text into an existing file of /proc in one call, as those files demand.
fn put(path: &CStr, text: &[u8]) -> nix::Result<()> {
    let file = open(path, OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty())?;
    sys::write(file.as_raw_fd(), text)
}
