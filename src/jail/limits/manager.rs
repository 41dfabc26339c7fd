//! A scope of the systemd user manager's for the warden: asked for over D-Bus, delegated to us.
//!
//! Never for the host process, which may be an embedder's and has its own place. The scope is gone when
//! the warden is.

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::Pid;
use tokio::net::UnixStream;
use zbus::Connection;
use zbus::connection::Builder;
use zbus::zvariant::{OwnedObjectPath, Value};

use super::cgroup::{self, Delegated};
use super::{Undelegated, own};

/// A manager that does not answer in this time is not waited for.
const WITHIN: Duration = Duration::from_secs(3);

/// How often it is looked whether the manager has moved the warden.
const LOOK: Duration = Duration::from_millis(2);

const SERVICE: &str = "org.freedesktop.systemd1";

/// A scope with the warden in it, whose keeper has this number.
pub(super) async fn scope(keeper: Pid) -> Result<Arc<Delegated>, Undelegated> {
    let made = tokio::time::timeout(WITHIN, make(keeper)).await;
    made.unwrap_or_else(|_| Err(Undelegated::not_ours("the systemd user manager does not answer")))
}

async fn make(keeper: Pid) -> Result<Arc<Delegated>, Undelegated> {
    let (connection, destination) = connect().await?;
    let name = unit_name();
    let processes = warden(keeper);
    start(&connection, destination, &name, &processes).await.map_err(|error| {
        Undelegated::not_ours(format!("the systemd user manager makes no scope: {error}"))
    })?;
    // The manager answers before it is done, and moves one process after the other.
    let mut group = PathBuf::new();
    for &process in &processes {
        loop {
            group = own::of_process(process)?;
            if group.ends_with(&name) {
                break;
            }
            tokio::time::sleep(LOOK).await;
        }
    }
    only(&group, &processes)?;
    let delegated = Delegated::adopt(&group, "the systemd user manager").map_err(|error| {
        Undelegated::not_ours(format!("the scope {} cannot be used: {error}", group.display()))
    })?;
    Ok(Arc::new(delegated))
}

/// The session's bus, else the manager's own socket, which needs no bus.
async fn connect() -> Result<(Connection, Option<&'static str>), Undelegated> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    // A service or a `su` session has no such variable; the directory is where it always is.
    let runtime = runtime.unwrap_or_else(|| {
        PathBuf::from(format!("/run/user/{}", rustix::process::geteuid().as_raw()))
    });
    let sockets = [("bus", Some(SERVICE)), ("systemd/private", None)];
    let mut why = format!("no systemd user manager at {}", runtime.display());
    for (socket, destination) in sockets {
        let Ok(stream) = UnixStream::connect(runtime.join(socket)).await else { continue };
        let builder = Builder::unix_stream(stream);
        // Whom the manager's own socket connects with is the manager: there are no names.
        let builder = if destination.is_none() { builder.p2p() } else { builder };
        match builder.build().await {
            Ok(connection) => return Ok((connection, destination)),
            Err(error) => why = format!("the systemd user manager does not talk: {error}"),
        }
    }
    Err(Undelegated::not_ours(why))
}

fn unit_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("turnjail-warden-{}-{number}.scope", std::process::id())
}

async fn start(
    connection: &Connection,
    destination: Option<&str>,
    name: &str,
    processes: &[Pid],
) -> zbus::Result<()> {
    let pids: Vec<u32> = processes.iter().map(|pid| pid.as_raw_nonzero().get() as u32).collect();
    let properties: Vec<(&str, Value<'_>)> = vec![
        ("Description", Value::from("Jails of turnjail")),
        ("PIDs", Value::from(pids)),
        ("Delegate", Value::from(true)),
        // Gone when it is empty, also when something in it was killed.
        ("CollectMode", Value::from("inactive-or-failed")),
    ];
    let others: Vec<(&str, Vec<(&str, Value<'_>)>)> = Vec::new();
    let path = "/org/freedesktop/systemd1";
    let interface = Some("org.freedesktop.systemd1.Manager");
    let body = (name, "fail", properties, others);
    let reply =
        connection.call_method(destination, path, interface, "StartTransientUnit", &body).await?;
    reply.body().deserialize::<OwnedObjectPath>().map(drop)
}

/// The keeper and its child, the warden proper.
fn warden(keeper: Pid) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let children =
        numbers.filter_map(Pid::from_raw).filter(|&pid| own::parent(pid) == Some(keeper));
    std::iter::once(keeper).chain(children).collect()
}

/// Nobody but the warden is in the scope: else it is not the one that was asked for.
fn only(group: &std::path::Path, expected: &[Pid]) -> Result<(), Undelegated> {
    use std::os::fd::AsFd as _;
    let expected: HashSet<Pid> = expected.iter().copied().collect();
    let there = cgroup::open_dir(rustix::fs::CWD, group)
        .and_then(|dir| cgroup::processes(dir.as_fd()))
        .map_err(|error| {
            Undelegated::not_ours(format!("the scope {} cannot be read: {error}", group.display()))
        })?;
    if there.iter().copied().collect::<HashSet<_>>() == expected {
        return Ok(());
    }
    Err(Undelegated::not_ours(format!(
        "the scope {} does not hold the warden alone",
        group.display()
    )))
}
