//! Whom an HTTPS upstream must be certified by: the platform's authorities and the operator's own.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::error::SetupError;
use crate::file::read_file;

/// The most that `ca_file` may hold; the authorities of a whole platform are a quarter of a mebibyte.
const MAX_CA_BYTES: usize = 4 * 1024 * 1024;

/// TLS as a client, or a configuration that trusts nobody when no endpoint needs TLS.
pub(super) fn client_config(
    ca_file: Option<&Path>,
    needed: bool,
) -> Result<Arc<ClientConfig>, SetupError> {
    let mut roots = RootCertStore::empty();
    if let Some(path) = ca_file {
        add_file(&mut roots, path)?;
    }
    if needed {
        add_platform(&mut roots);
        if roots.is_empty() {
            return Err(SetupError::setting(
                "ca_file",
                "is needed: this machine has no certificate authorities of its own (install ca-certificates, or name a PEM file)",
            ));
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| {
            SetupError::setting("model_url", format!("needs TLS, which is not available: {error}"))
        })?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

fn add_platform(roots: &mut RootCertStore) {
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!("some of the platform's certificate authorities cannot be read: {error}");
    }
    // Stores hold old certificates that are not worth stopping for.
    roots.add_parsable_certificates(found.certs);
}

fn add_file(roots: &mut RootCertStore, path: &Path) -> Result<(), SetupError> {
    let unreadable = |error: io::Error| SetupError::File {
        setting: "ca_file".to_owned(),
        path: path.to_owned(),
        error,
    };
    let pem = read_file(path, MAX_CA_BYTES).map_err(unreadable)?;
    let mut added = 0;
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        certificate
            .map_err(|error| error.to_string())
            .and_then(|certificate| roots.add(certificate).map_err(|error| error.to_string()))
            .map_err(|error| unreadable(io::Error::new(io::ErrorKind::InvalidData, error)))?;
        added += 1;
    }
    if added == 0 {
        return Err(unreadable(io::Error::new(io::ErrorKind::InvalidData, "no certificate in it")));
    }
    Ok(())
}
