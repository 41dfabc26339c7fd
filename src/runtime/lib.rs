//! The runtime: admission, cancellation, queueing and reset of turns; each turn owns its resources.
//!
//! A [`SandboxRuntime`] takes guests' messages ([`TurnRequest`]), has a
//! [`ContainerDriver`](turnjail_driver::ContainerDriver) run a worker for each in a sealed place, and
//! gives the worker's reply. Credentials, tools and identities stay on the host's side of a
//! [broker](turnjail_broker).
//!
//! The host never follows, opens or parses anything below a workspace.
#![forbid(unsafe_code)]
#![deny(missing_docs)]
#![allow(
    clippy::unnecessary_debug_formatting,
    reason = "names of files are bytes from outside: control characters are shown escaped"
)]

mod admission;
mod audit;
mod check;
mod error;
mod layout;
mod lock;
mod options;
mod preflight;
mod queue;
mod receipt;
mod record;
mod request;
mod roots;
mod run_dir;
mod runtime;
mod settings;
mod skills;
mod start;
mod turn;
mod verify;
mod workspaces;

pub use audit::{AuditLog, AuditRecord, AuditSink};
pub use error::{SetupError, TurnError};
pub use layout::{
    TurnDirectories, channel_state, channel_workspace, guild_workspace, turn_directories,
};
pub use options::{DEFAULT_PROMPT, SandboxOptions, WorkspaceMode};
pub use receipt::{TurnReceipt, TurnResult};
pub use request::{Speaker, TurnRequest};
pub use runtime::{Load, PendingTurn, SandboxRuntime};
pub use turnjail_broker::{Event, EventKind, EventReceiver, EventSender, event_channel};
pub use workspaces::{WorkspaceInfo, WorkspaceSize, Workspaces};
