//! What a worker in a jail is, as the kernel says: looked at from outside while it waits for its turn,
//! since under the sealed profile it could not look at itself.

use std::collections::BTreeMap;
use std::fs;

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use serde::Serialize;

use super::{Check, State};
use crate::StartError;
use crate::client::Client;
use crate::pidfd;
use crate::plan::JailSpec;

/// A worker in its jail.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Inside {
    /// Its user and group: real, effective, saved, file system.
    pub ids: BTreeMap<&'static str, String>,
    /// Its number in each pid namespace, the host's first.
    pub process: String,
    /// The capability sets, hexadecimal.
    pub capabilities: BTreeMap<&'static str, String>,
    /// Whether it can gain privileges by executing something: 1 means never.
    pub no_new_privs: String,
    /// 2 is a filter.
    pub seccomp: String,
    /// How many filters.
    pub seccomp_filters: String,
    /// The namespaces that are its own, not this process's.
    pub own_namespaces: Vec<&'static str>,
    /// The namespaces that it shares with this process.
    pub shared_namespaces: Vec<&'static str>,
    /// What is mounted: place, flags, type.
    pub mounts: Vec<String>,
    /// Its network interfaces.
    pub interfaces: Vec<String>,
    /// Its open descriptors and what they are; none when they were not to be seen.
    pub descriptors: Option<Vec<String>>,
    /// Limits in force: name and value.
    pub limits: Vec<(String, String)>,
    /// Its cgroups, as this process sees them.
    pub cgroups: Vec<String>,
}

const KINDS: [&str; 8] = ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts", "time"];
const CAPABILITIES: [&str; 5] = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];

/// How often a worker is looked at until its descriptors are seen: with its first act it hides them.
const LOOKS: u32 = 10;

/// Starts a worker that waits for its input, looks at it, and ends it.
pub(super) async fn look(client: &Client, spec: &JailSpec) -> Result<Inside, StartError> {
    let mut inside = look_once(client, spec).await?;
    for _ in 1..LOOKS {
        if inside.descriptors.is_some() {
            break;
        }
        inside = look_once(client, spec).await?;
    }
    Ok(inside)
}

async fn look_once(client: &Client, spec: &JailSpec) -> Result<Inside, StartError> {
    let pipe =
        || pipe_with(PipeFlags::CLOEXEC).map_err(|errno| StartError::host("make a pipe", errno));
    let ((input, _held), (_out, output), (_err, errors)) = (pipe()?, pipe()?, pipe()?);
    let mut jail = client.jail(spec.plan()?, [input, output, errors]).await?;
    jail.ready().await?;
    let number = pidfd::number(jail.pidfd()).and_then(|number| number.ok_or(Errno::SRCH));
    let seen = number.map(seen);
    jail.kill();
    jail.ended().await?;
    seen.map_err(|errno| StartError::host("look at a worker in a jail through /proc", errno))
}

fn seen(pid: i32) -> Inside {
    // Before everything else, while they can be seen.
    let links = fs::read_dir(format!("/proc/{pid}/fd"));
    let descriptors = links.ok().map(|links| {
        let link = |entry: fs::DirEntry| {
            let to = fs::read_link(entry.path()).unwrap_or_default();
            format!("{} {}", entry.file_name().to_string_lossy(), to.display())
        };
        links.flatten().map(link).collect()
    });
    let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let status = read("status");
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(|value| value.split_whitespace().collect::<Vec<_>>().join(" ")).unwrap_or_default()
    };
    let own = |kind: &&&str| {
        let of = |process: &str| fs::read_link(format!("/proc/{process}/ns/{kind}")).ok();
        of(&pid.to_string()).is_some() && of(&pid.to_string()) != of("self")
    };
    let limit = |line: &str| {
        let (name, values) = line.split_at_checked(26)?;
        let value = values.split_whitespace().next()?;
        (value != "unlimited").then(|| (name.trim().to_owned(), value.to_owned()))
    };
    let lines = |text: String, take: fn(&str) -> Option<String>| {
        text.lines().filter_map(take).collect::<Vec<_>>()
    };
    Inside {
        ids: ["Uid", "Gid", "Groups"].map(|name| (name, field(name))).into(),
        process: field("NSpid"),
        capabilities: CAPABILITIES.map(|name| (name, field(name))).into(),
        no_new_privs: field("NoNewPrivs"),
        seccomp: field("Seccomp"),
        seccomp_filters: field("Seccomp_filters"),
        own_namespaces: KINDS.iter().filter(own).copied().collect(),
        shared_namespaces: KINDS.iter().filter(|kind| !own(kind)).copied().collect(),
        mounts: lines(read("mountinfo"), |line| {
            let (before, after) = line.split_once(" - ")?;
            let fields: Vec<&str> = before.split(' ').collect();
            let kind = after.split(' ').next()?;
            Some(format!("{} {} {kind}", fields.get(4)?, fields.get(5)?))
        }),
        interfaces: lines(read("net/dev"), |line| {
            line.split_once(':').map(|(name, _)| name.trim().to_owned())
        }),
        descriptors,
        limits: read("limits").lines().skip(1).filter_map(limit).collect(),
        cgroups: lines(read("cgroup"), |line| Some(line.to_owned())),
    }
}

impl Inside {
    /// Whether it is nobody special, with walls of its own.
    pub(super) fn check(&self) -> Check {
        let mut wrong = Vec::new();
        let empty = |set: &String| set.chars().all(|digit| digit == '0') && !set.is_empty();
        if !self.capabilities.values().all(empty) {
            wrong.push("it has capabilities");
        }
        if self.no_new_privs != "1" {
            wrong.push("it may gain privileges");
        }
        if self.seccomp != "2" {
            wrong.push("it has no seccomp filter");
        }
        if self.shared_namespaces.iter().any(|kind| *kind != "time") {
            wrong.push("it shares a namespace with the host");
        }
        if self.descriptors.as_ref().is_some_and(|descriptors| descriptors.len() > 3) {
            wrong.push("it has descriptors of the host");
        }
        if wrong.is_empty() {
            let namespaces = self.own_namespaces.join(", ");
            let descriptors = match &self.descriptors {
                Some(descriptors) => format!("{} descriptors", descriptors.len()),
                None => "descriptors that it hid in time".to_owned(),
            };
            let evidence = format!(
                "a worker has no capability, no_new_privs, {} seccomp filter(s), {} mounts, {descriptors}, and its own {namespaces} namespaces",
                self.seccomp_filters,
                self.mounts.len(),
            );
            return Check::ok("inside", evidence);
        }
        Check {
            code: "breach",
            state: State::Failed,
            consequence: Some("no turn can run".to_owned()),
            remedy: Some(
                "do not use this host for turns; report the output of turnjail doctor --json"
                    .to_owned(),
            ),
            ..Check::ok("inside", wrong.join("; "))
        }
    }
}
