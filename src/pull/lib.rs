//! Pulling: an image of a registry, by tag or digest, for one platform, into the store.
//!
//! Never a turn's business: only somebody who asks for it pulls. What comes is as hostile as any other
//! archive: each part is written within its promised size to a place of the store's own, hashed, and
//! unpacked by the rules of [`turnjail_images`].
#![forbid(unsafe_code)]

mod error;
mod part;

use std::fmt;
use std::time::Duration;

use oci_client::Client;
use oci_client::client::{Certificate, CertificateEncoding, ClientConfig, ClientProtocol};
use oci_client::secrets::RegistryAuth;
use turnjail_images::{
    Assembly, Digest, ImageError, ImageStore, ImportOptions, Imported, Needed, Reference,
    manifest_for, parts_of,
};
use zeroize::Zeroizing;

pub use error::PullError;

/// What a manifest may be, in the order of preference.
const ACCEPTED: [&str; 4] = [
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
];
const OCI_MANIFEST: &str = ACCEPTED[1];
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a registry may say nothing.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Who pulls.
#[derive(Clone)]
pub struct Login {
    /// The user's name.
    pub username: String,
    /// The password or token. Wiped when it is dropped here; the client keeps its own copy as long as it
    /// pulls.
    pub password: Zeroizing<String>,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login").field("username", &self.username).finish_non_exhaustive()
    }
}

/// How a registry is spoken to.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    /// Who pulls; nobody by default.
    pub login: Option<Login>,
    /// Without TLS, for a registry on this machine.
    pub allow_http: bool,
    /// More certificate authorities beside the platform's, as PEM.
    pub authorities: Vec<u8>,
}

/// Told while something is fetched.
pub trait Fetching: Send + Sync {
    /// A part of so many bytes begins; it need not come where the store has it.
    fn part(&self, number: usize, of: usize, bytes: u64) {
        let _ = (number, of, bytes);
    }

    /// So many bytes more.
    fn advance(&self, bytes: u64) {
        let _ = bytes;
    }
}

/// Nobody is told.
impl Fetching for () {}

/// All parts of an image, fetched and not yet imported.
#[derive(Debug)]
pub struct Fetched<'s> {
    assembly: Assembly<'s>,
    manifest: Vec<u8>,
    media_type: String,
    index: Option<Vec<u8>>,
    name: Reference,
}

impl Fetched<'_> {
    /// Verifies and unpacks it, and gives it its name. Blocks until it is done.
    pub fn import(self, options: &ImportOptions<'_>) -> Result<Imported, ImageError> {
        self.assembly.import(self.manifest, &self.media_type, self.index, &self.name, options)
    }
}

/// Fetches an image of the registry that `name` names. The platform and the limits are those of `options`.
pub async fn fetch<'s>(
    store: &'s ImageStore,
    name: &Reference,
    registry: &Registry,
    options: &ImportOptions<'_>,
    told: &dyn Fetching,
) -> Result<Fetched<'s>, PullError> {
    let session = Session::new(name, registry)?;
    let (document, digest) = session.manifest(name.digest()).await?;
    check_size(&document, name, options)?;
    let (manifest, media_type, index) =
        match manifest_for(&document, &options.wanted(), &name.to_string())? {
            None => (document.clone(), media_type(&document), None),
            Some((needed, media_type)) => {
                let (manifest, found) = session.manifest(Some(&needed.digest)).await?;
                check_size(&manifest, name, options)?;
                verify(name, &needed.digest, &found)?;
                (manifest, media_type, Some(document))
            }
        };
    if let Some(said) = name.digest() {
        verify(name, said, &digest)?;
    }
    let assembly = store.assemble()?;
    let needed = parts_of(&manifest, &name.to_string(), options)?;
    for (number, part) in needed.iter().enumerate() {
        told.part(number + 1, needed.len(), part.size);
        // The same layer may stand twice.
        if !assembly.part(&part.digest).exists() && !assembly.reuse(&part.digest) {
            session.part(&assembly, part, told).await?;
        }
    }
    Ok(Fetched { assembly, manifest, media_type, index, name: name.clone() })
}

