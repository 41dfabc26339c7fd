//! Watching a running jail for what the kernel does not limit: memory where there is no cgroup, and what
//! its writable directories hold.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use tokio::task::spawn_blocking;
use turnjail_driver::ExitReason;
use turnjail_warden::seccomp::Profile;
use turnjail_warden::step::Step;
use turnjail_warden::wire::{Plan, Status, Way};

use super::memory::Jail;
use super::pace::{Looked, Pace};
use crate::client::Client;
use crate::plan::{JailSpec, MIB};
use crate::{StartError, canary};

static MEMORY: Pace = Pace::new(Duration::from_millis(50));
static HOLDINGS: Pace = Pace::new(Duration::from_millis(200));

/// What is watched of one jail.
pub(crate) struct Watch<'a> {
    client: &'a Client,
    spec: &'a JailSpec,
    plan: &'a Plan,
    memory: Result<Option<Jail>, Errno>,
    seen: Arc<AtomicU64>,
}

impl<'a> Watch<'a> {
    /// To be made when the jail's program runs.
    pub(crate) fn new(
        client: &'a Client,
        spec: &'a JailSpec,
        plan: &'a Plan,
        pidfd: BorrowedFd<'_>,
    ) -> Self {
        // A sealed program is one process, whose address space the kernel bounds.
        let general = spec.isolation.profile == Profile::General;
        let watched = general && !client.limiter().has_cgroups();
        let seen = Arc::default();
        let memory = if watched { Jail::of(pidfd, Arc::clone(&seen)) } else { Ok(None) };
        Self { client, spec, plan, memory, seen }
    }

    /// The most memory that it has seen the jail take, in bytes; 0 where memory is not watched.
    pub(crate) fn seen(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.seen)
    }

    /// Gives back the limit that the jail is over, or that it cannot be watched. Never ends while it stays
    /// within all.
    pub(crate) async fn over(self) -> ExitReason {
        let Self { client, spec, plan, memory, .. } = self;
        let memory = match memory {
            Ok(memory) => memory,
            Err(error) => {
                tracing::error!(%error, "a jail's memory cannot be watched, so the jail is ended");
                return ExitReason::Host;
            }
        };
        let limit = u64::from(spec.limits.memory_mb) * MIB;
        tokio::select! {
            () = grow(memory, limit) => ExitReason::Memory,
            () = holdings(client, spec, plan) => ExitReason::Disk,
        }
    }
}

/// Until the jail takes more memory than `limit` bytes.
async fn grow(jail: Option<Jail>, limit: u64) {
    let Some(mut jail) = jail else { return std::future::pending().await };
    let looked = MEMORY.join();
    loop {
        tokio::time::sleep(looked.interval()).await;
        // A hostile process can make the kernel slow to answer.
        let look = move || {
            let begun = Instant::now();
            (jail.is_over(limit), jail, begun.elapsed())
        };
        let Ok((over, same, cost)) = spawn_blocking(look).await else { return };
        looked.took(cost);
        if over {
            return;
        }
        jail = same;
    }
}

/// Until a writable directory holds more than it may.
async fn holdings(client: &Client, spec: &JailSpec, plan: &Plan) {
    let writable = spec.mounts.iter().filter(|mount| !mount.target.read_only());
    let places: Vec<PathBuf> = writable.map(|mount| mount.source.clone()).collect();
    let Some(bounds) = plan.bounds.filter(|_| !places.is_empty()) else {
        return std::future::pending().await;
    };
    let looked = HOLDINGS.join();
    loop {
        wait(&looked, &places, bounds.reserve).await;
        let begun = Instant::now();
        match look(client, plan).await {
            Err(error) if is_over(&error) => return,
            // A look that cannot be made says nothing; the jail's own end will, or the next look.
            Err(error) => tracing::debug!(%error, "a workspace cannot be measured"),
            Ok(()) => {}
        }
        looked.took(begun.elapsed());
    }
}

/// Waits for the next look; shorter when the file system runs full, which costs nothing to see.
async fn wait(looked: &Looked<'_>, places: &[PathBuf], reserve: u64) {
    let until = Instant::now() + looked.interval();
    while Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(200).min(looked.interval())).await;
        let places = places.to_vec();
        let full = move || reserve > 0 && places.iter().any(|place| free(place) <= reserve);
        if spawn_blocking(full).await.unwrap_or(false) {
            return;
        }
    }
}

fn free(place: &PathBuf) -> u64 {
    rustix::fs::statvfs(place).map_or(u64::MAX, |space| space.f_bavail * space.f_frsize)
}

/// Counts what a jail's writable directories hold, in another jail that does nothing else; an error when
/// that is more than they may, or cannot be found out.
pub(crate) async fn look(client: &Client, plan: &Plan) -> Result<(), StartError> {
    let plan = Plan {
        look_only: true,
        profile: Profile::Sealed,
        loopback: false,
        attempt: None,
        way: Way::Direct,
        landlock: false,
        // Not under the limits of what it watches.
        group: None,
        ..plan.clone()
    };
    let mut jail = client.jail(plan, canary::nothing()?).await?;
    jail.ready().await?;
    match jail.ended().await?.status {
        Status::Code(0) => Ok(()),
        // Killed before it was done: nothing is known.
        _ => Err(StartError::WardenKilled),
    }
}

/// Whether this is the verdict of a look.
pub(crate) fn is_over(error: &StartError) -> bool {
    matches!(error, StartError::Step { failure, .. } if failure.step == Step::Holdings)
}
