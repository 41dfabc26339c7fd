//! MCP servers: one declared tool at a time may be called, nothing else of the protocol reaches a guest.

#[cfg(feature = "mcp-client")]
mod client;
mod json;
mod pin;
mod server;
mod settings;

pub(crate) use server::Server;
pub use settings::{McpScope, McpServer, McpTool, McpTransport};
