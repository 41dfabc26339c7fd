//! What a driver is asked to run.

use std::path::PathBuf;

/// Limits of one run. The defaults are those of the TypeScript system.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Memory in MiB, at least 64 (default 512).
    pub memory_mb: u32,
    /// CPUs, over 0 (default 1).
    pub cpus: f64,
    /// Processes, at least 8 (default 64).
    pub pids: u32,
    /// Wall time in milliseconds the turn may take; what bounds CPU time where no CPU share can be set.
    pub time_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory_mb: 512, cpus: 1.0, pids: 64, time_ms: 120_000 }
    }
}

/// One run: which image, which directories, which limits.
#[derive(Debug, Clone, PartialEq)]
pub struct ContainerSpec {
    /// A unique name, `roundtable-sandbox-<16 hex>-<8 hex>`.
    pub name: String,
    /// The image's reference.
    pub image: String,
    /// The turn's private directory holding `broker.sock`, seen read-only at `/broker`.
    pub run_dir: PathBuf,
    /// Seen read-write at `/workspace`.
    pub workspace_dir: PathBuf,
    /// Seen read-write at `/channel`, for shared workspaces.
    pub channel_dir: Option<PathBuf>,
    /// The worker's user id: the host's own, never 0.
    pub uid: u32,
    /// The worker's group id: the host's own, never 0.
    pub gid: u32,
    /// Limits of the run.
    pub limits: Limits,
}

/// Why a specification is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SpecError(pub String);
