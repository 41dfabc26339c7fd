//! The Docker driver: a turn's worker in a container of Docker or podman.
//!
//! It drives the engine's own command line client, for which no library has to match the engine's
//! version, and needs nothing of the host but that program and leave to use it. Leave to use Docker
//! amounts to root on the host: where that matters, the namespace driver is the better choice.
#![forbid(unsafe_code)]
#![allow(
    clippy::unnecessary_debug_formatting,
    reason = "names of files are bytes from outside: control characters are shown escaped"
)]

mod arguments;
mod attend;
mod client;
mod driver;
mod engine;
mod fault;
mod image;
mod options;
mod receipt;
mod remove;

pub use arguments::run_arguments;
pub use driver::{DockerDriver, NAME};
pub use engine::Kind;
pub use options::DockerOptions;
