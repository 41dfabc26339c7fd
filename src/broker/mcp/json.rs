//! A stateless MCP endpoint: one POST, one JSON answer.

use hyper::header::HeaderMap;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::pin::{LIST_TIMEOUT, MAX_PAGES, Offer, read_page, without_secret};
use super::server::answer;
use crate::call::{Call, Failure};
use crate::credential::{CredentialRequest, Slot};
use crate::events::CallOutcome;
use crate::turn::Principal;
use crate::upstream::{Attempts, Endpoint, RetryOn, Upstream};

/// The endpoint.
pub(super) struct JsonLink {
    pub endpoint: Endpoint,
}

impl JsonLink {
    /// Calls a tool by the server's own name for it.
    pub async fn call_tool(
        &self,
        remote: &str,
        arguments: Map<String, Value>,
        credential: Option<&Slot>,
        call: &Call<'_>,
    ) -> Result<Value, Failure> {
        let body = request("tools/call", json!({ "name": remote, "arguments": arguments }));
        let answered = call.post_once(&self.endpoint, credential, &body).await?;
        let (kind, value) =
            split(answered).map_err(|cause| Failure::failed(CallOutcome::Upstream, cause))?;
        Ok(answer(kind, value))
    }

    /// Asks for every tool the server has, page by page.
    pub async fn list_tools(
        &self,
        credential: Option<&Slot>,
        upstream: &Upstream,
    ) -> Result<Vec<Offer>, String> {
        let mut headers = HeaderMap::new();
        let mut asked_with = None;
        if let Some(slot) = credential {
            let nobody = Principal::default();
            let request = CredentialRequest::at_start(&nobody);
            let secret = slot.get(request).await.map_err(|error| error.to_string())?;
            let value = slot.header_value(&secret).map_err(|error| error.to_string())?;
            headers.insert(slot.header().clone(), value);
            asked_with = Some(secret);
        }
        let attempts = Attempts {
            retries: 0,
            retry_on: RetryOn::Unsent,
            deadline: Instant::now() + LIST_TIMEOUT,
        };
        let mut offers = Vec::new();
        let mut params = json!({});
        for _ in 0..MAX_PAGES {
            let body = request("tools/list", params);
            let answered = upstream
                .post(&self.endpoint, headers.clone(), &body, attempts, &mut 0)
                .await
                .map_err(|error| error.to_string())?;
            let ("result", page) = split(answered)? else {
                return Err("answers tools/list with an error".to_owned());
            };
            match read_page(page, &mut offers)? {
                Some(cursor) => params = json!({ "cursor": cursor }),
                None => return without_secret(offers, asked_with.as_ref()),
            }
        }
        Err(format!("has more than {MAX_PAGES} pages of tools"))
    }
}

fn request(method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params })
}

/// The answer's kind and value, when it is an answer to the request with id 1.
fn split(answered: Value) -> Result<(&'static str, Value), &'static str> {
    let Value::Object(mut answered) = answered else { return Err("the answer is no object") };
    if answered.get("id").and_then(Value::as_f64) != Some(1.0) {
        return Err("the answer is for another request");
    }
    match (answered.remove("result"), answered.remove("error")) {
        (Some(result), None) => Ok(("result", result)),
        (None, Some(error @ Value::Object(_))) => Ok(("error", error)),
        _ => Err("the answer has not exactly one of result and error"),
    }
}
