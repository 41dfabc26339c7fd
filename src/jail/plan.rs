//! From what a caller wants to the plan that the warden carries out: plain data, already checked.

use std::ffi::CString;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use turnjail_driver::{ContainerSpec, Limits};
use turnjail_images::Image;
use turnjail_warden::canary::Attempt;
use turnjail_warden::open;
use turnjail_warden::seccomp::Profile;
use turnjail_warden::step::Step;
use turnjail_warden::wire::{Bind, Bounds, Failure, Over, Plan, Source, Target, Way};

use crate::limits::counts_processes_per_namespace;
use crate::{Isolation, StartError, interpreter};

/// PATH where an image sets none, as Docker has it.
const DEFAULT_PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
pub(crate) const MIB: u64 = 1024 * 1024;
/// Size and inodes of /tmp. No limit of a process counts tmpfs pages, so it is small.
pub(crate) const TMP_BYTES: u64 = 64 * MIB;
const TMP_INODES: u64 = 16_384;
/// The largest file that a worker can write: the default of `workspace_max_mb`.
pub(crate) const FILE_BYTES: u64 = 1024 * MIB;
pub(crate) const OPEN_FILES: u64 = 256;
/// Jails give way to the host's own processes.
const NICE: i32 = 10;

/// One jail: what runs in it, what it sees, and how much it may use.
#[derive(Debug, Clone)]
pub struct JailSpec {
    /// The root filesystem.
    pub rootfs: PathBuf,
    /// The program and its arguments; an absolute path inside the root.
    pub command: Vec<String>,
    /// `NAME=value` lines; PATH and HOME are added where they are missing.
    pub environment: Vec<String>,
    /// The working directory inside the root; empty means `/`.
    pub working_dir: String,
    /// Directories of the host that can be seen inside.
    pub mounts: Vec<Mount>,
    /// The isolation profile and what belongs to it.
    pub isolation: Isolation,
    /// How much it may use.
    pub limits: Limits,
    /// How much its writable directories may hold; none is not looked at.
    pub bounds: Option<Bounds>,
    /// Whether a landlock ruleset is applied (where the kernel has landlock).
    pub landlock: bool,
    /// What is tried in place of the program; none for a turn.
    pub attempt: Option<Attempt>,
}

/// A directory of the host that can be seen inside.
#[derive(Debug, Clone)]
pub struct Mount {
    /// The directory; an absolute path without symbolic links.
    pub source: PathBuf,
    /// Where it is seen.
    pub target: Target,
}

impl JailSpec {
    /// The jail for a driver's specification and the image that it names.
    pub fn for_turn(
        spec: &ContainerSpec,
        image: &Image,
        isolation: Isolation,
        landlock: bool,
    ) -> Self {
        let mount = |source: &PathBuf, target| Mount { source: source.clone(), target };
        let mut mounts = vec![
            mount(&spec.workspace_dir, Target::Workspace),
            mount(&spec.run_dir, Target::Broker),
        ];
        mounts.extend(spec.channel_dir.iter().map(|dir| mount(dir, Target::Channel)));
        let config = &image.config;
        Self {
            rootfs: image.rootfs.clone(),
            command: config.entrypoint.iter().chain(&config.cmd).cloned().collect(),
            environment: config.env.clone(),
            working_dir: config.working_dir.clone(),
            mounts,
            isolation,
            limits: spec.limits,
            bounds: None,
            landlock,
            attempt: None,
        }
    }

