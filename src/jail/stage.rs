//! From a failed step and its errno to the cause, for errors and for `doctor`.
//!
//! Some errnos have several causes; then the facts of this host tell them apart
//! ([`crate::causes::evidence`]), in the order in which each can be told for certain.

use nix::errno::Errno as Answer;
use rustix::io::Errno;
use turnjail_warden::step::Step;
use turnjail_warden::wire::{Failure, Over};

use crate::causes::evidence::Evidence;
use crate::causes::surroundings::{Kind, is_wsl1};
use crate::causes::table::{self, Cause};
use crate::causes::{Advice, advise};

/// What the kinds of namespaces are called in the names of their limits.
const NAMESPACES: [&str; 7] = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"];

/// The number of the capability by which root's id is mapped (capabilities(7)).
const CAP_SETFCAP: u32 = 31;

/// The limit of open files holds for descriptors on their way between processes, too.
pub(crate) const TOO_MANY_FILES: [Errno; 3] = [Errno::MFILE, Errno::NFILE, Errno::TOOMANYREFS];

/// A cause, and what is to be said of it.
type Found = (&'static Cause, Option<(&'static str, String)>);

/// One sentence: what could not be done, to what, the system's answer, and why when known.
pub fn cause(failure: Failure, object: Option<&str>) -> String {
    let errno = Errno::from_raw_os_error(failure.errno);
    let step = failure.step.words();
    let object = object.map(|o| format!(" ({o})")).unwrap_or_default();
    match advice(failure, &Evidence::here()) {
        Some(advice) => format!("cannot {step}{object}: {errno}: {}", advice.why),
        None => format!("cannot {step}{object}: {errno}"),
    }
}

/// What a failure means on the host that the evidence is of; none when nobody knows.
pub fn advice(failure: Failure, evidence: &Evidence) -> Option<Advice> {
    let (cause, word) = find(failure, evidence)?;
    let words: Vec<(&str, &str)> =
        word.iter().map(|(name, value)| (*name, value.as_str())).collect();
    Some(advise(cause, evidence, &words))
}

fn find(failure: Failure, evidence: &Evidence) -> Option<Found> {
    let errno = Errno::from_raw_os_error(failure.errno);
    let plain = |cause: &'static Cause| Some((cause, None));
    match failure.step {
        // Whatever was being done.
        _ if TOO_MANY_FILES.contains(&errno) && !mounts(failure.step) => plain(&table::OPEN_FILES),
        _ if errno == Errno::NOMEM && failure.step != Step::Exec => plain(&table::MEMORY),
        Step::WardenNamespaces | Step::JailNamespaces => Some(namespaces(errno, evidence)),
        Step::SetGroups | Step::UidMap | Step::GidMap => Some(id_maps(errno, evidence)),
        Step::Propagation => Some(propagation(errno, evidence)),
        Step::OpenSource | Step::SourceIdentity => plain(&table::MOUNT_SOURCE),
        Step::AttachMount if errno == Errno::INVAL => plain(&table::MOUNT_POINT),
        Step::CopyTree if errno == Errno::INVAL => plain(&table::MOUNT_BELOW),
        Step::CopyTree | Step::TreeFlags | Step::AttachRoot | Step::AttachMount => {
            mounting(errno, evidence)
        }
        Step::Tmp | Step::Devices | Step::Proc if [Errno::LOOP, Errno::NOTDIR].contains(&errno) => {
            plain(&table::MOUNT_POINT)
        }
        Step::PivotRoot | Step::DetachOldRoot if denied(errno) => {
            Some(propagation(errno, evidence))
        }
        Step::PivotRoot | Step::DetachOldRoot => plain(&table::PIVOT_ROOT),
        Step::Tmp if denied(errno) || errno == Errno::NOSPC => mounting(errno, evidence),
        Step::Tmp => plain(&table::TMPFS),
        Step::Proc => plain(&table::MASKED_PROC),
        Step::Devices => plain(&table::DEVICES),
        Step::Exec => exec(errno),
        Step::Landlock => plain(&table::LANDLOCK_FAILED),
        Step::Seccomp => plain(&table::SECCOMP),
        Step::WorkingDir => plain(&table::WORKING_DIR),
        Step::NamespaceLimit => plain(&table::NAMESPACE_LIMITS),
        Step::Holdings => plain(holdings(Over::of_index(failure.index).0)),
        Step::HoldingsWalk => plain(&table::WORKSPACE_UNREADABLE),
        Step::Watch if errno == Errno::NOSPC => plain(&table::WATCHES),
        // The limit of cgroup namespaces: such a jail makes its own itself.
        Step::Cgroup if errno == Errno::NOSPC => Some(namespaces(errno, evidence)),
        Step::Cgroup => plain(&table::CGROUP_GONE),
        Step::ResourceLimit | Step::Nice => plain(&table::RESOURCE_LIMIT),
        Step::Init if errno == Errno::AGAIN => plain(&table::PROCESS_LIMIT),
        _ if errno == Errno::NOSYS && evidence.empty_unshare().is_some() => {
            plain(&table::OUTER_SECCOMP)
        }
        _ if errno == Errno::NOSYS => plain(&table::OLD_KERNEL),
        _ if denied(errno) => plain(&table::POLICY_UNKNOWN),
        _ => None,
    }
}

