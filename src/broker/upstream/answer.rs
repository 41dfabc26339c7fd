//! An upstream's answer, read within its bounds.

use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_ENCODING, HeaderMap, RETRY_AFTER};
use serde_json::Value;
use turnjail_protocol::{json, text};

use super::{UpstreamError, chain};

/// Takes a response of success; everything else, redirects too, is an error without its text.
pub(crate) fn accept_success(
    response: Response<Incoming>,
) -> Result<Response<Incoming>, UpstreamError> {
    let status = response.status();
    if !status.is_success() {
        return Err(UpstreamError::Status {
            status: status.as_u16(),
            retry_after: retry_after(response.headers()),
        });
    }
    let encoding = response.headers().get(CONTENT_ENCODING);
    if encoding.is_some_and(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Err(UpstreamError::Invalid("the answer is compressed, which was not asked for"));
    }
    Ok(response)
}

/// Reads a body of at most `limit` bytes.
pub(crate) async fn read_body(mut body: Incoming, limit: usize) -> Result<Bytes, UpstreamError> {
    if body.size_hint().lower() > limit as u64 {
        return Err(UpstreamError::TooLarge(limit));
    }
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| UpstreamError::Broken(chain(&error)))?;
        if let Ok(data) = frame.into_data() {
            if data.len() > limit - whole.len() {
                return Err(UpstreamError::TooLarge(limit));
            }
            whole.extend_from_slice(&data);
        }
    }
    Ok(whole.freeze())
}

/// Reads JSON as leniently as everything from outside.
pub(crate) fn parse_json(body: &[u8]) -> Result<Value, UpstreamError> {
    json::parse(&text::decode(body)).map_err(|_| UpstreamError::Invalid("the answer is not JSON"))
}

/// `Retry-After`, in seconds or as a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(SystemTime::now()).unwrap_or_default())
}