    /// The plan for the warden. The ids of the calling process are the jail's.
    pub(crate) fn plan(&self) -> Result<Plan, StartError> {
        self.isolation.check()?;
        let program = self.program()?;
        let sealed = self.isolation.profile == Profile::Sealed;
        // A sealed jail has no /proc, and landlock leaves it this one file.
        if !sealed {
            interpreter::check(&open_root(&self.rootfs)?, &self.working_dir, &program)?;
        }
        let bytes = |text: &String| text.clone().into_bytes();
        let bind = |mount: &Mount| {
            let source = source(&mount.source)?;
            // Nothing that a guest can write, and nothing that comes from the broker, is executed.
            let noexec = sealed || mount.target == Target::Broker;
            Ok(Bind { source, target: mount.target, noexec })
        };
        Ok(Plan {
            id: 0,
            uid: nix::unistd::geteuid().as_raw(),
            gid: nix::unistd::getegid().as_raw(),
            root: source(&self.rootfs)?,
            binds: self.mounts.iter().map(bind).collect::<Result<_, StartError>>()?,
            tmp_bytes: TMP_BYTES,
            tmp_inodes: TMP_INODES,
            profile: self.isolation.profile,
            loopback: self.isolation.loopback,
            clears: self.isolation.clears,
            program: program.into_bytes(),
            arguments: self.command.iter().map(bytes).collect(),
            environment: self.environment(),
            working_dir: if self.working_dir.is_empty() {
                b"/".to_vec()
            } else {
                bytes(&self.working_dir)
            },
            hostname: b"sandbox".to_vec(),
            umask: if sealed { 0o077 } else { 0o022 },
            rlimits: rlimits(&self.limits, self.isolation, self.bounds.as_ref()),
            nice: NICE,
            landlock: self.landlock,
            attempt: self.attempt,
            way: Way::Any,
            group: None,
            lent: 0,
            bounds: self.bounds,
            look_only: false,
        })
    }

    /// The path of the program inside the root. A bare name is searched in the image's PATH, as OCI has
    /// it, without leaving the root.
    fn program(&self) -> Result<String, StartError> {
        let name = self.command.first().filter(|name| !name.is_empty()).ok_or_else(|| {
            StartError::policy("the image names no program", "set the image's Entrypoint or Cmd")
        })?;
        if name.contains('/') {
            return Ok(name.clone());
        }
        let path = self.environment.iter().find_map(|line| line.strip_prefix("PATH="));
        let path = path.unwrap_or_else(|| DEFAULT_PATH.trim_start_matches("PATH="));
        let candidates = path.split(':').filter(|dir| dir.starts_with('/'));
        let mut candidates = candidates.map(|dir| format!("{}/{name}", dir.trim_end_matches('/')));
        let root = open_root(&self.rootfs)?;
        candidates.find(|path| is_executable(&root, path)).ok_or_else(|| {
            StartError::policy(
                format!("the image has no program {name:?} in its PATH"),
                "set the image's Entrypoint to an absolute path",
            )
        })
    }

    fn environment(&self) -> Vec<Vec<u8>> {
        let names = |name: &str| self.environment.iter().any(|line| line.starts_with(name));
        let mut lines = self.environment.clone();
        if !names("PATH=") {
            lines.push(DEFAULT_PATH.to_owned());
        }
        lines.retain(|line| !line.starts_with("HOME="));
        lines.push("HOME=/tmp/home".to_owned());
        lines.into_iter().map(String::into_bytes).collect()
    }
}

fn open_root(rootfs: &Path) -> Result<OwnedFd, StartError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(rootfs, flags, Mode::empty()).map_err(|errno| StartError::Step {
        failure: Failure { step: Step::OpenSource, index: 0, errno: errno.raw_os_error() },
        object: Some(rootfs.display().to_string()),
    })
}

/// Whether `path` is a file that can be executed, seen from inside the root.
fn is_executable(root: &OwnedFd, path: &str) -> bool {
    let Ok(path) = CString::new(path) else { return false };
    open::in_root(root.as_fd(), &path, OFlag::O_PATH).is_ok_and(|file| {
        rustix::fs::fstat(file).is_ok_and(|found| {
            FileType::from_raw_mode(found.st_mode) == FileType::RegularFile
                && found.st_mode & 0o111 != 0
        })
    })
}

