//! One table from a failed step and its errno to a cause and a remedy, for errors and for `doctor`.
//!
//! Some errnos have several causes; then the table looks at the facts of this host that tell them apart
//! ([`crate::host`]). Sources: user_namespaces(7), clone(2), the kernel's fs/namespace.c, and reports
//! of how rootless tools failed on real hosts.

use rustix::io::Errno;
use turnjail_warden::step::Step;
use turnjail_warden::wire::{Failure, Over};

use crate::host;

/// What a failure means here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    /// A stable word.
    pub code: &'static str,
    /// Why it failed, when known.
    pub why: Option<&'static str>,
    /// What to do, when known: one line.
    pub remedy: Option<String>,
}

impl Advice {
    fn new(code: &'static str, why: &'static str, remedy: impl Into<String>) -> Self {
        Self { code, why: Some(why), remedy: Some(remedy.into()) }
    }

    fn unknown(code: &'static str) -> Self {
        Self { code, why: None, remedy: None }
    }
}

/// One sentence: what could not be done, to what, the system's answer, and why when known.
pub fn cause(failure: Failure, object: Option<&str>) -> String {
    let errno = Errno::from_raw_os_error(failure.errno);
    let step = failure.step.words();
    let object = object.map(|o| format!(" ({o})")).unwrap_or_default();
    match advice(failure).why {
        Some(why) => format!("cannot {step}{object}: {errno}: {why}"),
        None => format!("cannot {step}{object}: {errno}"),
    }
}

/// What a failure means on this host.
pub fn advice(failure: Failure) -> Advice {
    let errno = Errno::from_raw_os_error(failure.errno);
    match failure.step {
        // Whatever was being done.
        _ if [Errno::MFILE, Errno::NFILE].contains(&errno) => general(errno),
        Step::WardenNamespaces | Step::JailNamespaces => namespaces(errno),
        Step::SetGroups | Step::UidMap | Step::GidMap => id_maps(errno),
        Step::Propagation => propagation(errno),
        Step::OpenSource | Step::SourceIdentity => Advice::new(
            "mount-source",
            "a directory that turnjail was to mount is not there or not reachable",
            "check that the directory exists, is yours, and is not being replaced",
        ),
        Step::AttachMount if errno == Errno::INVAL => mounting(Errno::NOTDIR),
        Step::CopyTree | Step::TreeFlags | Step::AttachRoot | Step::AttachMount => mounting(errno),
        Step::Tmp | Step::Devices | Step::Proc if [Errno::LOOP, Errno::NOTDIR].contains(&errno) => {
            mounting(errno)
        }
        Step::PivotRoot => Advice::new(
            "pivot-root",
            "the current root is an initial ram file system or a chroot",
            "start turnjail from a normally mounted root, outside any chroot",
        ),
        Step::Tmp => Advice::new(
            "tmpfs",
            "a tmpfs cannot be mounted",
            "check the kernel's tmpfs support and fs.mount-max",
        ),
        Step::Proc => Advice::new(
            "masked-proc",
            "the surrounding container masks /proc, so no new one can be mounted",
            "unmask it (podman: --security-opt unmask=ALL, docker: systempaths=unconfined); without \
             /proc a jail is no weaker",
        ),
        Step::Devices => Advice::new(
            "devices",
            "the host's /dev lacks the usual devices, or the image has no /dev directory",
            "give the surrounding container null, zero, full, random and urandom; import the image again",
        ),
        Step::Exec => exec(errno),
        Step::Landlock => Advice::new(
            "landlock-failed",
            "the kernel has landlock but refuses this ruleset",
            "report this with the output of turnjail doctor",
        ),
        Step::Seccomp => Advice::new(
            "seccomp",
            "the kernel refuses the filter",
            "use a kernel with CONFIG_SECCOMP_FILTER",
        ),
        Step::WorkingDir => Advice::new(
            "working-dir",
            "the image names a working directory that is not a directory in it",
            "correct the image's WorkingDir",
        ),
        Step::NamespaceLimit => Advice::new(
            "namespace-limits",
            "/proc/sys is read-only, so the limits of namespaces cannot be lowered",
            "none needed: the seccomp filter forbids namespaces as well",
        ),
        Step::Holdings => holdings(Over::of_index(failure.index).0),
        Step::HoldingsWalk => Advice::new(
            "workspace-unreadable",
            "its file system does not answer",
            "check the file system of directories.workspaces",
        ),
        Step::Cgroup => Advice::new(
            "cgroup",
            "the cgroup that was delegated to turnjail was taken away or changed meanwhile",
            "restart turnjail in a unit with Delegate=yes, or set limits = \"best-effort\"",
        ),
        Step::ResourceLimit | Step::Nice => Advice::new(
            "resource-limit",
            "a sandbox around turnjail forbids lowering its own limits",
            "start turnjail outside that sandbox",
        ),
        _ => general(errno),
    }
}

