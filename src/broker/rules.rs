//! Which requests are looked at at all: a pure decision on the request's head.

use turnjail_protocol::DUMMY_CREDENTIAL;

/// The header names a worker may send; everything else is refused.
const ALLOWED_HEADERS: [&str; 7] = [
    "host",
    "content-type",
    "content-length",
    "accept",
    "accept-encoding",
    "authorization",
    "user-agent",
];

/// A request without its body, as the HTTP library read it: header names in lower case, values as bytes.
#[derive(Debug, Clone)]
pub(crate) struct RequestHead<'a> {
    pub method: &'a str,
    pub target: &'a str,
    pub headers: Vec<(&'a str, &'a [u8])>,
}

/// What a request may reach; the numbers are places in the operator's declarations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    Model,
    Tool(usize),
    Mcp(usize),
}

/// Why a request is refused. The guest gets the status and the short text, never more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    NotFound,
    Header,
    Credential,
    Host,
    Ended,
    Busy,
    NoObject,
    ModelPayload,
    McpPayload,
    Failed,
}

impl Refusal {
    pub fn status(self) -> u16 {
        match self {
            Self::NoObject | Self::ModelPayload => 400,
            Self::Header | Self::Credential | Self::Host | Self::McpPayload => 403,
            Self::NotFound => 404,
            Self::Ended => 410,
            Self::Busy => 429,
            Self::Failed => 502,
        }
    }

    pub fn text(self) -> &'static str {
        match self {
            Self::NotFound => "not found",
            Self::Header => "forbidden header",
            Self::Credential => "forbidden credential",
            Self::Host => "forbidden host",
            Self::Ended => "turn ended",
            Self::Busy => "call budget exhausted or busy",
            Self::NoObject => "invalid input",
            Self::ModelPayload => "text/function model payload required",
            Self::McpPayload => "MCP method or tool refused",
            Self::Failed => "broker call failed",
        }
    }
}

/// The names declared by the operator, in order.
#[derive(Debug, Default)]
pub(crate) struct Routes {
    pub tools: Vec<String>,
    pub servers: Vec<String>,
}

/// The first three rules: method and target, headers, path.
pub(crate) fn route(head: &RequestHead<'_>, routes: &Routes) -> Result<Route, Refusal> {
    if head.method != "POST" || head.target.contains(['?', '#']) {
        return Err(Refusal::NotFound);
    }
    check_headers(&head.headers)?;
    // Bytes are compared as they came: nothing is decoded, so there is nothing to decode differently.
    if head.target == "/model" {
        return Ok(Route::Model);
    }
    let declared = |names: &[String], prefix: &str| {
        let name = head.target.strip_prefix(prefix)?;
        names.iter().position(|declared| declared == name)
    };
    if let Some(place) = declared(&routes.tools, "/tools/") {
        return Ok(Route::Tool(place));
    }
    declared(&routes.servers, "/mcp/").map(Route::Mcp).ok_or(Refusal::NotFound)
}

fn check_headers(headers: &[(&str, &[u8])]) -> Result<(), Refusal> {
    let mut seen = [false; ALLOWED_HEADERS.len()];
    for (name, _) in headers {
        let place = ALLOWED_HEADERS.iter().position(|allowed| allowed == name);
        match place.map(|place| &mut seen[place]) {
            Some(seen) if !*seen => *seen = true,
            _ => return Err(Refusal::Header),
        }
    }
    let value = |wanted| headers.iter().find(|(name, _)| *name == wanted).map(|(_, value)| *value);
    if let Some(credential) = value("authorization") {
        // The dummy is no secret, so comparing it byte by byte tells nobody anything.
        if credential.strip_prefix(b"Bearer ") != Some(DUMMY_CREDENTIAL.as_bytes()) {
            return Err(Refusal::Credential);
        }
    }
    match value("host") {
        None | Some(b"broker") => Ok(()),
        Some(_) => Err(Refusal::Host),
    }
}
