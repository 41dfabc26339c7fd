//! What the model is told about a server's tools, fixed once at start-up.

use std::time::Duration;

use serde_json::{Map, Value, json};
use turnjail_protocol::ToolSpec;

use super::server::PinnedTool;
use super::settings::McpTool;
use crate::credential::{SHORTEST_CHECKED, Secret};
use crate::error::SetupError;
use crate::reflect::{self, Pattern};
use crate::schema;
use crate::tools::check_spec;
use crate::validate::Validator;

/// How long a server may take at start-up to say what it has.
pub(super) const LIST_TIMEOUT: Duration = Duration::from_secs(30);
/// Pages of tools that are read at most.
pub(super) const MAX_PAGES: usize = 32;
/// Names that an error shows of a server that lacks a tool, and bytes of each.
const NAMES_SHOWN: usize = 32;
const MAX_NAME: usize = 64;

/// A tool as its server describes it.
pub(super) struct Offer {
    pub name: String,
    pub description: String,
    pub parameters: Map<String, Value>,
}

/// Reads a page of `tools/list` and returns the cursor of the next.
pub(super) fn read_page(page: Value, offers: &mut Vec<Offer>) -> Result<Option<String>, String> {
    let Value::Object(mut page) = page else {
        return Err("lists its tools as no object".to_owned());
    };
    let Some(Value::Array(tools)) = page.remove("tools") else {
        return Err("lists no tools".to_owned());
    };
    for tool in tools {
        offers.push(read_offer(tool).ok_or("lists a tool without a name or schema")?);
    }
    Ok(match page.remove("nextCursor") {
        Some(Value::String(cursor)) if !cursor.is_empty() => Some(cursor),
        _ => None,
    })
}

fn read_offer(tool: Value) -> Option<Offer> {
    let Value::Object(mut tool) = tool else { return None };
    let Some(Value::String(name)) = tool.remove("name") else { return None };
    let Some(Value::Object(parameters)) = tool.remove("inputSchema") else { return None };
    let description = match tool.remove("description") {
        Some(Value::String(description)) => description,
        _ => String::new(),
    };
    Some(Offer { name, description, parameters })
}

/// Refuses offers that hold the credential the server was asked with: they would be shown to every guest.
pub(super) fn without_secret(
    offers: Vec<Offer>,
    secret: Option<&Secret>,
) -> Result<Vec<Offer>, String> {
    let searched = secret.filter(|secret| secret.expose().len() >= SHORTEST_CHECKED);
    let patterns: Vec<Pattern> = searched.map(Pattern::new).into_iter().collect();
    let reflects = |offer: &Offer| {
        let shown = json!([offer.name, offer.description, offer.parameters]);
        reflect::holds_any(&shown, &patterns)
    };
    if offers.iter().any(reflects) {
        return Err("names its own credential in what it says of its tools".to_owned());
    }
    Ok(offers)
}

/// Gives every declared tool its specification.
pub(super) fn pin(
    server: &str,
    declared: &[McpTool],
    offers: &[Offer],
) -> Result<Vec<PinnedTool>, SetupError> {
    declared.iter().map(|tool| pin_one(server, tool, offers)).collect()
}

fn pin_one(server: &str, tool: &McpTool, offers: &[Offer]) -> Result<PinnedTool, SetupError> {
    let setting = format!("mcp.{server}.tools.{}", tool.name);
    let spec = match &tool.declared {
        Some((description, parameters)) => {
            let spec = ToolSpec::new(&tool.name, description, parameters.clone());
            check_spec(&setting, &spec)?;
            spec
        }
        None => take_offer(server, tool, offers)?,
    };
    let validator =
        tool.validate.then(|| Validator::new(&setting, &spec.parameters)).transpose()?;
    Ok(PinnedTool { spec, remote: tool.remote.clone(), validator })
}

fn take_offer(server: &str, tool: &McpTool, offers: &[Offer]) -> Result<ToolSpec, SetupError> {
    let refuse = |problem: String| Err(SetupError::mcp(server, problem));
    let Some(offer) = offers.iter().find(|offer| offer.name == tool.remote) else {
        return refuse(format!("has no tool `{}`; it has {}", tool.remote, names(offers)));
    };
    let mut parameters = offer.parameters.clone();
    schema::strip_remote_names(&mut parameters);
    if let Err(schema::SchemaFault(keyword)) = schema::check(&parameters) {
        return refuse(format!(
            "describes its tool `{}` with `{keyword}`, which may only refer to `#...` inside the schema",
            tool.remote
        ));
    }
    let spec = ToolSpec::new(&tool.name, &offer.description, parameters);
    if !spec.is_valid() {
        return refuse(format!("describes its tool `{}` with too deep a schema", tool.remote));
    }
    Ok(spec)
}

/// The names of what a server offers, as far as they are names.
fn names(offers: &[Offer]) -> String {
    let is_name = |name: &&str| {
        name.len() <= MAX_NAME
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte))
    };
    let shown: Vec<&str> =
        offers.iter().map(|offer| &*offer.name).filter(is_name).take(NAMES_SHOWN).collect();
    match offers.len() - shown.len() {
        0 if shown.is_empty() => "none".to_owned(),
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
