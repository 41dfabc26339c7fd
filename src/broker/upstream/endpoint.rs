//! Where a call goes, checked once at start-up.

use std::net::IpAddr;
use std::path::Path;

use hyper::Uri;
use hyper::header::HeaderValue;

use crate::error::SetupError;
use crate::settings::BrokerSettings;

/// A checked destination.
#[derive(Debug, Clone)]
pub(crate) enum Endpoint {
    /// Over the network.
    Network {
        /// The whole URL.
        uri: Uri,
        /// Host and port, for logs.
        name: String,
    },
    /// Over a Unix socket of the host.
    Local {
        /// The socket in the client's encoding, and the path.
        uri: Uri,
        /// The socket's path, for logs.
        name: String,
    },
}

impl Endpoint {
    /// Checks a URL under the settings' rules: `https`, or `http` when allowed; no credentials, no fragment.
    pub fn url(setting: &str, url: &str, settings: &BrokerSettings) -> Result<Self, SetupError> {
        let refuse = |problem: &str| Err(SetupError::setting(setting, problem));
        // The parser drops a fragment in silence.
        if url.contains('#') {
            return refuse("must be a URL without a fragment");
        }
        let Ok(uri) = url.parse::<Uri>() else {
            return refuse("must be an absolute URL, such as https://host/v1/chat/completions");
        };
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return refuse("must be an absolute URL, such as https://host/v1/chat/completions");
        };
        if authority.as_str().contains('@') {
            return refuse("must be a URL without credentials in it");
        }
        let has_port = authority.as_str().len() > authority.host().len();
        if authority.host().is_empty() || (has_port && authority.port_u16().is_none()) {
            return refuse("must be a URL with a host and a valid port");
        }
        match scheme {
            "https" => {}
            "http" if settings.allow_http => {
                if !is_loopback(&uri) {
                    tracing::warn!(
                        setting,
                        host = authority.host(),
                        "calls go unencrypted to another machine"
                    );
                }
            }
            "http" => return refuse("must be an https URL, unless allow_http is set"),
            _ => return refuse("must be an https URL"),
        }
        let name = authority.as_str().to_owned();
        Ok(Self::Network { uri, name })
    }

    /// Checks a Unix socket's path and a request's path.
    pub fn unix(setting: &str, socket: &Path, path: &str) -> Result<Self, SetupError> {
        let refuse = |problem: &str| Err(SetupError::setting(setting, problem));
        let Some(name) = socket.to_str().filter(|_| socket.is_absolute()) else {
            return refuse("must name a socket by an absolute path in UTF-8");
        };
        if !path.starts_with('/') || path.contains('#') || path.parse::<Uri>().is_err() {
            return refuse("must have a path that starts with `/`, such as /tool");
        }
        Ok(Self::Local { uri: hyperlocal::Uri::new(socket, path).into(), name: name.to_owned() })
    }

    pub fn uri(&self) -> &Uri {
        match self {
            Self::Network { uri, .. } | Self::Local { uri, .. } => uri,
        }
    }

    /// What a log may say about it.
    pub fn name(&self) -> &str {
        match self {
            Self::Network { name, .. } | Self::Local { name, .. } => name,
        }
    }

    /// The `host` header where the client's own would be wrong: an encoded path says nothing to a server.
    pub fn host_header(&self) -> Option<HeaderValue> {
        match self {
            Self::Network { .. } => None,
            Self::Local { .. } => Some(HeaderValue::from_static("localhost")),
        }
    }

    pub fn needs_tls(&self) -> bool {
        matches!(self, Self::Network { uri, .. } if uri.scheme_str() == Some("https"))
    }
}

/// Whether a URL names this machine.
pub(super) fn is_loopback(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    match address {
        Ok(address) => address.is_loopback(),
        Err(_) => host.eq_ignore_ascii_case("localhost"),
    }
}
