//! The broker: the capability boundary of a turn.
//!
//! A worker in its jail has one way out, a Unix socket with an HTTP server on it: this one, one per turn.
//! The host, not the guest, supplies channel, speaker, model, URL and credentials; whoever speaks to the
//! socket only ever gets what the operator allowed.
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
