//! Connections to upstreams: direct or through the declared proxy, in the clear or over TLS, within 10 s.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower_service::Service;

use super::endpoint::is_loopback;
use super::tls;
use crate::error::SetupError;
use crate::settings::BrokerSettings;

/// Name look-up, connecting, proxy and TLS handshakes together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Connecting<T> = Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send>>;

/// Makes connections for the client's pool.
#[derive(Clone)]
pub(super) struct Connector {
    inner: HttpsConnector<Dial>,
}

impl Connector {
    pub fn new(settings: &BrokerSettings, needs_tls: bool) -> Result<Self, SetupError> {
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        let proxy = match &settings.proxy {
            Some(url) => Some(Tunnel::new(check_proxy(url)?, http.clone())),
            None => None,
        };
        let tls = tls::client_config(settings.ca_file.as_deref(), needs_tls)?;
        Ok(Self { inner: HttpsConnector::from((Dial { http, proxy }, tls)) })
    }
}

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = BoxError;
    type Future = Connecting<Self::Response>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, destination: Uri) -> Self::Future {
        let connecting = self.inner.call(destination);
        Box::pin(async move {
            tokio::time::timeout(CONNECT_TIMEOUT, connecting)
                .await
                .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "no connection within 10 s"))?
        })
    }
}

/// The plain connection below: to the destination, or to the proxy with a tunnel to the destination.
#[derive(Clone)]
struct Dial {
    http: HttpConnector,
    proxy: Option<Tunnel<HttpConnector>>,
}

impl Service<Uri> for Dial {
    type Response = TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = Connecting<Self::Response>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.http.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, destination: Uri) -> Self::Future {
        match &mut self.proxy {
            Some(tunnel) if !is_loopback(&destination) => {
                let connecting = tunnel.call(with_port(destination));
                Box::pin(async move { Ok(connecting.await?) })
            }
            _ => {
                let connecting = self.http.call(destination);
                Box::pin(async move { Ok(connecting.await?) })
            }
        }
    }
}

/// Names the port of a plain URL, for which the tunnel would take the one of HTTPS.
fn with_port(uri: Uri) -> Uri {
    let (Some("http"), Some(host), None) = (uri.scheme_str(), uri.host(), uri.port()) else {
        return uri;
    };
    let named =
        Uri::builder().scheme("http").authority(format!("{host}:80")).path_and_query("/").build();
    named.unwrap_or(uri)
}

fn check_proxy(url: &str) -> Result<Uri, SetupError> {
    url.parse::<Uri>()
        .ok()
        .filter(|uri| {
            uri.scheme_str() == Some("http")
                && uri.authority().is_some_and(|authority| !authority.as_str().contains('@'))
                && uri.path_and_query().is_none_or(|path| path == "/")
                && !url.contains('#')
        })
        .ok_or_else(|| {
            SetupError::setting("proxy", "must be http://host:port, without credentials or path")
        })
}
