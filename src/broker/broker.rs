//! The broker of a runtime, and the broker of a turn.

use std::path::Path;

use turnjail_protocol::{McpSpec, ToolSpec};

use crate::error::{ListenError, SetupError};
use crate::settings::BrokerSettings;
use crate::turn::{CallSummary, TurnContext};

/// The broker of a runtime: policy checked once, upstream connections shared by all turns. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Broker {}

impl Broker {
    /// Checks every setting, asks MCP servers for the tools declared by name, and pins what they say.
    pub async fn start(settings: BrokerSettings) -> Result<Self, SetupError> {
        let _ = settings;
        unimplemented!()
    }

    /// The host tools as the worker is told about them.
    pub fn tool_specs(&self) -> Vec<ToolSpec> {
        unimplemented!()
    }

    /// The MCP servers and their tools as the worker is told about them.
    pub fn mcp_specs(&self) -> Vec<McpSpec> {
        unimplemented!()
    }

    /// Listens for one turn on a new socket of mode 0600 at `socket`, whose directory only the host's user
    /// may enter. Nothing may be there yet.
    pub async fn open(&self, turn: TurnContext, socket: &Path) -> Result<TurnBroker, ListenError> {
        let _ = (turn, socket);
        unimplemented!()
    }
}

/// The broker of one turn. Dropping it ends it like [`close`](Self::close), in the background.
#[derive(Debug)]
pub struct TurnBroker {}

impl TurnBroker {
    /// Ends it: calls in flight are cancelled, the socket is gone, and nothing of it runs when this returns.
    pub async fn close(self) -> CallSummary {
        unimplemented!()
    }
}
