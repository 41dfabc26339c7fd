//! Each building block of a jail, tried on its own: what `turnjail doctor` asks of this program.
//!
//! A jail that fails says which step failed first; this says for each block whether it is to be had. Every
//! block is tried in a child of its own, by the same functions that make jails, and undone by its end.

use std::ffi::CStr;
use std::io::Write as _;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::process::ExitCode;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::Mode;
use nix::unistd::{chdir, pivot_root, sethostname};
use serde::{Deserialize, Serialize};

use crate::landlock;
use crate::seccomp::{self, FilterOptions, Profile};
use crate::step::Step;
use crate::sys::{self, Cloned};
use crate::wire::Failure;

/// The argument that asks for trials instead of jails.
pub const ARGUMENT: &str = "try-blocks";

/// RLIMIT_NOFILE, whose type differs between C libraries.
const OPEN_FILES: u32 = 7;

/// The exit code of a child whose block needs another one that is not to be had.
const STANDS_ON_ANOTHER: i32 = 250;

macro_rules! blocks {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $step:ident;)*) => {
        /// A building block of a jail.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        pub enum Block { $($(#[$doc])* $name,)* }

        impl Block {
            /// Every block; each stands on some before it.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The block's name for people.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The step of making a jail that fails without it.
            pub fn step(self) -> Step {
                match self { $(Self::$name => Step::$step,)* }
            }
        }
    };
}

blocks! {
    /// clone3 with a new user namespace.
    User = "user namespace", WardenNamespaces;
    /// setgroups denied, one id mapped each way.
    IdMaps = "id maps", UidMap;
    /// A mount namespace.
    Mounts = "mount namespace", JailNamespaces;
    /// A pid namespace.
    Processes = "pid namespace", JailNamespaces;
    /// A network namespace.
    Network = "network namespace", JailNamespaces;
    /// An IPC namespace.
    Ipc = "ipc namespace", JailNamespaces;
    /// A UTS namespace.
    HostName = "uts namespace", HostName;
    /// A cgroup namespace.
    Cgroup = "cgroup namespace", JailNamespaces;
    /// Limits of namespaces written as 0.
    NamespaceLimits = "namespace limits", NamespaceLimit;
    /// oom_score_adj raised.
    OomScore = "out-of-memory score", OomScore;
    /// Mounts made private.
    Private = "private mounts", Propagation;
    /// A tmpfs.
    Tmpfs = "tmpfs", Tmp;
    /// open_tree.
    Trees = "detached mounts", CopyTree;
    /// mount_setattr on a detached tree.
    TreeFlags = "mount flags", TreeFlags;
    /// move_mount.
    Attach = "attached mounts", AttachMount;
    /// pivot_root, and the old root gone.
    PivotRoot = "pivot_root", PivotRoot;
    /// A /proc of its own.
    Proc = "own /proc", Proc;
    /// Resource limits and the nice value.
    Limits = "resource limits", ResourceLimit;
    /// Capabilities dropped from every set.
    Privileges = "dropping capabilities", Capabilities;
    /// A landlock ruleset.
    Landlock = "landlock ruleset", Landlock;
    /// A seccomp filter.
    Seccomp = "seccomp filter", Seccomp;
}

/// What came of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It is to be had.
    Works,
    /// The kernel, or a filter, refused.
    Fails(Failure),
    /// The child was killed by this signal.
    Killed(i32),
    /// It stands on one that failed.
    NotTried,
}

/// How long all of it, and one block, may take, in seconds: then the kernel ends it.
const PATIENCE: (u32, u32) = (20, 5);

