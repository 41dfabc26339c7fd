//! MCP servers: one declared tool at a time may be called, nothing else of the protocol reaches a guest.

mod settings;

pub use settings::{McpScope, McpServer, McpTool, McpTransport};
