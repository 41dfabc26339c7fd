//! What files of this host say: versions, limits, what surrounds it, cgroups. Nothing here proves that a
//! jail can be made; it tells what is lost, and what will be in the way one day.

use std::path::Path;

use super::Check;
use crate::causes::evidence::{Evidence, MountLine};
use crate::causes::surroundings::{self, Kind};
use crate::causes::{advise, table};
use crate::{groups as account, stage};

/// Below this many open files not many turns fit.
const ENOUGH_FILES: u64 = 1024;
/// So many processes a few turns need.
const ENOUGH_PROCESSES: u64 = 64;
/// The largest file that a turn may write by default.
const ENOUGH_FILE_BYTES: u64 = 1 << 30;
/// What the host process itself needs of addresses.
const ENOUGH_ADDRESSES: u64 = 2 << 30;
/// So many namespaces a few jails need.
const ENOUGH_NAMESPACES: u64 = 64;
/// So many zombies are nobody's accident.
const MANY_ZOMBIES: usize = 20;

/// Every check of this file but those that a policy may make a failure.
pub fn checks(evidence: &Evidence) -> Vec<Check> {
    let mut checks = vec![kernel(evidence), surroundings(evidence)];
    let rest = [traced(evidence), namespace_limits(evidence), mounts(evidence), zombies(evidence)];
    checks.extend(rest.into_iter().flatten());
    checks.extend(limits(evidence));
    checks
}

fn kernel(evidence: &Evidence) -> Check {
    let name = "kernel";
    let release = evidence.sysctl("kernel.osrelease").unwrap_or_else(|| "unknown".to_owned());
    let found = format!("Linux {release} on {}", std::env::consts::ARCH);
    let advice = match evidence.kernel() {
        _ if surroundings::is_wsl1(evidence) => advise(&table::WSL1, evidence, &[]),
        _ if surroundings::is_gvisor(evidence) => advise(&table::GVISOR, evidence, &[]),
        Some(version) if version < (5, 10) => advise(&table::KERNEL_UNTRIED, evidence, &[]),
        Some(version) if version < (5, 14) => advise(&table::KERNEL_PROCESSES, evidence, &[]),
        _ => return Check::ok(name, found),
    };
    let check = Check::of(name, advice);
    Check { evidence: format!("{found}: {}", check.evidence), ..check }
}

fn surroundings(evidence: &Evidence) -> Check {
    let name = "surroundings";
    if let Some(value) = surroundings::emulated(evidence) {
        return Check::of(name, advise(&table::EMULATED, evidence, &[("value", value)]));
    }
    // No verdict: what it forbids shows below.
    let found = Kind::of(evidence).name().map(|kind| format!("inside {kind}"));
    Check::ok(name, found.unwrap_or_else(|| "no container, as far as that shows".to_owned()))
}

fn traced(evidence: &Evidence) -> Option<Check> {
    let tracer = evidence.status("TracerPid").filter(|pid| pid != "0")?;
    Some(Check::of("tracer", advise(&table::TRACED, evidence, &[("value", &tracer)])))
}

/// A limit of 0 stops the start, which says so.
fn namespace_limits(evidence: &Evidence) -> Option<Check> {
    let name = "limits of namespaces";
    if let Some(limit) = stage::zero_limit(evidence) {
        return Some(Check::of(name, advise(&table::LIMIT_ZERO, evidence, &[("limit", &limit)])));
    }
    let kinds = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"];
    kinds.into_iter().find_map(|kind| {
        let limit = format!("max_{kind}_namespaces");
        let value = evidence.number(&format!("user.{limit}"))?;
        let words = [("limit", limit.as_str()), ("value", &value.to_string())];
        let low = value < ENOUGH_NAMESPACES;
        low.then(|| Check::of(name, advise(&table::LOW_LIMIT, evidence, &words)))
    })
}

fn mounts(evidence: &Evidence) -> Option<Check> {
    let most = evidence.number("fs.mount-max")?;
    let have = evidence.mounts().len() as u64;
    let words = [("value", have.to_string()), ("most", most.to_string())];
    let words = [(words[0].0, words[0].1.as_str()), (words[1].0, words[1].1.as_str())];
    // A jail starts with a copy of all of them.
    let short = have * 2 + 64 > most;
    short.then(|| Check::of("mounts", advise(&table::MANY_MOUNTS, evidence, &words)))
}

/// Dead processes that nobody waits for keep their namespaces, until no more can be made.
fn zombies(evidence: &Evidence) -> Option<Check> {
    let uid = evidence.status("Uid")?.split_whitespace().next()?.to_owned();
    let mut parents: Vec<String> = Vec::new();
    for name in evidence.names("/proc") {
        if !name.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let Some(status) = evidence.text(&format!("/proc/{name}/status")) else { continue };
        let field = |name: &str| {
            status.lines().find_map(|line| line.strip_prefix(name)).map_or("", str::trim)
        };
        let own = field("Uid:").split_whitespace().next() == Some(uid.as_str());
        if own && field("State:").starts_with('Z') {
            parents.push(field("PPid:").to_owned());
        }
    }
    if parents.len() < MANY_ZOMBIES {
        return None;
    }
    let (count, parent) = (parents.len().to_string(), format!("process {}", parents[0]));
    let words = [("value", count.as_str()), ("parent", parent.as_str())];
    Some(Check::of("zombies", advise(&table::ZOMBIES, evidence, &words)))
}

