//! An image that comes part by part, as from a registry: each part is a file of the store's own until all
//! of it is verified.

use std::fs;
use std::path::PathBuf;

use oci_spec::image::{ImageIndex, ImageManifest, MediaType};

use super::candidate::{Candidate, Origin};
use super::container::Container;
use super::{ImportOptions, Imported, Platform, check_name, oci};
use crate::directories::Staging;
use crate::{Digest, ImageError, ImageStore, Reference};

/// A content that is needed: what it must be and how large.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needed {
    /// Its digest.
    pub digest: Digest,
    /// Its size in bytes.
    pub size: u64,
}

/// See the module. What it holds is gone when it is dropped.
#[derive(Debug)]
pub struct Assembly<'s> {
    store: &'s ImageStore,
    staging: Staging,
    parts: PathBuf,
}

impl ImageStore {
    /// Begins an image that comes part by part.
    pub fn assemble(&self) -> Result<Assembly<'_>, ImageError> {
        let staging = self.dirs.stage()?;
        staging.directory("blobs")?;
        let parts = staging.directory("blobs/sha256")?;
        Ok(Assembly { store: self, staging, parts })
    }
}

impl Assembly<'_> {
    /// Where a part is to be written, as a new file. It is verified when it is used.
    pub fn part(&self, digest: &Digest) -> PathBuf {
        self.parts.join(digest.hex())
    }

    /// Takes a part from the store, where it has one: it need not come again. One that is damaged there is
    /// not taken.
    pub fn reuse(&self, digest: &Digest) -> bool {
        let blob = fs::File::open(self.store.dirs.blob(digest));
        let whole = blob.and_then(Digest::of_reader).is_ok_and(|(found, _)| found == *digest);
        whole && fs::hard_link(self.store.dirs.blob(digest), self.part(digest)).is_ok()
    }

    /// Imports the image with this manifest. Configuration and layers must be there as parts.
    ///
    /// `index` is the one that the manifest was chosen from, where there was one.
    pub fn import(
        self,
        manifest: Vec<u8>,
        media_type: &str,
        index: Option<Vec<u8>>,
        name: &Reference,
        options: &ImportOptions<'_>,
    ) -> Result<Imported, ImageError> {
        check_name(name)?;
        let container = Container::owned_directory(self.staging.path(), name.to_string())?;
        let parsed = parse_manifest(&manifest, &name.to_string())?;
        let config = oci::document(&container, parsed.config(), &options.limits)?;
        let origin = Origin::Oci {
            manifest: Box::new(parsed),
            bytes: manifest,
            media_type: MediaType::from(media_type),
            config,
            index,
        };
        let candidate = Candidate { names: Vec::new(), origin };
        self.store.import_one(&container, &candidate, name, options)
    }
}

/// The parts that a manifest needs: its configuration first, then its layers. Refuses what would have
/// something fetched from elsewhere, and more layers than are allowed.
pub fn parts_of(
    manifest: &[u8],
    object: &str,
    options: &ImportOptions<'_>,
) -> Result<Vec<Needed>, ImageError> {
    let manifest = parse_manifest(manifest, object)?;
    oci::check(&manifest, object)?;
    let most = options.limits.layers;
    if manifest.layers().len() > most {
        let (object, limit) = (object.to_owned(), format!("{most} layers"));
        return Err(ImageError::Limit { object, limit, setting: "max_layers" });
    }
    let descriptors = [manifest.config()].into_iter().chain(manifest.layers());
    let limits = &options.limits;
    let mut total = 0_u64;
    let needed = descriptors.enumerate().map(|(number, descriptor)| {
        let refuse = |what| ImageError::refused(object, format!("something in it {what}"));
        let digest = descriptor.digest().to_string().parse().map_err(refuse)?;
        let size = descriptor.size();
        if number == 0 && size > limits.metadata_bytes {
            let limit = format!("{} bytes in its configuration", limits.metadata_bytes);
            let object = object.to_owned();
            return Err(ImageError::Limit { object, limit, setting: "max_metadata_kb" });
        }
        if size > limits.layer_bytes {
            return Err(ImageError::layer_limit(object, limits));
        }
        total = total.saturating_add(size);
        if total > limits.total_bytes {
            let limit = format!("{} bytes in all", limits.total_bytes);
            let object = object.to_owned();
            return Err(ImageError::Limit { object, limit, setting: "max_total_mb" });
        }
        Ok(Needed { digest, size })
    });
    needed.collect()
}

/// The manifest for a platform in an index: its digest and size, and its media type.
///
/// None where the document is no index but a manifest already.
pub fn manifest_for(
    document: &[u8],
    wanted: &Platform,
    object: &str,
) -> Result<Option<(Needed, String)>, ImageError> {
    let refuse = |what: String| ImageError::refused(object, what);
    let value: serde_json::Value = serde_json::from_slice(document)
        .map_err(|error| refuse(format!("its manifest is not understood: {error}")))?;
    if value.get("manifests").is_none() {
        return Ok(None);
    }
    let index: ImageIndex = serde_json::from_value(value)
        .map_err(|error| refuse(format!("its index is not understood: {error}")))?;
    let mut passed = Vec::new();
    for descriptor in index.manifests() {
        if !oci::is_manifest(descriptor.media_type()) {
            continue;
        }
        match oci::platform_of(descriptor) {
            Some(found) if !oci::matches(wanted, &found) => {
                if found.os != "unknown" {
                    passed.push(found.to_string());
                }
            }
            _ => {
                let digest = descriptor.digest().to_string();
                let digest =
                    digest.parse().map_err(|what| refuse(format!("something in it {what}")))?;
                let needed = Needed { digest, size: descriptor.size() };
                return Ok(Some((needed, descriptor.media_type().to_string())));
            }
        }
    }
    passed.dedup();
    let available = if passed.is_empty() { "no image at all".into() } else { passed.join(", ") };
    let (object, wanted) = (object.to_owned(), wanted.to_string());
    Err(ImageError::Platform { object, wanted, available })
}

fn parse_manifest(bytes: &[u8], object: &str) -> Result<ImageManifest, ImageError> {
    serde_json::from_slice(bytes).map_err(|error| {
        ImageError::refused(object, format!("its manifest is not understood: {error}"))
    })
}