fn holdings(over: Over) -> &'static Cause {
    match over {
        Over::Bytes => &table::WORKSPACE_BYTES,
        Over::Entries => &table::WORKSPACE_ENTRIES,
        Over::Depth => &table::WORKSPACE_DEPTH,
        Over::Reserve => &table::DISK_RESERVE,
    }
}

fn mounts(step: Step) -> bool {
    matches!(step, Step::Tmp | Step::Proc | Step::Devices)
}

fn denied(errno: Errno) -> bool {
    errno == Errno::PERM || errno == Errno::ACCESS
}

fn labelled(cause: &'static Cause, evidence: &Evidence) -> Found {
    let label = evidence.label().unwrap_or_else(|| "unknown".to_owned());
    (cause, Some(("label", label)))
}

fn namespaces(errno: Errno, evidence: &Evidence) -> Found {
    let cause = match errno {
        Errno::PERM | Errno::NOSYS if Kind::of(evidence) == Kind::Jail => &table::NESTED_TURNJAIL,
        Errno::PERM | Errno::NOSYS if evidence.empty_unshare() == Some(Answer::EPERM) => {
            &table::OUTER_SECCOMP
        }
        Errno::PERM
            if evidence.sysctl("kernel.unprivileged_userns_clone").as_deref() == Some("0") =>
        {
            &table::USERNS_SYSCTL
        }
        Errno::PERM if evidence.is_unmapped() => &table::UNMAPPED,
        Errno::PERM | Errno::NOSYS
            if evidence.is_filtered() && evidence.variable("INVOCATION_ID").is_some() =>
        {
            &table::UNIT_FILTER
        }
        Errno::PERM | Errno::NOSYS if evidence.is_filtered() => &table::OUTER_SECCOMP,
        Errno::PERM if evidence.label().is_some_and(|label| label.contains("unpriv_bwrap")) => {
            return labelled(&table::NESTED_BUBBLEWRAP, evidence);
        }
        Errno::PERM => &table::CHROOT,
        Errno::ACCESS => return labelled(&table::LSM_USERNS, evidence),
        Errno::NOSPC => {
            return match zero_limit(evidence) {
                Some(limit) => (&table::LIMIT_ZERO, Some(("limit", limit))),
                None => (&table::LIMIT_REACHED, None),
            };
        }
        Errno::INVAL | Errno::NOSYS if is_wsl1(evidence) => &table::WSL1,
        Errno::INVAL | Errno::NOSYS if !evidence.exists("/proc/self/ns/user") => &table::NO_USERNS,
        Errno::NOSYS => &table::OLD_KERNEL,
        Errno::INVAL => &table::NO_USERNS,
        Errno::AGAIN => &table::PROCESS_LIMIT,
        _ => &table::POLICY_UNKNOWN,
    };
    (cause, None)
}