/// Tries every block in its order and writes the outcomes to standard output (postcard).
pub fn main() -> ExitCode {
    sys::reset_signals();
    nix::unistd::alarm::set(PATIENCE.0);
    let mut outcomes: Vec<(Block, Outcome)> = Vec::new();
    for &block in Block::ALL {
        let works = |one: Block| outcomes.contains(&(one, Outcome::Works));
        let outcome = if needs(block).iter().all(|&one| works(one)) {
            attempt(block)
        } else {
            Outcome::NotTried
        };
        outcomes.push((block, outcome));
    }
    let written = postcard::to_allocvec(&outcomes)
        .map_err(std::io::Error::other)
        .and_then(|bytes| std::io::stdout().write_all(&bytes));
    if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What a block stands on.
fn needs(block: Block) -> &'static [Block] {
    match block {
        Block::User | Block::Limits | Block::Landlock | Block::Seccomp => &[],
        Block::IdMaps => &[Block::User],
        Block::Mounts
        | Block::Processes
        | Block::Network
        | Block::Ipc
        | Block::HostName
        | Block::Cgroup
        | Block::NamespaceLimits
        | Block::OomScore
        | Block::Privileges => &[Block::User, Block::IdMaps],
        Block::Private => &[Block::User, Block::IdMaps, Block::Mounts],
        Block::Tmpfs | Block::Trees => &[Block::User, Block::IdMaps, Block::Mounts, Block::Private],
        Block::Proc => {
            &[Block::User, Block::IdMaps, Block::Mounts, Block::Private, Block::Processes]
        }
        Block::TreeFlags => {
            &[Block::User, Block::IdMaps, Block::Mounts, Block::Private, Block::Trees]
        }
        Block::Attach => {
            &[Block::User, Block::IdMaps, Block::Mounts, Block::Private, Block::Trees, Block::Tmpfs]
        }
        Block::PivotRoot => {
            &[Block::User, Block::IdMaps, Block::Mounts, Block::Private, Block::Tmpfs]
        }
    }
}

fn namespaces(block: Block) -> u64 {
    let more = match block {
        Block::Limits | Block::Landlock | Block::Seccomp => return 0,
        Block::User
        | Block::IdMaps
        | Block::NamespaceLimits
        | Block::OomScore
        | Block::Privileges => 0,
        Block::Mounts
        | Block::Private
        | Block::Tmpfs
        | Block::Trees
        | Block::TreeFlags
        | Block::Attach
        | Block::PivotRoot => libc::CLONE_NEWNS,
        Block::Processes => libc::CLONE_NEWPID,
        Block::Proc => libc::CLONE_NEWNS | libc::CLONE_NEWPID,
        Block::Network => libc::CLONE_NEWNET,
        Block::Ipc => libc::CLONE_NEWIPC,
        Block::HostName => libc::CLONE_NEWUTS,
        Block::Cgroup => libc::CLONE_NEWCGROUP,
    };
    (libc::CLONE_NEWUSER | more) as u64
}

/// Tries a block in a child.
fn attempt(block: Block) -> Outcome {
    let ids = (nix::unistd::getuid().as_raw(), nix::unistd::getgid().as_raw());
    let fails = |step, errno| Outcome::Fails(Failure { step, index: 0, errno });
    let child = match sys::clone3(namespaces(block), None) {
        Ok(Cloned::Child) => {
            nix::unistd::alarm::set(PATIENCE.1);
            sys::exit_now(act(block, ids))
        }
        Ok(Cloned::Parent(child)) => child,
        // A namespace that is refused at the clone is no matter of what would be done in it.
        Err(errno) if block == Block::User => return fails(Step::WardenNamespaces, errno as i32),
        Err(errno) => return fails(Step::JailNamespaces, errno as i32),
    };
    loop {
        match sys::reap(child.as_fd()) {
            Err(Errno::EINTR) => {}
            Err(errno) => return fails(block.step(), errno as i32),
            Ok((info, _)) if info.si_code != libc::CLD_EXITED => {
                return Outcome::Killed(sys::exit_status(&info));
            }
            Ok((info, _)) => {
                return match sys::exit_status(&info) {
                    0 => Outcome::Works,
                    STANDS_ON_ANOTHER => Outcome::NotTried,
                    errno => fails(block.step(), errno),
                };
            }
        }
    }
}

/// In the child: the exit code is 0 or the errno.
fn act(block: Block, ids: (u32, u32)) -> i32 {
    let outcome = match block {
        Block::User | Block::Limits | Block::Landlock | Block::Seccomp => Ok(()),
        Block::IdMaps => return code(maps(ids)),
        _ => maps(ids),
    };
    let outcome = outcome.and_then(|()| match namespaces(block) & libc::CLONE_NEWNS as u64 {
        0 => Ok(()),
        _ if block == Block::Mounts || block == Block::Private => Ok(()),
        _ => private(),
    });
    if outcome.is_err() {
        return STANDS_ON_ANOTHER;
    }
    code(own(block))
}

