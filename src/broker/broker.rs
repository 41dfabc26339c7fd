//! The broker of a runtime, and the broker of a turn.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::Instrument;
use turnjail_protocol::{McpSpec, ToolSpec};

use crate::error::{ListenError, SetupError};
use crate::handler::TurnState;
use crate::listener;
use crate::policy::Policy;
use crate::settings::BrokerSettings;
use crate::turn::{CallSummary, TurnContext};
use crate::upstream::Upstream;

/// What all turns share.
pub(crate) struct Shared {
    pub policy: Policy,
    pub upstream: Upstream,
}

/// The broker of a runtime: policy checked once, upstream connections shared by all turns. Cheap to clone.
#[derive(Clone)]
pub struct Broker {
    pub(crate) shared: Arc<Shared>,
}

impl Broker {
    /// Checks every setting, asks MCP servers for the tools declared by name, and pins what they say. Must
    /// be called within a tokio runtime, which the broker then lives in.
    ///
    /// # Errors
    /// A setting is not allowed, a file cannot be read, or an MCP server does not have what is declared.
    pub async fn start(settings: BrokerSettings) -> Result<Self, SetupError> {
        let mut policy = Policy::check(&settings)?;
        let upstream = Upstream::new(&settings, policy.needs_tls())?;
        for server in &mut policy.servers {
            server.pin(&upstream).await?;
        }
        Ok(Self { shared: Arc::new(Shared { policy, upstream }) })
    }

    /// The host tools as the worker is told about them.
    pub fn tool_specs(&self) -> Vec<ToolSpec> {
        self.shared.policy.tools.iter().map(|tool| tool.spec.clone()).collect()
    }

    /// The MCP servers and their tools as the worker is told about them.
    pub fn mcp_specs(&self) -> Vec<McpSpec> {
        self.shared.policy.servers.iter().map(crate::mcp::Server::spec).collect()
    }

    /// Listens for one turn on a new socket of mode 0600 at `socket`, in a directory that only the host's
    /// user may enter. Nothing may be there yet. What is logged of the turn stands in the `tracing` span that
    /// this is called in.
    ///
    /// # Errors
    /// The socket cannot be made: the path is taken or too long, or descriptors or space have run out.
    #[expect(clippy::unused_async, reason = "it belongs into a runtime, and may come to wait")]
    pub async fn open(&self, turn: TurnContext, socket: &Path) -> Result<TurnBroker, ListenError> {
        // The turn's own token is the embedder's; this one ends with this broker as well.
        let cancel = turn.cancel.child_token();
        let context = TurnContext { cancel: cancel.clone(), ..turn };
        let state = Arc::new(TurnState::new(Arc::clone(&self.shared), context));
        let bound = listener::bind(socket)?;
        let stop = CancellationToken::new();
        let serving = listener::serve(bound, Arc::clone(&state), stop.clone());
        let serving = tokio::spawn(serving.in_current_span());
        Ok(TurnBroker { state, serving, end: (cancel.drop_guard(), stop.drop_guard()) })
    }
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broker")
            .field("tools", &self.shared.policy.routes.tools)
            .field("mcp", &self.shared.policy.routes.servers)
            .finish_non_exhaustive()
    }
}

/// The broker of one turn. Dropping it ends it like [`close`](Self::close), in the background.
pub struct TurnBroker {
    state: Arc<TurnState>,
    serving: JoinHandle<()>,
    end: (DropGuard, DropGuard),
}

impl TurnBroker {
    /// Ends it: later calls are refused, those in flight are cancelled, the socket is gone, and nothing of it
    /// runs when this returns.
    pub async fn close(self) -> CallSummary {
        drop(self.end);
        // The task ends by itself; that it was cancelled with the runtime is as good.
        let _ = self.serving.await;
        self.state.ledger.summary()
    }

    /// What the calls have come to so far.
    pub fn summary(&self) -> CallSummary {
        self.state.ledger.summary()
    }
}

impl fmt::Debug for TurnBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TurnBroker")
            .field("calls", &self.state.ledger.summary())
            .finish_non_exhaustive()
    }
}
