//! What a server did wrong, in words of our own. What a server sends may hold the credential it was sent, so
//! no text of it enters an error or a log: its kind and its numbers say enough.

use std::io;

use rmcp::service::{ClientInitializeError, ServiceError};
use rmcp::transport::DynamicTransportError;
use rmcp::transport::streamable_http_client::StreamableHttpError;

use crate::upstream::UpstreamError;

/// Why a handshake failed; it completes a sentence that begins with the server's name.
pub(super) fn of_handshake(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::JsonRpcError(error) => {
            format!("refuses the handshake with error {}", error.code.0)
        }
        ClientInitializeError::TransportError { error, .. } => {
            format!("cannot be reached: {}", of_transport(error))
        }
        ClientInitializeError::ConnectionClosed(_) => {
            "ends the connection during the handshake".to_owned()
        }
        ClientInitializeError::NoCompatibleProtocolVersion { .. } => {
            "speaks no version of MCP that is known here".to_owned()
        }
        ClientInitializeError::Cancelled => "was given up during the handshake".to_owned(),
        _ => "answers the handshake with something else".to_owned(),
    }
}

/// Why a request in a session failed.
pub(super) fn of_request(error: &ServiceError) -> String {
    match error {
        ServiceError::McpError(error) => format!("error {}", error.code.0),
        ServiceError::TransportSend(error) => of_transport(error),
        ServiceError::TransportClosed => "the connection has ended".to_owned(),
        ServiceError::UnexpectedResponse => "the answer is of another kind".to_owned(),
        ServiceError::Cancelled { .. } => "the request was cancelled".to_owned(),
        ServiceError::Timeout { .. } => "no answer in time".to_owned(),
        _ => "the exchange failed".to_owned(),
    }
}

fn of_transport(error: &DynamicTransportError) -> String {
    if let Some(error) = error.error.downcast_ref::<StreamableHttpError<UpstreamError>>() {
        return of_http(error);
    }
    match error.error.downcast_ref::<io::Error>() {
        Some(error) => error.kind().to_string(),
        None => "the connection failed".to_owned(),
    }
}

fn of_http(error: &StreamableHttpError<UpstreamError>) -> String {
    let class = match error {
        StreamableHttpError::Client(error) => return error.to_string(),
        StreamableHttpError::HttpStatus(error) => return format!("status {}", error.status),
        StreamableHttpError::ReinitializationFailed(error) => {
            return format!("another handshake was refused with error {}", error.code.0);
        }
        StreamableHttpError::AuthRequired(_) => "status 401",
        StreamableHttpError::InsufficientScope(_) => "status 403",
        StreamableHttpError::SessionExpired => "the session has expired",
        StreamableHttpError::SessionRecoveryTimeout
        | StreamableHttpError::ControlRequestTimeout => "no answer in time",
        StreamableHttpError::Io(_)
        | StreamableHttpError::Sse(_)
        | StreamableHttpError::UnexpectedEndOfStream => "the answer broke off",
        StreamableHttpError::ResponseBodyTooLarge { .. } => "the answer is too large",
        StreamableHttpError::UnexpectedServerResponse(_)
        | StreamableHttpError::UnexpectedContentType(_)
        | StreamableHttpError::MissingSessionIdInResponse
        | StreamableHttpError::Deserialize(_) => "the answer is no message of the protocol",
        _ => "the connection failed",
    };
    class.to_owned()
}
