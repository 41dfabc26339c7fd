//! Turns a plan into what the child needs, in the warden, where allocating is allowed.
//!
//! The sources are opened, compared with what the host saw, and copied into detached, already restricted
//! mount trees; the child only attaches them.

use std::ffi::CString;
use std::os::fd::{AsFd as _, OwnedFd};

use libc::c_char;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::fstat;

use crate::devices::Device;
use crate::landlock::{self, Ruleset};
use crate::mechanisms::Mechanisms;
use crate::open::without_links;
use crate::seccomp::stages::Stages;
use crate::seccomp::{self, FilterOptions, Profile};
use crate::step::Step;
use crate::sys;
use crate::wire::{Bind, Failure, Plan, Source, Target};

/// What one jail needs from the warden beside its plan: made once, used by every jail.
#[derive(Debug)]
pub struct Policies {
    /// By which mechanisms jails are made.
    pub mechanisms: Mechanisms,
    /// The kernel's landlock ABI: the highest that it reports and accepts.
    pub landlock_abi: u32,
    /// Whether memory can be kept from becoming executable.
    pub mdwe: bool,
    /// The number of capabilities of this kernel.
    pub capabilities: u32,
    /// The sealed profile's filter for jails that are prepared.
    pub stages: Stages,
    /// The filter of the init that general images get.
    pub init_filter: seccomp::Filter,
    sealed: ProfilePolicies,
    clearing: ProfilePolicies,
    general: ProfilePolicies,
    loopback: ProfilePolicies,
}

/// The filter and the ruleset of one profile.
#[derive(Debug)]
struct ProfilePolicies {
    filter: seccomp::Filter,
    ruleset: Option<Ruleset>,
}

impl Policies {
    /// Asks the kernel what it can do and compiles the policies.
    pub fn new() -> Self {
        let landlock_abi = landlock::abi();
        let plain = FilterOptions::default();
        let clearing = FilterOptions { clears: true, ..plain };
        let loopback = FilterOptions { loopback: true, ..plain };
        Self {
            mechanisms: Mechanisms::new(),
            landlock_abi,
            mdwe: sys::can_deny_executable_memory(),
            capabilities: (0..64).take_while(|&c| sys::bounding_set_has(c).is_ok()).count() as u32,
            stages: seccomp::in_stages(Profile::Sealed, &FilterOptions::default()),
            init_filter: seccomp::init(),
            sealed: ProfilePolicies::new(Profile::Sealed, plain, landlock_abi),
            clearing: ProfilePolicies::new(Profile::Sealed, clearing, landlock_abi),
            general: ProfilePolicies::new(Profile::General, plain, landlock_abi),
            loopback: ProfilePolicies::new(Profile::General, loopback, landlock_abi),
        }
    }

    /// The seccomp filter of a profile with these options.
    pub fn filter(&self, profile: Profile, options: FilterOptions) -> &seccomp::Filter {
        &self.of(profile, options).filter
    }

    fn of(&self, profile: Profile, options: FilterOptions) -> &ProfilePolicies {
        match profile {
            Profile::Sealed if options.clears => &self.clearing,
            Profile::Sealed => &self.sealed,
            Profile::General if options.loopback => &self.loopback,
            Profile::General => &self.general,
        }
    }
}

impl ProfilePolicies {
    fn new(profile: Profile, options: FilterOptions, landlock_abi: u32) -> Self {
        Self {
            filter: seccomp::program(profile, &options),
            ruleset: landlock::ruleset(profile, options.loopback, landlock_abi),
        }
    }
}

impl Default for Policies {
    fn default() -> Self {
        Self::new()
    }
}

/// A mount tree that the child attaches.
#[derive(Debug)]
pub struct Tree {
    /// The detached tree.
    pub tree: OwnedFd,
    /// Where it goes.
    pub target: Target,
}

/// A plan with everything allocated and opened that the child will use.
#[derive(Debug)]
pub struct Prepared<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// What the kernel can do, and the filters.
    pub policies: &'a Policies,
    /// The landlock ruleset, when one is applied.
    pub ruleset: Option<&'a Ruleset>,
    /// The line for /proc/self/uid_map.
    pub uid_map: String,
    /// The line for /proc/self/gid_map.
    pub gid_map: String,
    /// Where the root is attached before it is pivoted to.
    pub root_path: CString,
    /// The root's tree; none where it is bound in the jail, and once it has been entered.
    pub root: Option<OwnedFd>,
    /// What is mounted into it.
    pub trees: Vec<Tree>,
    /// The devices of a general image's /dev.
    pub devices: Vec<OwnedFd>,
    /// The options of the tmpfs at /tmp.
    pub tmp_options: CString,
    /// The program.
    pub program: CString,
    /// The working directory.
    pub working_dir: CString,
    arguments: Strings,
    environment: Strings,
}

impl<'a> Prepared<'a> {
    /// Allocates everything; the trees of the plan's directories are [received](Self::receive) later.
    pub fn new(plan: &'a Plan, policies: &'a Policies, place: &[u8]) -> Result<Self, Failure> {
        Self::with(plan, policies, None, place)
    }

    /// Takes the trees that [`all_trees`] made for this plan.
    pub fn receive(&mut self, fds: impl IntoIterator<Item = OwnedFd>) -> Result<(), Failure> {
        let mut fds = fds.into_iter();
        self.root = fds.next();
        if self.root.is_none() {
            let errno = Errno::EMFILE as i32;
            return Err(Failure { step: Step::AttachRoot, index: 0, errno });
        }
        self.receive_trees(fds)
    }

