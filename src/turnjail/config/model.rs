//! `[model]`: the endpoint that answers, and how it is asked.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};

use super::document::Raw;
use super::paths::{Base, path, shown_option};
use super::secret::SecretSource;
use super::section::Section;

/// The longest name or URL, in bytes.
const TEXT_BYTES: usize = 2048;

/// `[model]`. Whether the URL, headers and fields are allowed is the broker's to say.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// The model's name as the endpoint knows it.
    pub name: String,
    /// The chat completions endpoint.
    pub url: String,
    /// The endpoint's key.
    pub api_key: SecretSource,
    /// How long one call may take.
    pub timeout: Duration,
    /// How often a failed call is tried again.
    pub retries: u32,
    /// The output limit of one call, in tokens.
    pub max_output_tokens: u32,
    /// What the endpoint calls its output limit.
    pub output_limit_field: OutputLimitField,
    /// Whether a plain `http://` URL is allowed.
    pub allow_http: bool,
    /// More certificate authorities, PEM.
    pub ca_file: Option<PathBuf>,
    /// The proxy for HTTPS, if any. The environment's proxy variables are not used.
    pub proxy: Option<String>,
    /// The header that carries the key; none is `authorization: Bearer`.
    pub credential_header: Option<String>,
    /// Fields added to every request.
    pub extra_fields: Map<String, Value>,
    /// Headers added to every request.
    pub extra_headers: Vec<(String, String)>,
}

/// The name of the output limit in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputLimitField {
    /// `max_tokens`.
    MaxTokens,
    /// `max_completion_tokens`.
    MaxCompletionTokens,
}

impl Model {
    pub(super) fn read(section: Section<'_>, base: &Base<'_>) -> Option<Self> {
        let name = section.text("name", TEXT_BYTES).required();
        let url = section.text("url", TEXT_BYTES).required();
        let api_key = SecretSource::read(&section, "api_key", base);
        let timeout = seconds(section.integer("timeout_s", 1..=600).or(60));
        let retries = section.integer("retries", 0..=10).or(2) as u32;
        let max_output_tokens = section.integer("max_output_tokens", 1..=32_768).or(4096) as u32;
        let output_limit_field = section.choice(
            "output_limit_field",
            &[
                ("max_tokens", OutputLimitField::MaxTokens),
                ("max_completion_tokens", OutputLimitField::MaxCompletionTokens),
            ],
            OutputLimitField::MaxTokens,
        );
        let allow_http = section.flag("allow_http").or(false);
        let ca_file = path(&section, "ca_file", base).map(Some).or_shown(None, shown_option);
        let proxy = section.text("proxy", TEXT_BYTES).optional();
        let credential_header = section.text("credential_header", 256).optional();
        let extra_fields = fields(section.section("extra_fields"));
        let extra_headers = headers(section.section("extra_headers"));
        section.finish();
        Some(Self {
            name: name?,
            url: url?,
            api_key: api_key?,
            timeout,
            retries,
            max_output_tokens,
            output_limit_field,
            allow_http,
            ca_file,
            proxy,
            credential_header,
            extra_fields,
            extra_headers,
        })
    }
}

/// Seconds from a checked whole number.
pub(super) fn seconds(number: i64) -> Duration {
    Duration::from_secs(number.unsigned_abs())
}

fn fields(section: Section<'_>) -> Map<String, Value> {
    let entries = section.entries().iter();
    entries
        .map(|(key, item)| {
            let value = item.value.to_json();
            section.record(key, value.clone(), item.origin.clone());
            (key.clone(), value)
        })
        .collect()
}

/// Words in a header's name that make its value look like a secret.
const SECRET_WORDS: [&str; 5] = ["auth", "key", "token", "secret", "cookie"];

fn headers(section: Section<'_>) -> Vec<(String, String)> {
    let mut headers = Vec::new();
    for (name, item) in section.entries() {
        let full = section.name(name);
        let secret = SECRET_WORDS.iter().any(|word| name.to_lowercase().contains(word));
        match &item.value {
            Raw::Text(_) if secret => section.find(
                item.origin.clone(),
                format_args!("{full} looks like a secret, which never stands in the file itself"),
                "name its source in api_key, and the header in credential_header",
            ),
            Raw::Text(value) => {
                section.record(name, value.as_str().into(), item.origin.clone());
                headers.push((name.clone(), value.clone()));
            }
            other => section.find(
                item.origin.clone(),
                format_args!("{full} is {}, which is not allowed", other.kind()),
                format_args!("set {full} to a string"),
            ),
        }
    }
    headers
}