/// Remedies name the settings of the command line, and its command for workspaces.
fn holdings(over: Over) -> Advice {
    const EMPTY: &str = "see `turnjail workspace list`; empty it with `turnjail workspace remove`, or \
                         raise jail.workspace_max_mb";
    match over {
        Over::Bytes => Advice::new("workspace-full", "it holds more than it may", EMPTY),
        Over::Entries => Advice::new("workspace-full", "it holds more files than it may", EMPTY),
        Over::Depth => Advice::new(
            "workspace-full",
            "its directories lie deeper in each other than can be counted",
            "empty it with `turnjail workspace remove`",
        ),
        Over::Reserve => Advice::new(
            "disk-reserve",
            "its file system has no more free space than is kept in reserve",
            "free space there, or lower jail.disk_reserve_mb",
        ),
    }
}

fn namespaces(errno: Errno) -> Advice {
    match errno {
        Errno::PERM if host::filtered() => Advice::new(
            "outer-seccomp",
            "a seccomp filter around turnjail forbids namespaces, as container engines do by default",
            "start the outer container with a seccomp profile that allows clone, unshare and mount \
             (docker: --security-opt seccomp=unconfined)",
        ),
        Errno::PERM if host::sysctl_is("kernel/unprivileged_userns_clone", "0") => Advice::new(
            "userns-sysctl",
            "kernel.unprivileged_userns_clone is 0",
            "sysctl -w kernel.unprivileged_userns_clone=1 (and keep it in /etc/sysctl.d)",
        ),
        Errno::PERM if host::unmapped() => Advice::new(
            "unmapped-id",
            "this user or group is not mapped in the surrounding user namespace",
            "start turnjail as a user that the surrounding container maps",
        ),
        Errno::PERM => Advice::new(
            "chroot",
            "creating user namespaces is forbidden, most likely because this is a chroot",
            "start turnjail outside the chroot, or in a container with a root of its own",
        ),
        Errno::ACCESS => Advice::new(
            "lsm-userns",
            "a security module (AppArmor or SELinux) denies user namespaces to this program",
            "add a profile that allows `userns` for this program's path, or start it unconfined",
        ),
        Errno::NOSPC => {
            let remedy = match host::exhausted_namespace_limit() {
                Some(limit) => {
                    format!("raise user.{limit} (it is 0 here): sysctl -w user.{limit}=15000")
                }
                None => {
                    "raise the user.max_*_namespaces limits, or end leaked processes that hold \
                         namespaces"
                        .to_owned()
                }
            };
            Advice::new(
                "namespace-limit",
                "a limit of namespaces is reached (not disk space)",
                remedy,
            )
        }
        Errno::INVAL | Errno::NOSYS => Advice::new(
            "no-userns",
            "this kernel cannot create all namespaces",
            "use Linux 5.12 or newer with CONFIG_USER_NS (WSL needs version 2)",
        ),
        Errno::AGAIN => Advice::new(
            "process-limit",
            "the limit of processes of this user is reached",
            "raise ulimit -u or the pids limit of the surrounding container",
        ),
        other => general(other),
    }
}