fn verify(name: &Reference, expected: &Digest, found: &Digest) -> Result<(), PullError> {
    if expected == found {
        return Ok(());
    }
    Err(PullError::Image(ImageError::Mismatch {
        object: format!("the manifest of {name}"),
        expected: expected.to_string(),
        found: found.to_string(),
    }))
}

fn check_size(
    document: &[u8],
    name: &Reference,
    options: &ImportOptions<'_>,
) -> Result<(), PullError> {
    let most = options.limits.metadata_bytes;
    if document.len() as u64 <= most {
        return Ok(());
    }
    let (object, limit) = (name.to_string(), format!("{most} bytes in its manifest"));
    Err(PullError::Image(ImageError::Limit { object, limit, setting: "max_metadata_kb" }))
}

/// What a manifest says of itself.
fn media_type(manifest: &[u8]) -> String {
    let value: Option<serde_json::Value> = serde_json::from_slice(manifest).ok();
    let said = value.as_ref().and_then(|value| value.get("mediaType")?.as_str());
    said.unwrap_or(OCI_MANIFEST).to_owned()
}

/// One registry, for one image.
struct Session {
    client: Client,
    auth: RegistryAuth,
    image: oci_client::Reference,
    registry: String,
}

impl Session {
    fn new(name: &Reference, registry: &Registry) -> Result<Self, PullError> {
        // Another part of the process may have chosen one already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let authority = || Certificate {
            encoding: CertificateEncoding::Pem,
            data: registry.authorities.clone(),
        };
        let config = ClientConfig {
            protocol: if registry.allow_http {
                ClientProtocol::Http
            } else {
                ClientProtocol::Https
            },
            extra_root_certificates: if registry.authorities.is_empty() {
                Vec::new()
            } else {
                vec![authority()]
            },
            connect_timeout: Some(CONNECT_TIMEOUT),
            read_timeout: Some(READ_TIMEOUT),
            user_agent: concat!("turnjail/", env!("CARGO_PKG_VERSION")),
            ..ClientConfig::default()
        };
        let domain = name.domain().to_owned();
        let client = Client::try_from(config).map_err(|error| PullError::of(&domain, error))?;
        let auth = match &registry.login {
            None => RegistryAuth::Anonymous,
            Some(login) => {
                RegistryAuth::Basic(login.username.clone(), login.password.as_str().to_owned())
            }
        };
        let tag = name.tag().unwrap_or("latest").to_owned();
        let image = oci_client::Reference::with_tag(domain.clone(), name.path().to_owned(), tag);
        Ok(Self { client, auth, image, registry: domain })
    }

    /// A manifest or index, by digest or by the image's tag, with its digest.
    async fn manifest(&self, digest: Option<&Digest>) -> Result<(Vec<u8>, Digest), PullError> {
        let image = match digest {
            Some(digest) => self.image.clone_with_digest(digest.to_string()),
            None => self.image.clone(),
        };
        let pulled = self.client.pull_manifest_raw(&image, &self.auth, &ACCEPTED).await;
        let (bytes, _) = pulled.map_err(|error| PullError::of(&self.registry, error))?;
        let digest = Digest::of(&bytes);
        Ok((bytes.to_vec(), digest))
    }

    async fn part(
        &self,
        assembly: &Assembly<'_>,
        part: &Needed,
        told: &dyn Fetching,
    ) -> Result<(), PullError> {
        let path = assembly.part(&part.digest);
        let file = part::Bounded::create(&path, part.size, told).await?;
        let pulled = self.client.pull_blob(&self.image, part.digest.as_str(), file).await;
        pulled.map_err(|error| PullError::of(&self.registry, error))
    }
}