/// The limits of this process that its turns inherit or use up.
fn limits(evidence: &Evidence) -> Vec<Check> {
    let mut checks = Vec::new();
    let name = "limits of this process";
    let soft = |limit| evidence.limit(limit).and_then(|(soft, _)| soft);
    let number = |value: u64| value.to_string();
    // The soft limit of files is raised to the hard one at start.
    if let Some(value) = evidence.limit("Max open files").and_then(|(_, hard)| hard)
        && value < ENOUGH_FILES
    {
        let words = [("value", number(value))];
        checks.push((&table::FEW_FILES, words.to_vec()));
    }
    if let Some(value) = soft("Max file size").filter(|&value| value < ENOUGH_FILE_BYTES) {
        checks.push((&table::SMALL_FILES, vec![("value", number(value))]));
    }
    if let Some(value) = soft("Max address space").filter(|&value| value < ENOUGH_ADDRESSES) {
        checks.push((&table::ADDRESS_SPACE, vec![("value", number(value))]));
    }
    if let Some(value) = soft("Max processes") {
        let used = processes_of_user(evidence);
        if value < used + ENOUGH_PROCESSES {
            let words = vec![("value", number(value)), ("used", number(used))];
            checks.push((&table::FEW_PROCESSES, words));
        }
    }
    let check = |(cause, words): (_, Vec<(&str, String)>)| {
        let words: Vec<(&str, &str)> = words.iter().map(|(n, v)| (*n, v.as_str())).collect();
        Check::of(name, advise(cause, evidence, &words))
    };
    checks.into_iter().map(check).collect()
}

/// How many threads this user has, which is what the limit of processes counts.
fn processes_of_user(evidence: &Evidence) -> u64 {
    let uid = evidence.status("Uid").unwrap_or_default();
    let uid = uid.split_whitespace().next().unwrap_or_default();
    let statuses = evidence
        .names("/proc")
        .into_iter()
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .filter_map(|name| evidence.text(&format!("/proc/{name}/status")));
    statuses
        .filter_map(|status| {
            let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
            let own = field("Uid:")?.split_whitespace().next()? == uid;
            own.then(|| field("Threads:")?.trim().parse::<u64>().ok()).flatten()
        })
        .sum()
}

/// Supplementary groups that amount to root.
pub fn groups(evidence: &Evidence) -> Check {
    let name = "supplementary groups";
    match account::privileged(evidence) {
        Ok(groups) if groups.is_empty() => Check::ok(name, "none that amounts to root"),
        Ok(groups) => {
            let groups = groups.join(", ");
            Check::of(name, advise(&table::GROUPS, evidence, &[("groups", &groups)]))
        }
        Err(errno) => {
            let unknown = format!("unknown ({errno})");
            Check::of(name, advise(&table::GROUPS, evidence, &[("groups", &unknown)]))
        }
    }
}

/// Why there are no limits of a whole jail; the limits of a process are in force then.
pub fn cgroup(evidence: &Evidence) -> Check {
    let name = "limits";
    let of_kind = |kind: &str| {
        let place =
            |mount: &MountLine| mount.kind == kind && mount.place.starts_with("/sys/fs/cgroup");
        evidence.mounts().into_iter().filter(place).collect::<Vec<_>>()
    };
    let (first, second) = (of_kind("cgroup"), of_kind("cgroup2"));
    let unified = second.iter().any(|mount| mount.place == Path::new("/sys/fs/cgroup"));
    let plain = |cause| Check::of(name, advise(cause, evidence, &[]));
    match (first.is_empty(), second.is_empty()) {
        (true, true) => plain(&table::CGROUP_ABSENT),
        (false, true) => plain(&table::CGROUP_V1),
        _ if !unified => plain(&table::CGROUP_HYBRID),
        _ => unified_cgroup(name, evidence),
    }
}

fn unified_cgroup(name: &'static str, evidence: &Evidence) -> Check {
    let own = evidence.text("/proc/self/cgroup").unwrap_or_default();
    let own = own.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/").to_owned();
    let file = |file: &str| evidence.text(&format!("/sys/fs/cgroup{own}/{file}"));
    let controllers = file("cgroup.controllers").unwrap_or_default();
    let has = |controller: &str| controllers.split_whitespace().any(|one| one == controller);
    let uid = evidence.status("Uid").unwrap_or_default();
    let uid = uid.split_whitespace().next().unwrap_or("0").to_owned();
    if !(has("memory") && has("pids") && has("cpu")) && own.contains("/user@") {
        let value = if controllers.trim().is_empty() { "(none)" } else { controllers.trim() };
        return Check::of(name, advise(&table::CGROUP_CONTROLLERS, evidence, &[("value", value)]));
    }
    if evidence.exists(&format!("/run/user/{uid}/bus")) {
        return Check::of(name, advise(&table::CGROUP_UNDELEGATED, evidence, &[]));
    }
    let user = evidence.variable("USER").unwrap_or(uid);
    Check::of(name, advise(&table::CGROUP_NO_MANAGER, evidence, &[("user", &user)]))
}
