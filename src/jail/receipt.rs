//! What was in force around a worker, in words: only what the warden did or the kernel confirmed.

use std::fmt::Write as _;

use turnjail_driver::{ContainerSpec, Limit, Receipt, Wall, WallState};
use turnjail_images::Image;
use turnjail_protocol::limits::{STDERR_BYTES, STDOUT_BYTES};
use turnjail_warden::seccomp::Profile;
use turnjail_warden::step::Step;
use turnjail_warden::wire::{Bounds, Facts, Failure};

use crate::client::Client;
use crate::limits::counts_processes_per_namespace;
use crate::plan::{JailSpec, MIB, OPEN_FILES, TMP_BYTES, cpu_seconds, file_bytes};
use crate::run::Ended;
use crate::{Isolation, Limiter};

const SYSTEM_CALLS: &str = "system calls";

/// The walls of a jail. One in which one of the enforced ones could not be built was never started; what
/// a kernel does not have, or a profile does not build, is told apart here.
pub(crate) fn walls(
    facts: &Facts,
    isolation: Isolation,
    landlock: bool,
    missing: &[Failure],
) -> Vec<Wall> {
    let is_missing = |step: Step| missing.iter().any(|failure| failure.step == step);
    vec![
        enforced("user", "user namespace, this user's one id, setgroups denied"),
        enforced("files", &files(facts)),
        processes(isolation.profile, is_missing(Step::Proc)),
        enforced("network", network(isolation)),
        enforced("ipc", "IPC namespace"),
        enforced("host name", "UTS namespace"),
        enforced("cgroup view", "cgroup namespace"),
        if is_missing(Step::NamespaceLimit) {
            degraded(
                "nested namespaces",
                "seccomp only: the limits of namespaces cannot be written here",
            )
        } else {
            enforced("nested namespaces", "limits of 0 and seccomp")
        },
        enforced("privileges", "all capability sets empty, secure bits locked, no_new_privs"),
        system_calls(facts, isolation),
        landlock_wall(facts, isolation, landlock),
        executable_memory(facts, isolation.profile),
        enforced("descriptors", "0, 1 and 2 only, pipes"),
    ]
}

fn files(facts: &Facts) -> String {
    let mut by =
        "mount namespace, read-only root by pivot_root, nosuid and nodev mounts".to_owned();
    for stand_in in facts.mechanisms.stand_ins() {
        let _ = write!(by, "; {stand_in}");
    }
    by
}

fn enforced(name: &'static str, by: &str) -> Wall {
    Wall { name, state: WallState::Enforced, by: by.to_owned() }
}

fn degraded(name: &'static str, by: &str) -> Wall {
    Wall { name, state: WallState::Degraded, by: by.to_owned() }
}

fn processes(profile: Profile, without_proc: bool) -> Wall {
    let by = match profile {
        Profile::Sealed => "pid namespace without /proc, session of its own",
        Profile::General if without_proc => {
            "pid namespace, session of its own; no /proc, which this host does not let be mounted"
        }
        Profile::General => "pid namespace, /proc with its processes alone, session of its own",
    };
    enforced("processes", by)
}

fn network(isolation: Isolation) -> &'static str {
    match isolation {
        Isolation { loopback: true, .. } => {
            "network namespace with nothing but a loopback of its own; Unix, TCP and UDP sockets only \
             (seccomp)"
        }
        Isolation { profile: Profile::Sealed, .. } => {
            "network namespace, empty; AF_UNIX stream sockets only (seccomp)"
        }
        Isolation { profile: Profile::General, .. } => {
            "network namespace, empty; AF_UNIX sockets only (seccomp)"
        }
    }
}

fn system_calls(facts: &Facts, isolation: Isolation) -> Wall {
    let filter = match isolation {
        Isolation { profile: Profile::Sealed, clears: true, .. } => &facts.clearing_filter,
        Isolation { profile: Profile::Sealed, .. } => &facts.sealed_filter,
        Isolation { loopback: false, .. } => &facts.general_filter,
        Isolation { loopback: true, .. } => &facts.loopback_filter,
    };
    let profile = isolation.profile;
    enforced(SYSTEM_CALLS, &format!("seccomp, {profile} list, filter sha256:{filter:.12}"))
}

