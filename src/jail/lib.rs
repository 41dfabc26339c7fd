//! The namespace driver: runs a turn's worker in a jail that an ordinary user can make.
//!
//! A jail is a full set of namespaces, a read-only root, a few mounts, no capability, a seccomp filter
//! and a landlock ruleset around one worker. The [warden](turnjail_warden) makes them; this crate is
//! the host's side: it says what is wanted ([`plan`]), talks to the warden ([`client`]), feeds and
//! reads the worker ([`driver`]), and turns failures into causes and remedies ([`stage`],
//! [`causes`]).
//!
//! It never runs a worker with less isolation than its policies ask for.
#![forbid(unsafe_code)]

pub mod canary;
pub mod causes;
pub mod client;
mod connection;
pub mod doctor;
mod driver;
mod error;
mod groups;
mod interpreter;
mod isolation;
mod kernel_log;
mod limits;
mod output;
mod pidfd;
mod plan;
mod process;
mod proof;
mod receipt;
mod record;
mod run;
pub mod stage;
mod streams;

pub use driver::{DEFAULT_BOUNDS, JailDriver, JailOptions, Policy};
pub use error::StartError;
pub use isolation::{ImagePolicies, ImageSettings, Isolation};
pub use limits::{Limiter, Undelegated};
pub use plan::{JailSpec, Mount};
pub use run::{Ended, run};
pub use turnjail_warden::canary::Attempt;
pub use turnjail_warden::seccomp::Profile;
pub use turnjail_warden::wire::{Bounds, Exit, Facts, Status, Target};
