//! How a session with a server is begun.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rmcp::service::RunningService;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::common::client_side_sse::ExponentialBackoff;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{RoleClient, ServiceExt};

use super::http::{Authorization, SessionClient};
use super::session::{Session, Us};
use super::stdio::ChildTransport;
use super::{MAX_MESSAGE, fault};
use crate::upstream::{Endpoint, Upstream};

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(30);

/// How often an answer that broke off is gone on with.
const RESUMES: usize = 3;

/// A server's address.
pub(in crate::mcp) enum Dialer {
    /// Streamable HTTP.
    Http { endpoint: Endpoint, retries: u32 },
    /// A program.
    Stdio { argv: Vec<String>, env: BTreeMap<String, String> },
}

impl Dialer {
    /// Begins a session: connects, or starts the program, and shakes hands.
    pub(super) async fn dial(
        &self,
        upstream: &Upstream,
        authorization: Option<Authorization>,
    ) -> Result<Session, String> {
        let begun = tokio::time::timeout(HANDSHAKE, self.shake_hands(upstream, authorization));
        let service = begun.await.map_err(|_| "does not answer the handshake in 30 s")??;
        Ok(Session::new(service))
    }

    async fn shake_hands(
        &self,
        upstream: &Upstream,
        authorization: Option<Authorization>,
    ) -> Result<RunningService<RoleClient, Us>, String> {
        match self {
            Self::Http { endpoint, retries } => {
                let client = SessionClient {
                    upstream: upstream.clone(),
                    endpoint: endpoint.clone(),
                    retries: *retries,
                    latest: Arc::new(Mutex::new(authorization)),
                };
                let mut config =
                    StreamableHttpClientTransportConfig::with_uri(endpoint.uri().to_string());
                let mut resume = ExponentialBackoff::default();
                resume.max_times = Some(RESUMES);
                config.retry_config = Arc::new(resume);
                config.max_sse_event_size = MAX_MESSAGE;
                config.max_json_response_size = MAX_MESSAGE;
                let transport = StreamableHttpClientTransport::with_client(client, config);
                Us.serve(transport).await.map_err(|error| fault::of_handshake(&error))
            }
            Self::Stdio { argv, env } => {
                let transport = ChildTransport::start(argv, env)
                    .map_err(|error| format!("cannot be started ({}): {error}", argv[0]))?;
                Us.serve(transport).await.map_err(|error| fault::of_handshake(&error))
            }
        }
    }
}