fn executable_memory(facts: &Facts, profile: Profile) -> Wall {
    let name = "executable memory";
    match profile {
        Profile::General => Wall {
            name,
            state: WallState::Absent,
            by: "the general profile lets runtimes compile code in memory".to_owned(),
        },
        Profile::Sealed if facts.mdwe => enforced(name, "PR_SET_MDWE and seccomp"),
        Profile::Sealed => {
            degraded(name, "seccomp only: the kernel has no PR_SET_MDWE (Linux 6.3)")
        }
    }
}

fn landlock_wall(facts: &Facts, isolation: Isolation, landlock: bool) -> Wall {
    let name = "file access";
    let absent = |by: &str| Wall { name, state: WallState::Absent, by: by.to_owned() };
    match facts.landlock_abi {
        _ if !landlock => absent("landlock is switched off by the operator"),
        0 => absent("the kernel has no landlock, or it is switched off at boot"),
        abi => match lacks_with(abi, isolation) {
            lacks if lacks.is_empty() => {
                Wall { name, state: WallState::Enforced, by: format!("landlock ABI {abi}") }
            }
            lacks => Wall {
                name,
                state: WallState::Degraded,
                by: format!("landlock ABI {abi}, without {}", lacks.join(", ")),
            },
        },
    }
}

/// The rules of the network know ports, not addresses, so with a loopback there are none.
fn lacks_with(abi: u32, isolation: Isolation) -> Vec<&'static str> {
    let mut lacks = landlock_lacks(abi);
    if isolation.loopback && !lacks.contains(&"TCP") {
        lacks.push("TCP (the loopback is open)");
    }
    lacks
}

/// What landlock does not mediate yet at this ABI, of what turnjail uses (landlock(7)). The network
/// namespace, the absence of devices and the pid namespace stand before these.
pub(crate) fn landlock_lacks(abi: u32) -> Vec<&'static str> {
    [
        (2, "renames between directories (they fail)"),
        (3, "truncation"),
        (4, "TCP"),
        (5, "device ioctls"),
        (6, "signals and abstract sockets"),
    ]
    .into_iter()
    .filter(|&(since, _)| abi < since)
    .map(|(_, what)| what)
    .collect()
}

/// Every limit asked for and what enforces it: a cgroup for the whole jail, else the kernel for each
/// process.
pub(crate) fn limits(jail: &JailSpec, limiter: &Limiter) -> Vec<Limit> {
    let limit = |name, asked: String, by: &str| Limit { name, asked, by: Some(by.to_owned()) };
    let asked = &jail.limits;
    let mut list = vec![
        limit("memory", format!("{} MiB", asked.memory_mb), &memory(jail.isolation, limiter)),
        Limit {
            name: "processes",
            asked: asked.pids.to_string(),
            by: process_count(
                jail.isolation.profile,
                limiter.has_cgroups(),
                counts_processes_per_namespace(),
            )
            .map(str::to_owned),
        },
        limit("cpu time", format!("{} s", cpu_seconds(asked)), cpu_time(jail.isolation)),
        Limit {
            name: "cpu share",
            asked: asked.cpus.to_string(),
            by: limiter.has_cpu_share().then(|| "cpu.max (cgroup)".to_owned()),
        },
        limit("wall time", format!("{} ms", asked.time_ms), "the runtime's deadline"),
        limit("/tmp", format!("{} MiB", TMP_BYTES / MIB), "tmpfs size and inodes"),
        limit("open files", OPEN_FILES.to_string(), "RLIMIT_NOFILE"),
        limit("output", format!("{STDOUT_BYTES} bytes"), "the host's reader"),
        limit("errors", format!("{STDERR_BYTES} bytes"), "the host's reader"),
    ];
    let file = file_bytes(jail.bounds.as_ref());
    if file < u64::MAX {
        list.push(limit("file size", format!("{} MiB", file / MIB), "RLIMIT_FSIZE"));
    }
    if let Some(bounds) = &jail.bounds {
        list.extend(holdings(bounds));
    }
    list
}

