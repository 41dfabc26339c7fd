//! A POST of JSON, ready to be sent.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderMap, HeaderValue};
use hyper::{Method, Request, Uri};
use serde_json::Value;
use turnjail_protocol::json;

use super::Endpoint;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A request that can be sent more than once.
pub(super) struct PreparedPost {
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
}

impl PreparedPost {
    pub fn new(endpoint: &Endpoint, mut headers: HeaderMap, body: &Value) -> Self {
        headers.insert(ACCEPT, JSON);
        headers.insert(CONTENT_TYPE, JSON);
        if let Some(host) = endpoint.host_header() {
            headers.insert(HOST, host);
        }
        Self { uri: endpoint.uri().clone(), headers, body: json::stringify(body).into() }
    }

    pub fn to_request(&self) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        request
    }
}
