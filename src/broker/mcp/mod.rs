//! MCP servers: one declared tool at a time may be called, nothing else of the protocol reaches a guest.

mod json;
mod pin;
mod server;
mod settings;

pub(crate) use server::Server;
pub use settings::{McpScope, McpServer, McpTool, McpTransport};
