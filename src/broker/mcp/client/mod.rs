//! Servers that want a whole MCP client: handshake, sessions, event streams, child processes.

mod dial;
mod fault;
mod http;
mod pool;
mod session;
mod stdio;
mod wire;

pub(super) use dial::Dialer;
pub(super) use pool::Pool;

use rmcp::{RoleClient, service};

/// A message to a server.
type Outgoing = service::TxJsonRpcMessage<RoleClient>;
/// A message from a server.
type Incoming = service::RxJsonRpcMessage<RoleClient>;

/// Bytes of one message from a server: its answer of at most 1 MiB and what is around it.
const MAX_MESSAGE: usize = turnjail_protocol::limits::BROKER_ANSWER_BYTES + 64 * 1024;
