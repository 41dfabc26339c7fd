//! The broker: the capability boundary of a turn.
//!
//! A worker in its jail has one way out, a Unix socket with an HTTP server on it: this one, one per turn.
//! The host, not the guest, supplies channel, speaker, model, URL and credentials; whoever speaks to the
//! socket only ever gets what the operator allowed.
//!
//! # Programs on the host
//!
//! Command tools, credential commands and MCP servers over standard streams run as the host's user, outside
//! any jail. Each leads its own process group, which is killed when its call or session ends, when that is
//! dropped, and when the host's runtime shuts down. Two things are beyond this library:
//!
//! - When the host itself is killed (`SIGKILL`, out of memory) nothing is left to kill them. An MCP server
//!   sees the end of its standard input, upon which the protocol asks it to end. A command has read the end
//!   of its input already; it goes on until it writes to an output that nobody reads, or ends by itself. A
//!   service manager that ends the whole control group (systemd does, with its default `KillMode`) takes
//!   them along; elsewhere, give programs a bound of their own, such as `timeout 60 program`.
//! - Every descriptor that this library opens is closed in a child. One that the host has inherited, or has
//!   opened without close-on-exec, is not: a host marks those once at its start, with
//!   `close_range(3, ~0, CLOSE_RANGE_CLOEXEC)`.
//!
//! # Logs
//!
//! The broker logs to `tracing` under `turnjail_broker`, without contents or credentials, in the span that
//! [`Broker::open`] is called in. The libraries below log under their own names and with what they send and
//! receive; a host that keeps its log must let none but the `turnjail` targets through.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod broker;
mod call;
mod connection;
mod credential;
mod error;
mod events;
mod file;
mod handler;
mod head;
mod ledger;
mod listener;
mod mcp;
mod model;
mod policy;
mod process;
mod reflect;
mod rules;
mod schema;
mod secrets;
mod settings;
mod tools;
mod turn;
mod upstream;
mod validate;

pub use broker::{Broker, TurnBroker};
pub use credential::{Credential, CredentialError, CredentialRequest, CredentialSource, Secret};
pub use error::{ListenError, SetupError};
pub use events::{
    CallOutcome, CallRoute, Event, EventKind, EventReceiver, EventSender, event_channel,
};
pub use file::read_file;
pub use mcp::{McpScope, McpServer, McpTool, McpTransport};
pub use settings::{BrokerSettings, CredentialHeader, OutputLimitField};
pub use tools::{
    CallbackTarget, CallbackTool, CommandTool, HostTool, Tool, ToolContext, ToolError,
};
pub use turn::{CallRecord, CallSummary, Principal, TokenUsage, TurnContext};

#[cfg(test)]
#[path = "tests/support/wire.rs"]
mod tests_support;
#[cfg(test)]
mod vectors;