fn memory(isolation: Isolation, limiter: &Limiter) -> String {
    let of_process = match isolation {
        Isolation { address_space_limit: true, .. } => Some("RLIMIT_AS"),
        Isolation { data_limit: true, .. } => Some("RLIMIT_DATA, private memory of each process"),
        _ => None,
    };
    let of_jail = match isolation.profile {
        _ if limiter.has_swap_limit() => Some("memory.max (cgroup), no swap"),
        _ if limiter.has_cgroups() => Some("memory.max (cgroup), swap is not counted"),
        Profile::Sealed => None,
        // Buffers of pipes and sockets are the kernel's.
        Profile::General => Some("a watch of processes and files in memory, not of kernel buffers"),
    };
    of_jail.into_iter().chain(of_process).collect::<Vec<_>>().join(" and ")
}

/// Counted from each fork anew: only a program that cannot fork has one account.
fn cpu_time(isolation: Isolation) -> &'static str {
    match isolation.profile {
        Profile::Sealed => "RLIMIT_CPU",
        Profile::General => "RLIMIT_CPU, each process by itself",
    }
}

/// What holds the number of processes; none where nothing does.
fn process_count(profile: Profile, cgroup: bool, rlimit: bool) -> Option<&'static str> {
    match (profile, cgroup, rlimit) {
        (Profile::Sealed, true, _) => Some("pids.max (cgroup) and seccomp"),
        (Profile::Sealed, false, true) => Some("RLIMIT_NPROC and seccomp"),
        (Profile::Sealed, false, false) => Some("seccomp"),
        (Profile::General, true, _) => Some("pids.max (cgroup)"),
        (Profile::General, false, true) => Some("RLIMIT_NPROC"),
        (Profile::General, false, false) => None,
    }
}

fn holdings(bounds: &Bounds) -> Vec<Limit> {
    const BY: &str = "a walk before the turn and while it runs; open deleted files by the reserve";
    let mut list = Vec::new();
    let mut add = |name, asked: String| {
        list.push(Limit { name, asked, by: Some(BY.to_owned()) });
    };
    if bounds.bytes > 0 {
        add("workspace", format!("{} MiB", bounds.bytes / MIB));
    }
    if bounds.entries > 0 {
        add("workspace entries", bounds.entries.to_string());
    }
    if bounds.reserve > 0 {
        add("free space", format!("{} MiB stay free", bounds.reserve / MIB));
    }
    list
}

/// The walls of a jail that ran: one that was prepared has its filter in two stages.
fn walls_of(facts: &Facts, isolation: Isolation, landlock: bool, ended: &Ended) -> Vec<Wall> {
    let mut walls = walls(facts, isolation, landlock, &ended.missing);
    if ended.timing.prepared
        && let Some(wall) = walls.iter_mut().find(|wall| wall.name == SYSTEM_CALLS)
    {
        let [first, second] = &facts.sealed_stages;
        let _ = write!(wall.by, ", in two stages sha256:{first:.12} and sha256:{second:.12}");
    }
    walls
}

/// The record of a run.
pub(crate) fn receipt(
    spec: &ContainerSpec,
    image: &Image,
    jail: &JailSpec,
    client: &Client,
    ended: &Ended,
) -> Receipt {
    let isolation = jail.isolation;
    Receipt {
        driver: crate::driver::NAME,
        image: spec.image.clone(),
        image_digest: Some(image.digest.clone()),
        profile: Some(isolation.profile.as_str()),
        loopback: Some(isolation.loopback),
        walls: walls_of(client.facts(), isolation, jail.landlock, ended),
        limits: limits(jail, client.limiter()),
        exit: ended.reason,
        timing: ended.timing,
        usage: ended.usage,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_limit_of_processes_is_claimed_where_none_is_in_force() {
        assert_eq!(process_count(Profile::General, false, false), None);
        // A sealed program cannot fork at all.
        assert_eq!(process_count(Profile::Sealed, false, false), Some("seccomp"));
        for profile in [Profile::Sealed, Profile::General] {
            for rlimit in [false, true] {
                let by = process_count(profile, true, rlimit).unwrap_or_default();
                assert!(by.starts_with("pids.max"), "{profile}: {by}");
            }
            let by = process_count(profile, false, true).unwrap_or_default();
            assert!(by.starts_with("RLIMIT_NPROC"), "{profile}: {by}");
        }
    }
}
