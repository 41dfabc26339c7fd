//! The settings, checked and resolved: what every turn's broker works from.

use std::collections::HashSet;
use std::time::Duration;

use hyper::header::{HeaderMap, HeaderValue};
use serde_json::{Map, Value};
use turnjail_protocol::valid_tool_name;

use crate::credential::{Slot, header_name};
use crate::error::SetupError;
use crate::mcp;
use crate::rules::Routes;
use crate::settings::BrokerSettings;
use crate::tools::CheckedTool;
use crate::upstream::{Endpoint, Upstream};

/// What an operator may not set in a model request, because the broker does.
const RESERVED_FIELDS: [&str; 7] =
    ["messages", "tools", "model", "stream", "n", "max_tokens", "max_completion_tokens"];

/// What may be done, and where it goes.
pub(crate) struct Policy {
    pub routes: Routes,
    pub model: ModelPolicy,
    pub tools: Vec<CheckedTool>,
    pub servers: Vec<mcp::Server>,
    pub max_calls: u32,
    pub call_timeout: Duration,
}

/// Where and how the model is asked.
pub(crate) struct ModelPolicy {
    pub endpoint: Endpoint,
    pub credential: Option<Slot>,
    pub headers: HeaderMap,
    pub model: String,
    pub limit_field: &'static str,
    pub max_output_tokens: u32,
    pub extra_fields: Map<String, Value>,
    pub retries: u32,
}

impl BrokerSettings {
    /// Checks every setting that can be checked without asking anybody, as [`Broker::start`] does first.
    ///
    /// [`Broker::start`]: crate::Broker::start
    pub fn check(&self) -> Result<(), SetupError> {
        let policy = Policy::check(self)?;
        Upstream::new(self, policy.needs_tls()).map(drop)
    }
}

impl Policy {
    /// Checks every setting that can be checked without asking anybody.
    pub fn check(settings: &BrokerSettings) -> Result<Self, SetupError> {
        check_range("max_calls", settings.max_calls, 1, 1000)?;
        check_range("max_output_tokens", settings.max_output_tokens, 1, 32_768)?;
        check_range("retries", settings.retries, 0, 10)?;
        check_time("model_timeout", settings.model_timeout)?;
        let tools = check_tools(settings)?;
        let servers = check_servers(settings)?;
        Ok(Self {
            routes: Routes {
                tools: tools.iter().map(|tool| tool.spec.name.clone()).collect(),
                servers: servers.iter().map(|server| server.name.clone()).collect(),
            },
            model: check_model(settings)?,
            tools,
            servers,
            max_calls: settings.max_calls,
            call_timeout: settings.model_timeout,
        })
    }

    /// Whether any endpoint is an HTTPS one.
    pub fn needs_tls(&self) -> bool {
        let mut tools = self.tools.iter().filter_map(CheckedTool::endpoint);
        self.model.endpoint.needs_tls()
            || tools.any(Endpoint::needs_tls)
            || self.servers.iter().any(mcp::Server::needs_tls)
    }

    /// Every credential that a turn could use.
    pub fn slots(&self) -> Vec<&Slot> {
        let tools = self.tools.iter().filter_map(CheckedTool::credential);
        let servers = self.servers.iter().filter_map(|server| server.credential.as_ref());
        self.model.credential.iter().chain(tools).chain(servers).collect()
    }
}

/// Checks a whole number's range.
fn check_range(setting: &str, value: u32, least: u32, most: u32) -> Result<(), SetupError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(SetupError::setting(setting, format!("is {value}, but must be {least} to {most}")))
}

/// Checks a time's range, the same for every call to somewhere.
pub(crate) fn check_time(setting: &str, time: Duration) -> Result<(), SetupError> {
    if (Duration::from_secs(1)..=Duration::from_secs(600)).contains(&time) {
        return Ok(());
    }
    let seconds = time.as_secs_f64();
    Err(SetupError::setting(setting, format!("is {seconds} s, but must be 1 to 600 s")))
}

fn check_model(settings: &BrokerSettings) -> Result<ModelPolicy, SetupError> {
    if settings.model.trim().is_empty() {
        return Err(SetupError::setting("model", "is empty, but must name a model"));
    }
    if let Some(field) =
        RESERVED_FIELDS.iter().find(|field| settings.extra_fields.contains_key(**field))
    {
        return Err(SetupError::setting(
            "extra_fields",
            format!("names `{field}`, which the broker sets itself"),
        ));
    }
    let credential = Slot::check("credential", &settings.credential, &settings.credential_header)?;
    Ok(ModelPolicy {
        endpoint: Endpoint::url("model_url", &settings.model_url, settings)?,
        headers: check_headers(settings, credential.as_ref())?,
        credential,
        model: settings.model.clone(),
        limit_field: settings.output_limit_field.as_str(),
        max_output_tokens: settings.max_output_tokens,
        extra_fields: settings.extra_fields.clone(),
        retries: settings.retries,
    })
}

fn check_headers(
    settings: &BrokerSettings,
    credential: Option<&Slot>,
) -> Result<HeaderMap, SetupError> {
    let mut headers = HeaderMap::new();
    for (name, value) in &settings.extra_headers {
        let name = header_name("extra_headers", name)?;
        let problem = if credential.is_some_and(|slot| *slot.header() == name) {
            "which carries the credential"
        } else if headers.contains_key(&name) {
            "twice"
        } else {
            ""
        };
        if !problem.is_empty() {
            return Err(SetupError::setting("extra_headers", format!("names `{name}`, {problem}")));
        }
        let mut value = HeaderValue::from_str(value).map_err(|_| {
            SetupError::setting(
                "extra_headers",
                format!("has a value for `{name}` that cannot stand in a header"),
            )
        })?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

fn check_tools(settings: &BrokerSettings) -> Result<Vec<CheckedTool>, SetupError> {
    let mut names = HashSet::new();
    let check = |tool| {
        let checked = CheckedTool::check(tool, settings)?;
        check_name("tools", &checked.spec.name, &mut names)?;
        Ok(checked)
    };
    settings.tools.iter().map(check).collect()
}

fn check_servers(settings: &BrokerSettings) -> Result<Vec<mcp::Server>, SetupError> {
    let mut names = HashSet::new();
    let check = |server: &mcp::McpServer| {
        check_name("mcp", &server.name, &mut names)?;
        mcp::Server::check(server, settings)
    };
    settings.mcp.iter().map(check).collect()
}

/// Checks that a name is valid and new.
pub(crate) fn check_name(
    setting: &str,
    name: &str,
    names: &mut HashSet<String>,
) -> Result<(), SetupError> {
    if !valid_tool_name(name) {
        return Err(SetupError::setting(
            setting,
            format!(
                "has the name `{name}`, but names are 1 to 48 of a-z, 0-9 and _, a letter first"
            ),
        ));
    }
    if !names.insert(name.to_owned()) {
        return Err(SetupError::setting(setting, format!("has the name `{name}` twice")));
    }
    Ok(())
}