    /// Takes the trees that [`trees`] made for this plan.
    pub fn receive_trees(&mut self, fds: impl IntoIterator<Item = OwnedFd>) -> Result<(), Failure> {
        self.trees = attachments(self.plan, fds.into_iter());
        // Cut off where this process has no room for them.
        if self.trees.len() != self.plan.binds.len() {
            let errno = Errno::EMFILE as i32;
            return Err(Failure { step: Step::AttachMount, index: 0, errno });
        }
        Ok(())
    }

    /// What is needed to go as far as can be without a turn: the root alone.
    pub fn root_alone(
        plan: &'a Plan,
        policies: &'a Policies,
        place: &[u8],
    ) -> Result<Self, Failure> {
        let root = detach(&plan.root, 0, attributes(true, false))?;
        Self::with(plan, policies, Some(root), place)
    }

    fn with(
        plan: &'a Plan,
        policies: &'a Policies,
        root: Option<OwnedFd>,
        place: &[u8],
    ) -> Result<Self, Failure> {
        Ok(Self {
            plan,
            policies,
            ruleset: policies
                .of(plan.profile, plan.filter_options())
                .ruleset
                .as_ref()
                .filter(|_| plan.landlock),
            uid_map: format!("{0} {0} 1", plan.uid),
            gid_map: format!("{0} {0} 1", plan.gid),
            root_path: c_string(place.to_vec(), Step::AttachRoot)?,
            root,
            trees: Vec::new(),
            devices: match plan.profile {
                Profile::General if policies.mechanisms.detached_mounts => Device::all()?,
                _ => Vec::new(),
            },
            tmp_options: c_string(
                format!("size={},nr_inodes={},mode=1777", plan.tmp_bytes, plan.tmp_inodes).into(),
                Step::Tmp,
            )?,
            program: c_string(plan.program.clone(), Step::Exec)?,
            working_dir: c_string(plan.working_dir.clone(), Step::WorkingDir)?,
            arguments: Strings::new(&plan.arguments)?,
            environment: Strings::new(&plan.environment)?,
        })
    }

    /// Executes the program. Returns only when that fails.
    pub fn execute(&self) -> Errno {
        sys::execute(&self.program, &self.arguments.pointers, &self.environment.pointers)
    }
}

/// C strings, and the null-terminated array of pointers to them that execve(2) wants.
#[derive(Debug)]
struct Strings {
    /// To the heap, where the strings stay whatever becomes of this struct's own place.
    pointers: Vec<*const c_char>,
    _strings: Vec<CString>,
}

impl Strings {
    fn new(strings: &[Vec<u8>]) -> Result<Self, Failure> {
        let strings = strings.iter().map(|s| c_string(s.clone(), Step::Exec));
        let strings = strings.collect::<Result<Vec<_>, _>>()?;
        let pointers = strings.iter().map(|s| s.as_ptr());
        Ok(Self { pointers: pointers.chain([std::ptr::null()]).collect(), _strings: strings })
    }
}

/// The trees of everything that a plan mounts into the root, in its order; to be made in the host's view.
pub fn trees(plan: &Plan) -> Result<Vec<OwnedFd>, Failure> {
    plan.binds.iter().zip(1..).map(|(bind, index)| tree(bind, index)).collect()
}

/// The same with the root's own before them.
pub fn all_trees(plan: &Plan) -> Result<Vec<OwnedFd>, Failure> {
    let mut all = vec![detach(&plan.root, 0, attributes(true, false))?];
    all.extend(trees(plan)?);
    Ok(all)
}

fn tree(bind: &Bind, index: u16) -> Result<OwnedFd, Failure> {
    detach(&bind.source, index, attributes(bind.target.read_only(), bind.noexec))
}

/// Where each tree goes.
fn attachments(plan: &Plan, trees: impl Iterator<Item = OwnedFd>) -> Vec<Tree> {
    let tree = |(bind, tree): (&Bind, OwnedFd)| Tree { tree, target: bind.target };
    plan.binds.iter().zip(trees).map(tree).collect()
}

/// The flags of a mount: no set-id programs and no devices anywhere.
fn attributes(read_only: bool, noexec: bool) -> u64 {
    let mut flags = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
    if read_only {
        flags |= libc::MOUNT_ATTR_RDONLY;
    }
    if noexec {
        flags |= libc::MOUNT_ATTR_NOEXEC;
    }
    flags
}

/// A detached copy of the mount at `source`, once it is proved to be the directory that the host saw.
fn detach(source: &Source, index: u16, flags: u64) -> Result<OwnedFd, Failure> {
    let fail = |step: Step| move |errno: Errno| Failure { step, index, errno: errno as i32 };
    let dir = open_source(source, index)?;
    let tree = sys::copy_tree(dir.as_fd()).map_err(fail(Step::CopyTree))?;
    sys::restrict_tree(tree.as_fd(), flags).map_err(fail(Step::TreeFlags))?;
    Ok(tree)
}

/// The directory of a source, once it is proved to be the one that the host saw.
pub(crate) fn open_source(source: &Source, index: u16) -> Result<OwnedFd, Failure> {
    let fail = |step: Step| move |errno: Errno| Failure { step, index, errno: errno as i32 };
    let path = c_string(source.path.clone(), Step::OpenSource)?;
    let dir = without_links(&path, OFlag::O_PATH | OFlag::O_DIRECTORY);
    let dir = dir.map_err(fail(Step::OpenSource))?;
    let found = fstat(&dir).map_err(fail(Step::OpenSource))?;
    if (found.st_dev, found.st_ino) != (source.dev, source.ino) {
        return Err(fail(Step::SourceIdentity)(Errno::ESTALE));
    }
    Ok(dir)
}

fn c_string(bytes: Vec<u8>, step: Step) -> Result<CString, Failure> {
    CString::new(bytes).map_err(|_| Failure { step, index: 0, errno: libc::EINVAL })
}
