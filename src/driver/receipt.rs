//! The record of one run: what was asked, what was in force, how it ended.

use serde::Serialize;

/// How a worker's run ended. One enum for every driver, log and metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ExitReason {
    /// Exit code 0 and a valid reply.
    Ok,
    /// The worker ended by itself with another code, or its reply was not valid.
    WorkerFailed,
    /// The turn's time was used up.
    Timeout,
    /// Somebody stopped the turn, or its future was dropped.
    Cancelled,
    /// Over the memory limit.
    Memory,
    /// Over the CPU time limit.
    Cpu,
    /// Over a limit of the workspace or of the file system.
    Disk,
    /// Wrote more to stdout or stderr than is read.
    Output,
    /// Killed by a seccomp filter.
    Filter,
    /// The host failed (the sealed place could not be made, or the driver's helper died).
    Host,
}

impl ExitReason {
    /// The word used in logs, JSON and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::WorkerFailed => "worker_failed",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::Memory => "memory",
            Self::Cpu => "cpu",
            Self::Disk => "disk",
            Self::Output => "output",
            Self::Filter => "filter",
            Self::Host => "host",
        }
    }
}

impl std::fmt::Display for ExitReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether a wall around the worker stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WallState {
    /// In force as designed.
    Enforced,
    /// In force with something lost; the detail says what.
    Degraded,
    /// Not there.
    Absent,
}

/// One layer of isolation and the mechanism that makes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Wall {
    /// What it separates, for example `network`.
    pub name: &'static str,
    /// Whether it stands.
    pub state: WallState,
    /// How, for example `network namespace, no interfaces but a down lo`.
    pub by: String,
}

/// One limit: what was asked, and whether and by what it is enforced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Limit {
    /// For example `memory`.
    pub name: &'static str,
    /// With its unit, for example `512 MiB`.
    pub asked: String,
    /// The mechanism that enforces it, or none: then it is not enforced.
    pub by: Option<String>,
}

/// Where the time of a run went, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Timing {
    /// From the request to the driver until the worker's program was executed.
    pub start_us: u64,
    /// From then until nothing of it was left.
    pub run_us: u64,
    /// Whether the sealed place had been prepared before the request.
    pub prepared: bool,
}

/// What a run used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// User and system CPU time in microseconds, when known.
    pub cpu_us: Option<u64>,
    /// Peak memory in bytes, when known: of the whole jail where a cgroup counts it, else at least that of
    /// its largest process.
    pub peak_memory_bytes: Option<u64>,
    /// How often a new process or thread was refused for the limit of processes, when known.
    pub refused_forks: Option<u64>,
}

/// The record of one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Receipt {
    /// [`ContainerDriver::name`](crate::ContainerDriver::name).
    pub driver: &'static str,
    /// The image as asked for.
    pub image: String,
    /// The digest it stood for, `sha256:...`, when known.
    pub image_digest: Option<String>,
    /// The isolation profile, for example `sealed`.
    pub profile: Option<&'static str>,
    /// Whether it had a loopback of its own in its network namespace, when known.
    pub loopback: Option<bool>,
    /// Every layer of isolation, in force or not.
    pub walls: Vec<Wall>,
    /// Every limit asked for.
    pub limits: Vec<Limit>,
    /// How it ended.
    pub exit: ExitReason,
    /// Where the time went.
    pub timing: Timing,
    /// What it used.
    pub usage: Usage,
}
