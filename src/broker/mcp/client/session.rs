//! One session with a server, and the calls in it.

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotificationParam, ClientCapabilities,
    ClientConfig, ClientRequest, Implementation, PaginatedRequestParams, RequestId, ServerResult,
};
use rmcp::service::{Peer, PeerRequestOptions, RunningService, ServiceError};
use rmcp::{ClientHandler, RoleClient};
use serde_json::{Map, Value};

use super::fault;
use super::http::Authorization;
use crate::mcp::pin::{LIST_TIMEOUT, MAX_PAGES, Offer};

/// This end of a session. It offers a server nothing: no sampling, no questions to anybody, no files.
#[derive(Debug, Clone, Copy)]
pub(super) struct Us;

impl ClientHandler for Us {
    fn get_info(&self) -> ClientConfig {
        let name = Implementation::new("turnjail", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), name)
    }
}

/// A session. Dropping it ends it.
pub(super) struct Session {
    service: RunningService<RoleClient, Us>,
}

/// Why a call gave no answer.
#[derive(Debug)]
pub(super) enum CallFault {
    /// The session is of no more use.
    Lost(String),
    /// The server answered something that is no answer to a call.
    Odd(&'static str),
}

impl Session {
    pub fn new(service: RunningService<RoleClient, Us>) -> Self {
        Self { service }
    }

    pub fn is_alive(&self) -> bool {
        !self.service.is_closed() && !self.service.is_transport_closed()
    }

    /// Calls a tool; the answer's kind is `result` or `error`. Dropping the future tells the server.
    pub async fn call(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
        authorization: Option<Authorization>,
    ) -> Result<(&'static str, Value), CallFault> {
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let mut request = CallToolRequest::new(params);
        if let Some(authorization) = authorization {
            request.extensions.insert(authorization);
        }
        let answered = self.request(ClientRequest::CallToolRequest(request)).await;
        match answered {
            Ok(ServerResult::CallToolResult(result)) => Ok(("result", to_json(&result)?)),
            Ok(_) => Err(CallFault::Odd("the answer is no tool's result")),
            Err(ServiceError::McpError(error)) => Ok(("error", to_json(&error)?)),
            Err(ServiceError::UnexpectedResponse) => {
                Err(CallFault::Odd("the answer is no tool's result"))
            }
            Err(error) => Err(CallFault::Lost(fault::of_request(&error))),
        }
    }

    async fn request(&self, request: ClientRequest) -> Result<ServerResult, ServiceError> {
        let peer = self.service.peer();
        let handle =
            peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await?;
        let mut abandoned = Abandoned { peer: peer.clone(), id: Some(handle.id.clone()) };
        let answered = handle.await_response().await;
        abandoned.id = None;
        answered
    }

    /// Every tool of the server, within bounds of time and number.
    pub async fn list_tools(&self) -> Result<Vec<Offer>, String> {
        let listed = tokio::time::timeout(LIST_TIMEOUT, self.list_pages()).await;
        listed.unwrap_or_else(|_| {
            Err(format!("does not list its tools in {} s", LIST_TIMEOUT.as_secs()))
        })
    }

    async fn list_pages(&self) -> Result<Vec<Offer>, String> {
        let mut offers = Vec::new();
        let mut cursor = None;
        for _ in 0..MAX_PAGES {
            let params = PaginatedRequestParams::default().with_cursor(cursor);
            let page = self.service.list_tools(Some(params)).await.map_err(|error| {
                format!("does not list its tools: {}", fault::of_request(&error))
            })?;
            offers.extend(page.tools.into_iter().map(|tool| Offer {
                name: tool.name.into_owned(),
                description: tool.description.unwrap_or_default().into_owned(),
                parameters: Map::clone(&tool.input_schema),
            }));
            cursor = page.next_cursor.filter(|cursor| !cursor.is_empty());
            if cursor.is_none() {
                return Ok(offers);
            }
        }
        Err(format!("has more than {MAX_PAGES} pages of tools"))
    }

    /// Ends the session in good order.
    pub async fn close(mut self) {
        let _ = self.service.close().await;
    }
}

fn to_json(answer: &impl serde::Serialize) -> Result<Value, CallFault> {
    serde_json::to_value(answer).map_err(|_| CallFault::Odd("the answer cannot be written as JSON"))
}

/// A request whose answer nobody waits for any more: the server is told so when this is dropped.
struct Abandoned {
    peer: Peer<RoleClient>,
    id: Option<RequestId>,
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        if let (Some(id), Ok(runtime)) = (self.id.take(), tokio::runtime::Handle::try_current()) {
            let peer = self.peer.clone();
            runtime.spawn(async move {
                let cancelled = CancelledNotificationParam::new(Some(id), None);
                let _ = peer.notify_cancelled(cancelled).await;
            });
        }
    }
}
