//! What a machine may or may not have. Each is probed once, by an attempt.

use std::process::{Command, Stdio};
use std::sync::OnceLock;

use turnjail_warden::wire::Facts;

use crate::general::General;
use crate::{account, engine, jails};

/// Something that a test needs of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fact {
    /// Jails can be made.
    Jail,
    /// The kernel has landlock.
    Landlock,
    /// The tests were started as root, which they have dropped since.
    Root,
    /// The programs unshare and setpriv (util-linux), and leave to make namespaces by them.
    Unshare,
    /// A cgroup (v2) for jails: of the service's own, or made by the systemd user manager.
    Cgroup,
    /// The number of a jail's processes can be limited: by its cgroup, or since Linux 5.14 by the kernel.
    Processes,
    /// Jails can be prepared ahead: the kernel has detached mounts.
    Pool,
    /// The program strace, and leave to trace one's own children.
    Strace,
    /// The program script, which gives a command a terminal.
    Script,
    /// A Docker engine: `dockerd` can be started, or one is named.
    Docker,
    /// The program podman, and user ids for `--userns=keep-id`.
    Podman,
    /// The programs of a general image.
    Image(General),
    /// The program bwrap, and leave to make its namespaces.
    Bubblewrap,
    /// Leave to read the kernel's log.
    KernelLog,
}

impl Fact {
    /// The word for it in `TURNJAIL_REQUIRE`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Jail => "jail",
            Self::Landlock => "landlock",
            Self::Root => "root",
            Self::Unshare => "unshare",
            Self::Cgroup => "cgroup",
            Self::Processes => "processes",
            Self::Pool => "pool",
            Self::Strace => "strace",
            Self::Script => "script",
            Self::Docker => "docker",
            Self::Podman => "podman",
            Self::Image(_) => "general-images",
            Self::Bubblewrap => "bubblewrap",
            Self::KernelLog => "kernel-log",
        }
    }

    /// Whether the variable `TURNJAIL_REQUIRE` (words separated by commas) turns a skip into a failure.
    pub(crate) fn required(self) -> bool {
        std::env::var("TURNJAIL_REQUIRE")
            .is_ok_and(|list| list.split(',').any(|word| word.trim() == self.name()))
    }

    /// Whether the machine has it.
    pub fn is_here(self) -> bool {
        self.missing().is_none()
    }

    /// Why the machine does not have it; none when it does.
    pub(crate) fn missing(self) -> Option<String> {
        static JAIL: OnceLock<Result<Facts, String>> = OnceLock::new();
        let jail = || JAIL.get_or_init(jails::facts);
        match self {
            Self::Jail => jail().as_ref().err().cloned(),
            Self::Landlock => match jail() {
                Err(why) => Some(why.clone()),
                Ok(Facts { landlock_abi: 0, .. }) => Some("the kernel has no landlock".to_owned()),
                Ok(_) => None,
            },
            Self::Root => {
                (!account::was_root()).then(|| "the tests were not started as root".to_owned())
            }
            Self::Unshare => {
                failing("unshare", &["--user", "--map-current-user", "setpriv", "true"])
            }
            Self::Cgroup => jails::no_cgroup(),
            Self::Processes => (kernel() < (5, 14)).then(jails::no_cgroup).flatten(),
            Self::Pool => match jail() {
                Err(why) => Some(why.clone()),
                Ok(facts) if !facts.mechanisms.detached_mounts => {
                    Some("the kernel has no detached mounts".to_owned())
                }
                Ok(_) => None,
            },
            Self::Strace => failing("strace", &["-qq", "-e", "trace=none", "true"]),
            Self::Script => failing("script", &["-qec", "true", "/dev/null"]),
            Self::Docker => engine::missing(),
            Self::Podman => podman(),
            Self::Image(image) => image.missing(),
            Self::Bubblewrap => {
                failing("bwrap", &["--unshare-all", "--ro-bind", "/", "/", "/bin/true"])
            }
            Self::KernelLog => {
                let log = std::fs::File::open("/dev/kmsg");
                log.err().map(|error| format!("/dev/kmsg: {error}"))
            }
        }
    }
}

/// The kernel's version: major and minor.
fn kernel() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().ok());
    let mut next = || numbers.next().flatten().unwrap_or(0);
    (next(), next())
}

/// Why a container cannot have this user's ids; none when it can.
fn podman() -> Option<String> {
    failing("env", &["HOME=/tmp", "podman", "--version"]).or_else(|| {
        let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).ok().flatten();
        let name = user.map_or_else(|| nix::unistd::geteuid().to_string(), |user| user.name);
        let has = |file| {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            text.lines().any(|line| line.split(':').next() == Some(&name))
        };
        let there = has("/etc/subuid") && has("/etc/subgid");
        (!there).then(|| format!("{name} has no ids in /etc/subuid and /etc/subgid"))
    })
}

/// Why a program cannot do this; none when it can.
fn failing(program: &str, arguments: &[&str]) -> Option<String> {
    match Command::new(program).args(arguments).stdin(Stdio::null()).output() {
        Err(error) => Some(format!("{program} cannot be started: {error}")),
        Ok(output) if !output.status.success() => {
            Some(format!("{program} fails: {}", String::from_utf8_lossy(&output.stderr).trim()))
        }
        Ok(_) => None,
    }
}
