//! One connection: one request, read strictly, answered, closed.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use crate::handler::{Answer, TurnState};
use crate::head::{self, HeadFault, MAX_HEAD_BYTES, MAX_HEADER_LINES, Start};
use crate::rules::RequestHead;

/// From the first byte expected to the end of the headers.
const HEADER_TIME: Duration = Duration::from_secs(10);
/// What a request may take beyond an upstream's own time, reading its answer included.
const REQUEST_MARGIN: Duration = Duration::from_secs(5);
/// After the answer: how long and how much is still read of a client that has not stopped sending, so that
/// it gets to see the answer instead of a broken connection.
const LINGER_TIME: Duration = Duration::from_secs(1);
const LINGER_BYTES: u64 = 1024 * 1024;

/// Serves one connection to its end. Whatever the client does, this returns.
pub(crate) async fn serve(stream: UnixStream, turn: Arc<TurnState>) {
    let (mut read, mut write) = stream.into_split();
    let read_head = tokio::time::timeout(HEADER_TIME, head::read(&mut read)).await;
    let answered = match read_head {
        Ok(Ok(start)) => {
            let limit = turn.shared.policy.call_timeout + REQUEST_MARGIN;
            tokio::time::timeout(limit, answer(start, read, write, &turn)).await
        }
        Ok(Err(HeadFault::Malformed)) => {
            let refused = async {
                write.write_all(head::BAD_REQUEST).await.ok()?;
                Some((read, write))
            };
            tokio::time::timeout(LINGER_TIME, refused).await
        }
        Ok(Err(HeadFault::Gone)) | Err(_) => return,
    };
    if let Ok(Some((read, write))) = answered {
        linger(read, write).await;
    }
}

/// Lets the HTTP library read the request and write the answer; gives the stream back after it.
async fn answer(
    start: Start,
    read: OwnedReadHalf,
    write: OwnedWriteHalf,
    turn: &TurnState,
) -> Option<(OwnedReadHalf, OwnedWriteHalf)> {
    let target = start.target;
    let stream = tokio::io::join(std::io::Cursor::new(start.bytes).chain(read), write);
    let service =
        service_fn(|request| async { Ok::<_, Infallible>(respond(request, &target, turn).await) });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .max_headers(MAX_HEADER_LINES)
        .max_buf_size(MAX_HEAD_BYTES)
        .keep_alive(false)
        .half_close(false)
        .auto_date_header(false)
        .serve_connection(TokioIo::new(stream), service)
        .without_shutdown()
        .await;
    let (chain, write) = served.ok()?.io.into_inner().into_inner();
    Some((chain.into_inner().1, write))
}

async fn respond(
    request: Request<Incoming>,
    target: &str,
    turn: &TurnState,
) -> Response<Full<Bytes>> {
    let (parts, body) = request.into_parts();
    let headers = parts.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
    let head = RequestHead { method: parts.method.as_str(), target, headers: headers.collect() };
    let Answer { status, content_type, body } = turn.handle(&head, body).await;
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Says that no more will come, and reads away what the client still sends, within bounds.
async fn linger(read: OwnedReadHalf, mut write: OwnedWriteHalf) {
    let _ = write.shutdown().await;
    let mut rest = read.take(LINGER_BYTES);
    let mut away = tokio::io::sink();
    let _ = tokio::time::timeout(LINGER_TIME, tokio::io::copy(&mut rest, &mut away)).await;
}