/// CPU seconds that a jail may use: what its wall time and its CPUs allow, rounded up.
pub(crate) fn cpu_seconds(limits: &Limits) -> u64 {
    let seconds = limits.time_ms as f64 / 1000.0 * limits.cpus;
    (seconds.ceil() as u64).max(1)
}

/// Processes of a jail that are turnjail's: a general image's program has an init beside it.
pub(crate) fn own_processes(isolation: Isolation) -> u32 {
    u32::from(isolation.profile == Profile::General)
}

/// The largest file that can be written: none is larger than what its directory may hold.
pub(crate) fn file_bytes(bounds: Option<&Bounds>) -> u64 {
    match bounds.map(|bounds| bounds.bytes) {
        None => FILE_BYTES,
        Some(0) => u64::MAX,
        Some(bytes) => bytes,
    }
}

/// The resource limits of one process (getrlimit(2)). Core dumps are the warden's matter.
fn rlimits(limits: &Limits, isolation: Isolation, bounds: Option<&Bounds>) -> Vec<(u32, u64)> {
    let memory = u64::from(limits.memory_mb) * MIB;
    let own = u64::from(own_processes(isolation));
    let mut list = vec![
        (resource::CPU, cpu_seconds(limits)),
        (resource::NOFILE, OPEN_FILES),
        (resource::FSIZE, file_bytes(bounds)),
        (resource::STACK, 8 * MIB),
        (resource::MEMLOCK, 0),
        (resource::MSGQUEUE, 0),
        (resource::NICE, 0),
        (resource::RTPRIO, 0),
        (resource::SIGPENDING, 64),
    ];
    if counts_processes_per_namespace() {
        list.push((resource::NPROC, u64::from(limits.pids) + own));
    }
    // Runtimes reserve gigabytes that they never touch; the static worker does not.
    if isolation.address_space_limit {
        list.push((resource::AS, memory));
    }
    if isolation.data_limit {
        list.push((resource::DATA, memory));
    }
    list
}

/// The numbers of resource limits, the same on x86_64 and aarch64 (include/uapi/asm-generic/resource.h).
pub(crate) mod resource {
    /// The name of the limit with this number.
    pub(crate) fn name(number: u32) -> &'static str {
        match number {
            CPU => "RLIMIT_CPU",
            FSIZE => "RLIMIT_FSIZE",
            DATA => "RLIMIT_DATA",
            STACK => "RLIMIT_STACK",
            NPROC => "RLIMIT_NPROC",
            NOFILE => "RLIMIT_NOFILE",
            MEMLOCK => "RLIMIT_MEMLOCK",
            AS => "RLIMIT_AS",
            SIGPENDING => "RLIMIT_SIGPENDING",
            MSGQUEUE => "RLIMIT_MSGQUEUE",
            NICE => "RLIMIT_NICE",
            RTPRIO => "RLIMIT_RTPRIO",
            _ => "a limit",
        }
    }

    pub(super) const CPU: u32 = 0;
    pub(super) const FSIZE: u32 = 1;
    pub(super) const DATA: u32 = 2;
    pub(super) const STACK: u32 = 3;
    pub(crate) const NPROC: u32 = 6;
    pub(super) const NOFILE: u32 = 7;
    pub(super) const MEMLOCK: u32 = 8;
    pub(super) const AS: u32 = 9;
    pub(super) const SIGPENDING: u32 = 11;
    pub(super) const MSGQUEUE: u32 = 12;
    pub(super) const NICE: u32 = 13;
    pub(super) const RTPRIO: u32 = 14;
}

/// The identity of a directory. The warden opens it without following a symbolic link anywhere on the way,
/// and compares.
fn source(path: &Path) -> Result<Source, StartError> {
    let look = || {
        let found = rustix::fs::lstat(path)?;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory => Ok(found),
            FileType::Symlink => Err(Errno::LOOP),
            _ => Err(Errno::NOTDIR),
        }
    };
    match look() {
        Ok(found) => Ok(Source {
            path: path.as_os_str().as_bytes().to_vec(),
            dev: found.st_dev,
            ino: found.st_ino,
        }),
        Err(errno) => Err(StartError::Step {
            failure: Failure { step: Step::OpenSource, index: 0, errno: errno.raw_os_error() },
            object: Some(path.display().to_string()),
        }),
    }
}