/// The first limit of namespaces that is 0, without its `user.`.
pub(crate) fn zero_limit(evidence: &Evidence) -> Option<String> {
    let mut names = NAMESPACES.iter().map(|kind| format!("max_{kind}_namespaces"));
    names.find(|name| evidence.number(&format!("user.{name}")) == Some(0))
}

fn id_maps(errno: Errno, evidence: &Evidence) -> Found {
    let restricted =
        evidence.sysctl("kernel.apparmor_restrict_unprivileged_userns").as_deref() == Some("1");
    let label = evidence.label();
    match errno {
        _ if label.as_ref().is_some_and(|label| label.contains("unpriv_bwrap")) => {
            labelled(&table::NESTED_BUBBLEWRAP, evidence)
        }
        Errno::ROFS => (&table::PROC_READ_ONLY, None),
        Errno::NOENT => (&table::NO_PROC, None),
        _ if restricted => (&table::APPARMOR_USERNS, None),
        Errno::ACCESS if label.is_some() => labelled(&table::LSM_USERNS, evidence),
        Errno::ACCESS => (&table::OUTER_SANDBOX, None),
        Errno::PERM if evidence.is_root_without(CAP_SETFCAP) => (&table::ROOT_UNMAPPABLE, None),
        _ => (&table::ID_MAPS, None),
    }
}

/// The first mount in a new namespace, where whatever forbids mounts shows.
fn propagation(errno: Errno, evidence: &Evidence) -> Found {
    let restricted =
        evidence.sysctl("kernel.apparmor_restrict_unprivileged_userns").as_deref() == Some("1");
    match errno {
        Errno::ACCESS if evidence.label().is_some() => labelled(&table::LSM_MOUNT, evidence),
        Errno::ACCESS if restricted => (&table::APPARMOR_USERNS, None),
        Errno::ACCESS => labelled(&table::LSM_MOUNT, evidence),
        Errno::PERM if evidence.is_filtered() => (&table::OUTER_SECCOMP, None),
        Errno::PERM => (&table::OUTER_MOUNT, None),
        _ => (&table::ROOT_NO_MOUNT, None),
    }
}

fn mounting(errno: Errno, evidence: &Evidence) -> Option<Found> {
    Some(match errno {
        Errno::NOSPC => (&table::MOUNT_LIMIT, None),
        Errno::MFILE | Errno::NFILE => (&table::MOUNT_DEVICES, None),
        Errno::NOSYS | Errno::PERM if evidence.is_filtered() => (&table::OUTER_SECCOMP, None),
        Errno::NOSYS => (&table::OLD_KERNEL, None),
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP => (&table::MOUNT_POINT, None),
        Errno::PERM | Errno::ACCESS => (&table::MOUNT_DENIED, None),
        _ => return None,
    })
}

fn exec(errno: Errno) -> Option<Found> {
    let cause = match errno {
        Errno::NOENT => &table::ENTRYPOINT,
        Errno::ACCESS | Errno::PERM => &table::EXEC_DENIED,
        Errno::NOEXEC => &table::EXEC_FORMAT,
        Errno::NOMEM => &table::EXEC_MEMORY,
        _ => return None,
    };
    Some((cause, None))
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
                let advice = advice(failure, &Evidence::here());
                assert!(advice.is_none_or(|advice| !advice.remedy.is_empty()));
            }
        }
    }

    #[test]
    fn enospc_of_namespaces_never_sounds_like_a_full_disk() {
        let advice = advice(failure(Step::JailNamespaces, Errno::NOSPC), &Evidence::here());
        let advice = advice.expect("a cause");
        assert_eq!(advice.code, "namespace-limit");
        assert!(advice.why.contains("not about disk space"), "{}", advice.why);
    }
}
