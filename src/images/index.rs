//! `index.json`: which name means which image. The store is an OCI image layout with it.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use oci_spec::image::{Descriptor, ImageIndex, ImageIndexBuilder, MediaType};

use crate::{Digest, ImageError, Reference, lock};

/// The annotation with an image's name.
pub(crate) const NAME: &str = "org.opencontainers.image.ref.name";
/// The annotation with the digest of the index that a manifest was chosen from.
const CHOSEN_FROM: &str = "turnjail.chosen-from";
/// The annotation with the bytes that the image unpacked to.
const SIZE: &str = "turnjail.size";
const FILE: &str = "index.json";
/// A store with so many images has other problems.
const MOST_BYTES: u64 = 64 * 1024 * 1024;

/// A name and its image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    pub reference: Reference,
    pub digest: Digest,
    /// Bytes of the manifest.
    pub manifest_bytes: u64,
    pub media_type: MediaType,
    /// The digest of the index that the manifest was chosen from: a reference may name that one too.
    pub chosen_from: Option<Digest>,
    /// Bytes of all layers, unpacked.
    pub size: u64,
}

/// All names, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Index(pub Vec<Named>);

/// What tells one state of the file from another.
pub(crate) type Stamp = (u64, u64, i64, i64, u64);

impl Index {
    /// Reads the index in `dir`; a store without one has no images.
    pub fn read(dir: &Path) -> Result<Self, ImageError> {
        let path = dir.join(FILE);
        let broken = |what: String| ImageError::Store {
            path: path.clone(),
            what,
            remedy: "remove the file, import the images again, and run `turnjail image gc`",
        };
        let bytes = match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Ok(found) if found.len() > MOST_BYTES => return Err(broken("is too large".to_owned())),
            _ => fs::read(&path).map_err(ImageError::io("read", &path))?,
        };
        let index: ImageIndex = serde_json::from_slice(&bytes)
            .map_err(|error| broken(format!("is damaged: {error}")))?;
        let named = index.manifests().iter().map(|descriptor| {
            named(descriptor)
                .ok_or_else(|| broken("has an entry that turnjail did not write".into()))
        });
        named.collect::<Result<_, _>>().map(Self)
    }

    /// The state of the file in `dir`, without reading it.
    pub fn stamp(dir: &Path) -> Option<Stamp> {
        let found = fs::metadata(dir.join(FILE)).ok()?;
        Some((found.dev(), found.ino(), found.mtime(), found.mtime_nsec(), found.len()))
    }

    /// Replaces the index in `dir` whole. The caller holds the store alone.
    pub fn write(&self, dir: &Path) -> Result<(), ImageError> {
        let descriptors: Vec<_> = self.0.iter().map(descriptor).collect();
        let index = ImageIndexBuilder::default()
            .schema_version(2_u32)
            .media_type(MediaType::ImageIndex)
            .manifests(descriptors)
            .build()
            .map_err(io::Error::other)
            .map_err(ImageError::io("make", &dir.join(FILE)))?;
        let bytes = serde_json::to_vec_pretty(&index)
            .map_err(io::Error::from)
            .map_err(ImageError::io("make", &dir.join(FILE)))?;
        replace(dir, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        replace(dir, FILE, &bytes)
    }

    /// The image that `reference` means: by name, by digest, or by both agreeing.
    pub fn find(&self, reference: &Reference) -> Option<&Named> {
        let same_repository = |named: &&Named| {
            named.reference.domain() == reference.domain()
                && named.reference.path() == reference.path()
        };
        let mut candidates = self.0.iter().filter(same_repository);
        match (reference.tag(), reference.digest()) {
            (Some(tag), None) => candidates.find(|named| {
                named.reference.tag() == Some(tag) && named.reference.digest().is_none()
            }),
            (tag, Some(digest)) => candidates.find(|named| {
                let tagged = tag.is_none_or(|tag| named.reference.tag() == Some(tag));
                tagged && (named.digest == *digest || named.chosen_from.as_ref() == Some(digest))
            }),
            (None, None) => None,
        }
    }

    /// Says that a name means an image now, whatever it meant before.
    pub fn set(&mut self, named: Named) {
        self.0.retain(|other| other.reference != named.reference);
        self.0.push(named);
        self.0.sort_by(|a, b| a.reference.cmp(&b.reference));
    }
}

fn named(descriptor: &Descriptor) -> Option<Named> {
    let annotations = descriptor.annotations().as_ref()?;
    Some(Named {
        reference: annotations.get(NAME)?.parse().ok()?,
        digest: descriptor.digest().to_string().parse().ok()?,
        manifest_bytes: descriptor.size(),
        media_type: descriptor.media_type().clone(),
        chosen_from: match annotations.get(CHOSEN_FROM) {
            Some(digest) => Some(digest.parse().ok()?),
            None => None,
        },
        size: annotations.get(SIZE)?.parse().ok()?,
    })
}

fn descriptor(named: &Named) -> Descriptor {
    let mut annotations = HashMap::from([
        (NAME.to_owned(), named.reference.canonical()),
        (SIZE.to_owned(), named.size.to_string()),
    ]);
    annotations.extend(named.chosen_from.iter().map(|d| (CHOSEN_FROM.to_owned(), d.to_string())));
    let mut descriptor = to_descriptor(&named.media_type, &named.digest, named.manifest_bytes);
    descriptor.set_annotations(Some(annotations));
    descriptor
}

/// A descriptor without more.
pub(crate) fn to_descriptor(media_type: &MediaType, digest: &Digest, size: u64) -> Descriptor {
    let sha: oci_spec::image::Sha256Digest = digest.hex().parse().expect("checked digits");
    Descriptor::new(media_type.clone(), size, sha)
}

/// Replaces a file whole and durably.
fn replace(dir: &Path, name: &str, bytes: &[u8]) -> Result<(), ImageError> {
    let path = dir.join(name);
    if fs::read(&path).is_ok_and(|have| have == bytes) {
        return Ok(());
    }
    let mut file = tempfile_in(dir)?;
    file.1
        .write_all(bytes)
        .and_then(|()| file.1.sync_all())
        .map_err(ImageError::io("write", &path))?;
    fs::rename(&file.0, &path).map_err(ImageError::io("replace", &path))?;
    lock::sync(dir)
}

/// A file that is there for one writer at a time: the store is held alone.
fn tempfile_in(dir: &Path) -> Result<(std::path::PathBuf, fs::File), ImageError> {
    let path = dir.join("index.new");
    let file = fs::File::create(&path).map_err(ImageError::io("create", &path))?;
    Ok((path, file))
}