/// The object that a step failed on, where the step says which of a plan's it was.
pub(crate) fn object(plan: &Plan, failure: Failure) -> Option<String> {
    let name = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
    let source = |index: usize| match index {
        0 => Some(&plan.root),
        _ => plan.binds.get(index - 1).map(|bind| &bind.source),
    };
    let named = |index: usize| source(index).map(|source| name(&source.path));
    match failure.step {
        Step::OpenSource
        | Step::SourceIdentity
        | Step::CopyTree
        | Step::TreeFlags
        | Step::AttachRoot
        | Step::AttachMount
        | Step::HoldingsWalk => named(usize::from(failure.index)),
        Step::Holdings => named(Over::of_index(failure.index).1),
        Step::ResourceLimit => {
            let (number, _) = *plan.rlimits.get(usize::from(failure.index))?;
            Some(resource::name(number).to_owned())
        }
        Step::Exec => Some(name(&plan.program)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> JailSpec {
        JailSpec {
            rootfs: PathBuf::from("/"),
            command: vec!["/worker".to_owned()],
            environment: vec!["HOME=/root".to_owned(), "A=b".to_owned()],
            working_dir: String::new(),
            mounts: Vec::new(),
            isolation: Isolation::SEALED,
            limits: Limits::default(),
            bounds: None,
            landlock: true,
            attempt: None,
        }
    }

    #[test]
    fn home_is_ours_and_path_has_a_default() {
        let environment = spec().plan().expect("a plan").environment;
        let has = |line: &str| environment.iter().any(|l| l == line.as_bytes());
        assert!(has("HOME=/tmp/home") && has(DEFAULT_PATH) && has("A=b"));
        assert!(!has("HOME=/root"));
    }

    #[test]
    fn a_bare_name_is_searched_in_the_images_path() {
        let named = |name: &str, path: &str| JailSpec {
            command: vec![name.to_owned()],
            environment: vec![format!("PATH=relative:{path}")],
            ..spec()
        };
        let plan = named("sh", "/nowhere:/bin/").plan().expect("every host has a shell");
        assert_eq!(plan.program, b"/bin/sh");
        let missing = named("sh", "/nowhere").plan().expect_err("not there");
        assert!(missing.to_string().contains("\"sh\""), "{missing}");
        let none = JailSpec { command: vec![], ..spec() }.plan().expect_err("refused");
        assert!(none.remedy().is_some_and(|remedy| remedy.contains("Entrypoint")));
    }

    #[test]
    fn a_missing_or_linked_source_names_the_path() {
        let link = std::env::temp_dir().join(format!("turnjail-plan-{}", std::process::id()));
        std::os::unix::fs::symlink("/", &link).expect("a link");
        for path in [Path::new("/does/not/exist"), &link] {
            let error = JailSpec { rootfs: path.to_owned(), ..spec() }.plan().expect_err("refused");
            assert_eq!(error.code(), "mount-source");
            assert!(error.to_string().contains(&path.display().to_string()), "{error}");
        }
        std::fs::remove_file(link).expect("removed");
    }

    #[test]
    fn cpu_time_is_wall_time_by_cpus_rounded_up() {
        let limits = |time_ms, cpus| Limits { time_ms, cpus, ..Limits::default() };
        assert_eq!(cpu_seconds(&limits(120_000, 1.0)), 120);
        assert_eq!(cpu_seconds(&limits(1_500, 0.5)), 1);
        assert_eq!(cpu_seconds(&limits(1_000, 0.01)), 1);
        assert_eq!(cpu_seconds(&limits(10_000, 1.55)), 16);
    }
}