fn code(outcome: nix::Result<()>) -> i32 {
    outcome.map_or_else(|errno| errno as i32, |()| 0)
}

/// What the block itself does.
fn own(block: Block) -> nix::Result<()> {
    match block {
        Block::User
        | Block::IdMaps
        | Block::Mounts
        | Block::Processes
        | Block::Network
        | Block::Ipc
        | Block::Cgroup => Ok(()),
        Block::HostName => sethostname("sandbox"),
        Block::NamespaceLimits => put(c"/proc/sys/user/max_user_namespaces", "0"),
        Block::OomScore => put(c"/proc/self/oom_score_adj", "1000"),
        Block::Private => private(),
        Block::Tmpfs => tmpfs(),
        Block::Trees => tree().map(drop),
        Block::TreeFlags => restricted().map(drop),
        Block::Attach => {
            let tree = tree()?;
            tmpfs()?;
            sys::attach_tree(tree.as_fd(), SCRATCH)
        }
        Block::PivotRoot => {
            tmpfs()?;
            chdir(SCRATCH)?;
            pivot_root(c".", c".")?;
            umount2(c".", MntFlags::MNT_DETACH)
        }
        Block::Proc => {
            let tight = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
            let options = Some(c"subset=pid,hidepid=ptraceable");
            mount(Some(c"proc"), SCRATCH, Some(c"proc"), tight | MsFlags::MS_RDONLY, options)
        }
        Block::Limits => sys::lower_limit(OPEN_FILES, 64).and_then(|()| sys::raise_nice(19)),
        Block::Privileges => {
            sys::drop_from_bounding_set(0)?;
            sys::clear_ambient_set()?;
            sys::drop_capabilities()
        }
        Block::Landlock => landlocked(),
        Block::Seccomp => {
            nix::sys::prctl::set_no_new_privs()?;
            let filter = seccomp::program(Profile::General, &FilterOptions::default());
            sys::install_filter(filter.instructions())
        }
    }
}

/// A directory that is always there; what is mounted on it goes with the child.
const SCRATCH: &CStr = c"/proc";

fn maps((uid, gid): (u32, u32)) -> nix::Result<()> {
    put(c"/proc/self/setgroups", "deny")?;
    put(c"/proc/self/uid_map", &format!("{uid} {uid} 1"))?;
    put(c"/proc/self/gid_map", &format!("{gid} {gid} 1"))
}

fn private() -> nix::Result<()> {
    let none = None::<&CStr>;
    mount(none, c"/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
}

fn tmpfs() -> nix::Result<()> {
    let tight = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let options = Some(c"size=64k,nr_inodes=16,mode=700");
    mount(Some(c"tmpfs"), SCRATCH, Some(c"tmpfs"), tight, options)
}

fn tree() -> nix::Result<std::os::fd::OwnedFd> {
    let root = open(c"/", OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
    sys::copy_tree(root.as_fd())
}

fn restricted() -> nix::Result<std::os::fd::OwnedFd> {
    let tree = tree()?;
    sys::restrict_tree(tree.as_fd(), libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV)?;
    Ok(tree)
}

/// A kernel without landlock is no failure here: the warden says which it has.
fn landlocked() -> nix::Result<()> {
    let Some(policy) = landlock::ruleset(Profile::General, false, landlock::abi()) else {
        return Ok(());
    };
    nix::sys::prctl::set_no_new_privs()?;
    let ruleset = sys::landlock_create(&policy.attributes, policy.attribute_bytes)?;
    sys::landlock_enforce(ruleset.as_fd())
}

/// Writes a short text into an existing file of /proc in one call, as those files demand.
fn put(path: &CStr, text: &str) -> nix::Result<()> {
    let file = open(path, OFlag::O_WRONLY | OFlag::O_CLOEXEC, Mode::empty())?;
    sys::write(file.as_raw_fd(), text.as_bytes())
}
