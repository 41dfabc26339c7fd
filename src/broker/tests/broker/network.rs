//! The way to an upstream: certificates of a private authority, and a proxy.

use std::sync::{Arc, Mutex};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use turnjail_broker::{Broker, BrokerSettings, CallOutcome, Credential};

use super::upstream::{ask, ok};
use crate::support::Upstream;
use crate::support::bench::settings;

/// A private authority, and a TLS server on loopback certified by it.
async fn tls_server(name: &str) -> (String, u16) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate =
        CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                let mut request = [0; 4096];
                let _ = stream.read(&mut request).await;
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 14\r\nconnection: close\r\n\r\n{\"choices\":[]}";
                let _ = stream.write_all(answer).await;
                let _ = stream.shutdown().await;
            });
        }
    });
    (authority.pem(), port)
}

#[tokio::test]
async fn https_needs_a_trusted_certificate_for_the_name() {
    let (pem, port) = tls_server("localhost").await;
    let directory = tempfile::tempdir().unwrap();
    let ca = directory.path().join("ca.pem");
    std::fs::write(&ca, pem).unwrap();
    let mut trusted =
        BrokerSettings::new("m", format!("https://localhost:{port}/"), Credential::None);
    trusted.ca_file = Some(ca);
    trusted.retries = 0;
    assert_eq!(ask(trusted.clone()).await, (200, CallOutcome::Ok, 0));
    let mut other_name = trusted.clone();
    other_name.model_url = format!("https://127.0.0.1:{port}/");
    assert_eq!(ask(other_name).await, (502, CallOutcome::Unreachable, 0));
    let mut untrusted = trusted.clone();
    untrusted.ca_file = None;
    match Broker::start(untrusted.clone()).await {
        Ok(_) => assert_eq!(ask(untrusted).await, (502, CallOutcome::Unreachable, 0)),
        // A machine without any authorities of its own.
        Err(error) => assert!(error.to_string().starts_with("ca_file"), "{error}"),
    }
    let mut bad = trusted.clone();
    for text in
        ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
    {
        std::fs::write(bad.ca_file.as_ref().unwrap(), text).unwrap();
        assert!(Broker::start(bad.clone()).await.unwrap_err().to_string().contains("ca_file"));
    }
    bad.ca_file = Some("/no/such/file".into());
    assert_eq!(Broker::start(bad).await.unwrap_err().code(), "broker-file");
}

/// A forward proxy that answers CONNECT and remembers for what.
async fn proxy(target: u16) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&seen);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            let head = String::from_utf8(head).unwrap();
            keep.lock().unwrap().push(head.lines().next().unwrap().to_owned());
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            tokio::spawn(async move {
                let mut onward = TcpStream::connect(("127.0.0.1", target)).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut onward).await;
            });
        }
    });
    (url, seen)
}

#[tokio::test]
async fn a_declared_proxy_is_used_for_everything_but_this_machine() {
    let (pem, port) = tls_server("models.example.invalid").await;
    let directory = tempfile::tempdir().unwrap();
    let ca = directory.path().join("ca.pem");
    std::fs::write(&ca, pem).unwrap();
    let (url, seen) = proxy(port).await;
    let mut settings =
        BrokerSettings::new("m", "https://models.example.invalid/v1", Credential::None);
    settings.ca_file = Some(ca);
    settings.proxy = Some(url.clone());
    settings.retries = 0;
    assert_eq!(ask(settings).await, (200, CallOutcome::Ok, 0));
    assert_eq!(*seen.lock().unwrap(), ["CONNECT models.example.invalid:443 HTTP/1.1"]);
    let upstream = Upstream::always(ok()).await;
    let mut local = self::settings(&upstream);
    local.proxy = Some(url);
    assert_eq!(ask(local).await.0, 200);
    assert_eq!(seen.lock().unwrap().len(), 1);
    let mut bad = self::settings(&upstream);
    for url in [
        "https://proxy:1",
        "http://user:pw@proxy:1",
        "http://proxy/path",
        "proxy:1",
        "http://proxy#x",
    ] {
        bad.proxy = Some(url.into());
        assert!(
            Broker::start(bad.clone()).await.unwrap_err().to_string().starts_with("proxy must"),
            "{url}"
        );
    }
}
