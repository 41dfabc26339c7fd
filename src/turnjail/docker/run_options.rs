//! The arguments of `run`: what a jail does as it is told, and the refusal of everything else.

use turnjail_driver::{ContainerSpec, Limits};

use super::failure::Failure;
use super::flags::{Flag, Typed, Until, parse};
use super::mount::{Mounts, check_tmpfs};
use super::size;

const KNOWN: &[Flag] = &[
    Flag::switch("rm"),
    Flag::switch("interactive").short('i'),
    Flag::switch("sig-proxy"),
    Flag::value("log-driver"),
    Flag::value("pull"),
    Flag::value("name"),
    Flag::value("network"),
    Flag::switch("read-only"),
    Flag::value("cap-drop"),
    Flag::value("security-opt"),
    Flag::value("user").short('u'),
    Flag::value("memory").short('m'),
    Flag::value("memory-swap"),
    Flag::value("cpus"),
    Flag::value("pids-limit"),
    Flag::value("ulimit"),
    Flag::value("tmpfs"),
    Flag::value("mount"),
    Flag::value("env").short('e'),
];

/// The longest that a turn can be: what bounds CPU time, since Docker has no limit of time.
const TIME_MS: u64 = 600_000;
const MIB: u64 = 1 << 20;

/// What to run.
#[derive(Debug, PartialEq)]
pub struct RunOptions {
    /// The specification, not yet checked as a whole.
    pub spec: ContainerSpec,
    /// Whether standard input is handed on.
    pub interactive: bool,
}

impl RunOptions {
    /// Reads what follows `run`. `ids` are those of this process, which a jail has; `name` is what to call
    /// one without a name.
    pub fn parse(arguments: &[String], ids: (u32, u32), name: &str) -> Result<Self, Failure> {
        let typed = parse(KNOWN, arguments, Until::FirstWord)?;
        check_words(&typed)?;
        let [image] = &typed.rest[..] else {
            return Err(match typed.rest.len() {
                0 => Failure::engine("\"docker run\" requires at least 1 argument: the image"),
                _ => Failure::engine(
                    "a jail runs the image's Entrypoint and Cmd: no command can follow the image",
                ),
            });
        };
        let mut mounts = Mounts::default();
        for value in typed.all("mount") {
            mounts.add(value).map_err(|why| invalid("mount", value, &why))?;
        }
        let missing = |path: &str| Failure::engine(format!("a jail needs a --mount at {path}"));
        Ok(Self {
            spec: ContainerSpec {
                name: typed.last("name").unwrap_or(name).to_owned(),
                image: image.clone(),
                run_dir: mounts.run.ok_or_else(|| missing("/broker"))?,
                workspace_dir: mounts.workspace.ok_or_else(|| missing("/workspace"))?,
                channel_dir: mounts.channel,
                uid: user(&typed, ids)?.0,
                gid: ids.1,
                limits: limits(&typed)?,
            },
            interactive: typed.on("interactive"),
        })
    }
}

/// Every value that must be one of a few words, each time that it is given.
fn check_words(typed: &Typed) -> Result<(), Failure> {
    if !typed.on("rm") {
        return Err(Failure::engine("turnjail keeps no stopped containers: use --rm"));
    }
    if !typed.on("read-only") {
        return Err(Failure::engine("the root of a jail is read-only: use --read-only"));
    }
    if typed.last("network").is_none() {
        return Err(Failure::engine("a jail has no network: use --network none"));
    }
    for (flag, value) in &typed.flags {
        let why = match *flag {
            "network" if value != "none" => "a jail has no network but none",
            "log-driver" if value != "none" => {
                "turnjail keeps no logs of what jails write: use none"
            }
            "pull" if value != "never" => "an image is never pulled by a run: use never",
            "cap-drop" if value.is_empty() => "it names no capability; a jail has none at all",
            "security-opt" if !is_no_new_privileges(value) => {
                "a jail has turnjail's own filters, and no_new_privs always"
            }
            "ulimit" if !is_ulimit(value) => "a jail may open 256 files: use nofile=256:256",
            "tmpfs" => match check_tmpfs(value) {
                Ok(()) => continue,
                Err(why) => return Err(invalid(flag, value, &why)),
            },
            "env" if value != "HOME=/tmp/home" => {
                "a jail has the image's environment and HOME=/tmp/home"
            }
            _ => continue,
        };
        return Err(invalid(flag, value, why));
    }
    Ok(())
}

fn is_no_new_privileges(value: &str) -> bool {
    matches!(value, "no-new-privileges" | "no-new-privileges:true" | "no-new-privileges=true")
}

fn is_ulimit(value: &str) -> bool {
    matches!(value, "nofile=256" | "nofile=256:256")
}

/// The ids that were asked for, which can only be this process's: a jail has one user.
fn user(typed: &Typed, ids: (u32, u32)) -> Result<(u32, u32), Failure> {
    for value in typed.all("user") {
        let (uid, gid) = value.split_once(':').unwrap_or((value, ""));
        let same = uid.parse() == Ok(ids.0) && (gid.is_empty() || gid.parse() == Ok(ids.1));
        if !same {
            let why = format!("a jail runs as the user who makes it, {}:{}", ids.0, ids.1);
            return Err(invalid("user", value, &why));
        }
    }
    Ok(ids)
}

/// Where a limit is not given a jail has its default, since it is never without.
fn limits(typed: &Typed) -> Result<Limits, Failure> {
    let mut limits = Limits { time_ms: TIME_MS, ..Limits::default() };
    if let Some(value) = typed.last("memory") {
        let bytes = size::bytes(value).ok_or_else(|| {
            invalid("memory", value, "invalid size: it is a number with b, k, m or g")
        })?;
        limits.memory_mb = u32::try_from(bytes / MIB)
            .map_err(|_| invalid("memory", value, "it is more than any host has"))?;
    }
    if let Some(value) = typed.last("memory-swap") {
        let memory = typed.last("memory").and_then(size::bytes);
        if memory.is_none() || size::bytes(value) != memory {
            let why = "a jail never swaps: give the same amount as --memory";
            return Err(invalid("memory-swap", value, why));
        }
    }
    if let Some(value) = typed.last("cpus") {
        limits.cpus =
            value.parse().map_err(|_| invalid("cpus", value, "failed to parse as a number"))?;
    }
    if let Some(value) = typed.last("pids-limit") {
        limits.pids =
            value.parse().map_err(|_| invalid("pids-limit", value, "it is a number from 8"))?;
    }
    limits.check().map_err(Failure::engine)?;
    Ok(limits)
}

fn invalid(flag: &str, value: &str, why: &str) -> Failure {
    Failure::engine(format!("invalid argument {value:?} for \"--{flag}\" flag: {why}"))
}

#[cfg(test)]
mod tests;