fn id_maps(errno: Errno) -> Advice {
    match errno {
        _ if host::sysctl_is("kernel/apparmor_restrict_unprivileged_userns", "1") => Advice::new(
            "apparmor-userns",
            "AppArmor lets the namespace be made and takes its capabilities away",
            format!(
                "install an AppArmor profile with `userns,` for {} (preferred), or sysctl -w \
                 kernel.apparmor_restrict_unprivileged_userns=0 for the whole host",
                host::program()
            ),
        ),
        Errno::ROFS => Advice::new(
            "proc-read-only",
            "/proc is mounted read-only",
            "give the outer container a writable /proc",
        ),
        Errno::NOENT => {
            Advice::new("no-proc", "/proc is not mounted", "mount /proc before starting turnjail")
        }
        Errno::ACCESS => Advice::new(
            "lsm-userns",
            "a sandbox or security module around turnjail denies writing id maps",
            "start turnjail outside that sandbox",
        ),
        _ => Advice::new(
            "id-maps",
            "the kernel refuses to map even this user's own id",
            "start turnjail as an ordinary user, outside other sandboxes",
        ),
    }
}

fn propagation(errno: Errno) -> Advice {
    match errno {
        Errno::ACCESS => Advice::new(
            "lsm-mount",
            "a security module around turnjail denies mounts (docker's AppArmor profile does)",
            "start the outer container with a profile that allows mount and userns \
             (docker: --security-opt apparmor=unconfined)",
        ),
        Errno::PERM => Advice::new(
            "outer-landlock",
            "a landlock or seccomp sandbox around turnjail forbids mounts",
            "start turnjail outside that sandbox",
        ),
        _ => Advice::new(
            "chroot",
            "the root directory is not a mount point, as in a chroot",
            "start turnjail outside the chroot",
        ),
    }
}

fn mounting(errno: Errno) -> Advice {
    match errno {
        Errno::NOSPC => Advice::new(
            "mount-limit",
            "the limit of mounts is reached (not disk space)",
            "raise fs.mount-max",
        ),
        Errno::NOSYS => {
            Advice::new("old-kernel", "this kernel has no mount_setattr", "use Linux 5.12 or newer")
        }
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP => Advice::new(
            "mount-point",
            "the image has no plain directory at a mount point",
            "import the image again",
        ),
        other => general(other),
    }
}

fn exec(errno: Errno) -> Advice {
    match errno {
        Errno::NOENT => Advice::new(
            "entrypoint",
            "the image has no such program, or its interpreter is missing",
            "correct the image's Entrypoint",
        ),
        Errno::ACCESS | Errno::PERM => Advice::new(
            "exec-denied",
            "the program is not executable, or lies on a file system mounted noexec",
            "put the image store on a file system that allows exec",
        ),
        Errno::NOEXEC => Advice::new(
            "exec-format",
            "the program is not for this architecture",
            "use an image for this machine's architecture",
        ),
        Errno::NOMEM => Advice::new(
            "exec-memory",
            "the program does not fit into the memory limit",
            "raise memory_mb",
        ),
        other => general(other),
    }
}

fn general(errno: Errno) -> Advice {
    match errno {
        Errno::MFILE | Errno::NFILE => Advice::new(
            "open-files",
            "the limit of open files is reached",
            "raise ulimit -n or the system's fs.file-max",
        ),
        Errno::NOMEM => Advice::new("memory", "memory is short", "free memory on this host"),
        _ => Advice::unknown("jail"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(step: Step, errno: Errno) -> Failure {
        Failure { step, index: 0, errno: errno.raw_os_error() }
    }

    #[test]
    fn every_step_gives_one_line_with_a_code() {
        let errnos = [Errno::PERM, Errno::ACCESS, Errno::NOSPC, Errno::INVAL, Errno::NOENT];
        for &step in Step::ALL {
            for errno in errnos {
                let failure = failure(step, errno);
                let cause = cause(failure, Some("/some/path"));
                assert!(cause.starts_with("cannot ") && cause.contains("/some/path"), "{cause}");
                assert!(!cause.contains('\n'), "{cause}");
                let advice = advice(failure);
                assert!(!advice.code.is_empty());
                assert!(advice.remedy.is_none_or(|r| !r.contains('\n') && !r.contains("  ")));
            }
        }
    }

    #[test]
    fn enospc_of_namespaces_never_sounds_like_a_full_disk() {
        let advice = advice(failure(Step::JailNamespaces, Errno::NOSPC));
        assert_eq!(advice.code, "namespace-limit");
        assert!(advice.why.is_some_and(|why| why.contains("not disk space")));
    }
}
