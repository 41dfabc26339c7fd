//! The extension point of turnjail: what runs a worker for one turn.
//!
//! A [`ContainerDriver`] takes a [`ContainerSpec`] (which image, which directories, which limits) and
//! the turn's JSON, runs the image's worker in a sealed place, and answers with the worker's reply
//! and a [`Receipt`] of what was in force. This crate knows neither the runtime that calls a driver
//! nor any particular driver.
#![forbid(unsafe_code)]
#![allow(
    clippy::unnecessary_debug_formatting,
    reason = "names of files are bytes from outside: control characters are shown escaped"
)]

#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
pub mod image;
mod receipt;
mod spec;

use std::path::Path;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;
use turnjail_protocol::Reply;

pub use error::DriverError;
pub use receipt::{ExitReason, Limit, Receipt, Timing, Usage, Wall, WallState};
pub use spec::{ContainerSpec, Limits, SpecError};

/// What a finished worker left: its reply and the record of how it ran.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The worker's answer, parsed and within the protocol's limits. `ok` may be false.
    pub reply: Reply,
    /// What was asked, what was in force and what was used.
    pub receipt: Receipt,
}

/// What a driver can say about the protocol version of an image
/// (label `roundtable.sandbox.protocol`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ImageProtocol {
    /// The image carries a label with this version (at least 1).
    Version(u32),
    /// The image has no label, or one that is no positive integer: an older worker.
    Unlabelled,
    /// This driver cannot tell. Options that need protocol 2 then refuse to start.
    Unknown,
}

/// Told when the worker has been started, for progress; never called with contents.
pub trait Progress: Send + Sync {
    /// The sealed place exists and the worker's program is running in it.
    fn started(&self) {}

    /// The run is over and this is its record, whatever came of it: a driver that can tell calls it
    /// once for every run that it started, also where it then answers [`DriverError::Cancelled`],
    /// which carries no record.
    fn ended(&self, receipt: &Receipt) {
        let _ = receipt;
    }
}

/// Progress that nobody looks at.
impl Progress for () {}

/// Runs a worker for a turn.
///
/// Implementations must be cancellation safe: when the future returned by [`run`](Self::run) is
/// dropped, or `cancel` fires, the worker and everything it started are killed, and the clean-up goes
/// on by itself.
#[async_trait]
pub trait ContainerDriver: Send + Sync + 'static {
    /// A short name for logs and receipts, such as `jail` or `docker`.
    fn name(&self) -> &'static str;

    /// Runs the worker of `spec.image`, writes `turn` (the turn's JSON, at most 256 KiB) to its
    /// standard input, and returns its reply once nothing of it is left running.
    ///
    /// Output is bounded: 2 MiB of stdout and 128 KiB of stderr; a worker that writes more is killed.
    async fn run(
        &self,
        spec: &ContainerSpec,
        turn: &[u8],
        cancel: &CancellationToken,
        progress: &dyn Progress,
    ) -> Result<Outcome, DriverError>;

    /// The protocol version that the image's label names. The default says that it cannot tell.
    async fn image_protocol(&self, image: &str) -> Result<ImageProtocol, DriverError> {
        let _ = image;
        Ok(ImageProtocol::Unknown)
    }

    /// Checks before the first turn that this driver can run `image` here: the image exists, has an
    /// entry point and the right architecture. Never pulls anything.
    async fn verify(&self, image: &str) -> Result<(), DriverError> {
        let _ = image;
        Ok(())
    }

    /// Removes what the runs of a host that died have left, such as containers or registry entries.
    /// Called at start-up, while no other host uses `run_root`: every run whose `run_dir` lies in it
    /// is left over; others are not to be touched. The default is for drivers of which nothing
    /// outlives the host.
    async fn clear_leftovers(&self, run_root: &Path) -> Result<(), DriverError> {
        let _ = run_root;
        Ok(())
    }
}
