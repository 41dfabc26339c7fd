//! OCI image layouts: an index of descriptors, each with digest and size.

use std::collections::HashSet;

use oci_spec::image::{Descriptor, ImageIndex, ImageManifest, MediaType};

use super::candidate::{Candidate, Origin};
use super::container::Container;
use super::layers::{Layers, Promise};
use super::packed::Compression;
use super::{ImportOptions, Platform};
use crate::index::NAME;
use crate::{Digest, ImageError, ImageLimits};

/// Indexes within each other, and descriptors in all of them.
const DEPTH: usize = 3;
const NODES: usize = 64;
/// The annotation of containerd and docker with the whole name.
const CONTAINERD_NAME: &str = "io.containerd.image.name";
const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";
const DOCKER_LAYER: &str = "application/vnd.docker.image.rootfs.diff.tar";
const DOCKER_LAYER_GZIP: &str = "application/vnd.docker.image.rootfs.diff.tar.gzip";
const DOCKER_LAYER_ZSTD: &str = "application/vnd.docker.image.rootfs.diff.tar.zstd";

/// The images of the layout for one platform, one for each name.
pub(super) fn candidates(
    container: &Container,
    options: &ImportOptions<'_>,
) -> Result<Vec<Candidate>, ImageError> {
    let mut search =
        Search { container, options, seen: HashSet::new(), nodes: 0, passed: Vec::new() };
    let index: ImageIndex =
        parse(container, "index.json", &container.document("index.json", &options.limits)?)?;
    let mut found: Vec<(Option<String>, Chosen)> = Vec::new();
    for descriptor in index.manifests() {
        let name = name_of(descriptor);
        let known = found.iter().any(|(other, _)| *other == name);
        // Several manifests of one name are one image for several platforms.
        if let Some(chosen) = search.choose(descriptor, 1, None)?
            && !known
        {
            found.push((name, chosen));
        }
    }
    if found.is_empty() {
        search.passed.sort();
        search.passed.dedup();
        return Err(ImageError::Platform {
            object: container.shown().to_owned(),
            wanted: options.wanted().to_string(),
            available: match &search.passed[..] {
                [] => "no image at all".to_owned(),
                passed => passed.join(", "),
            },
        });
    }
    found.into_iter().map(|(name, chosen)| chosen.candidate(name, container, options)).collect()
}

fn name_of(descriptor: &Descriptor) -> Option<String> {
    let annotations = descriptor.annotations().as_ref()?;
    annotations.get(CONTAINERD_NAME).or_else(|| annotations.get(NAME)).cloned()
}

/// A manifest for the wanted platform.
struct Chosen {
    descriptor: Descriptor,
    manifest: ImageManifest,
    bytes: Vec<u8>,
    index: Option<Vec<u8>>,
}

struct Search<'s, 'p> {
    container: &'s Container,
    options: &'s ImportOptions<'p>,
    seen: HashSet<Digest>,
    nodes: usize,
    /// Platforms that are not wanted.
    passed: Vec<String>,
}

impl Search<'_, '_> {
    /// The first manifest for the platform at or below `descriptor`.
    fn choose(
        &mut self,
        descriptor: &Descriptor,
        depth: usize,
        index: Option<&[u8]>,
    ) -> Result<Option<Chosen>, ImageError> {
        let refuse = |what: &str| Err(ImageError::refused(self.container.shown(), what));
        self.nodes += 1;
        if self.nodes > NODES {
            return refuse("its indexes name more than 64 manifests");
        }
        match descriptor.media_type() {
            MediaType::ImageIndex => {}
            MediaType::Other(other) if other == DOCKER_INDEX => {}
            media_type if is_manifest(media_type) => return self.manifest(descriptor, index),
            // Signatures and other things that are no images.
            _ => return Ok(None),
        }
        if depth > DEPTH {
            return refuse("its indexes stand within each other more than 3 deep");
        }
        if !self.seen.insert(digest(self.container, descriptor)?) {
            return refuse("an index of it is there twice");
        }
        let bytes = document(self.container, descriptor, &self.options.limits)?;
        let nested: ImageIndex = parse(self.container, "index", &bytes)?;
        let mut chosen = None;
        for descriptor in nested.manifests() {
            let found = self.choose(descriptor, depth + 1, Some(index.unwrap_or(&bytes)))?;
            chosen = chosen.or(found);
        }
        Ok(chosen)
    }

    fn manifest(
        &mut self,
        descriptor: &Descriptor,
        index: Option<&[u8]>,
    ) -> Result<Option<Chosen>, ImageError> {
        if let Some(found) = platform_of(descriptor)
            && !matches(&self.options.wanted(), &found)
        {
            // Attestations call themselves so.
            if found.os != "unknown" {
                self.passed.push(found.to_string());
            }
            return Ok(None);
        }
        let bytes = document(self.container, descriptor, &self.options.limits)?;
        let manifest: ImageManifest = parse(self.container, "manifest", &bytes)?;
        if !is_config(manifest.config().media_type()) {
            return Ok(None);
        }
        let (descriptor, index) = (descriptor.clone(), index.map(<[u8]>::to_vec));
        Ok(Some(Chosen { descriptor, manifest, bytes, index }))
    }
}

impl Chosen {
    fn candidate(
        self,
        name: Option<String>,
        container: &Container,
        options: &ImportOptions<'_>,
    ) -> Result<Candidate, ImageError> {
        let config = document(container, self.manifest.config(), &options.limits)?;
        let origin = Origin::Oci {
            manifest: Box::new(self.manifest),
            bytes: self.bytes,
            media_type: self.descriptor.media_type().clone(),
            config,
            index: self.index,
        };
        Ok(Candidate { names: name.into_iter().collect(), origin })
    }
}

/// What a descriptor says that its manifest is for.
pub(super) fn platform_of(descriptor: &Descriptor) -> Option<Platform> {
    let platform = descriptor.platform().as_ref()?;
    Some(Platform {
        os: platform.os().to_string(),
        architecture: platform.architecture().to_string(),
        variant: platform.variant().clone(),
    })
}

pub(super) fn is_manifest(media_type: &MediaType) -> bool {
    match media_type {
        MediaType::ImageManifest => true,
        MediaType::Other(other) => other == DOCKER_MANIFEST,
        _ => false,
    }
}

pub(super) fn matches(wanted: &Platform, found: &Platform) -> bool {
    let variant = || wanted.variant.is_none() || wanted.variant == found.variant;
    wanted.os == found.os && wanted.architecture == found.architecture && variant()
}

fn is_config(media_type: &MediaType) -> bool {
    match media_type {
        MediaType::ImageConfig => true,
        MediaType::Other(other) => other == DOCKER_CONFIG,
        _ => false,
    }
}

/// Applies the layers of a manifest.
pub(super) fn unpack(
    container: &Container,
    manifest: &ImageManifest,
    layers: &mut Layers<'_>,
) -> Result<(), ImageError> {
    check(manifest, container.shown())?;
    layers.expect(manifest.layers().len(), container.shown())?;
    for descriptor in manifest.layers() {
        let digest = digest(container, descriptor)?;
        let compression = Compression::by(descriptor.media_type()).ok_or_else(|| {
            let what =
                format!("it has a layer of the type {:?}", descriptor.media_type().to_string());
            ImageError::refused(container.shown(), what)
        })?;
        let content = container.content(&blob(&digest))?;
        let promise = Promise { digest, size: descriptor.size(), compression };
        layers.add(content, Some(&promise))?;
    }
    Ok(())
}

/// What would have something fetched from elsewhere is no image's business.
pub(super) fn check(manifest: &ImageManifest, object: &str) -> Result<(), ImageError> {
    let elsewhere =
        |descriptor: &Descriptor| descriptor.urls().as_ref().is_some_and(|urls| !urls.is_empty());
    if manifest.layers().iter().any(elsewhere) {
        return Err(ImageError::refused(object, "it has a layer that is to be had from a URL"));
    }
    Ok(())
}

impl Compression {
    /// By a layer's media type; none for what is no layer.
    fn by(media_type: &MediaType) -> Option<Self> {
        match media_type {
            MediaType::ImageLayer => Some(Self::None),
            MediaType::ImageLayerGzip => Some(Self::Gzip),
            MediaType::ImageLayerZstd => Some(Self::Zstd),
            MediaType::Other(other) => match other.as_str() {
                DOCKER_LAYER => Some(Self::None),
                DOCKER_LAYER_GZIP => Some(Self::Gzip),
                DOCKER_LAYER_ZSTD => Some(Self::Zstd),
                _ => None,
            },
            _ => None,
        }
    }

    /// The media type of a layer that is compressed so.
    pub fn media_type(self) -> MediaType {
        match self {
            Self::None => MediaType::ImageLayer,
            Self::Gzip => MediaType::ImageLayerGzip,
            Self::Zstd => MediaType::ImageLayerZstd,
        }
    }
}

fn digest(container: &Container, descriptor: &Descriptor) -> Result<Digest, ImageError> {
    descriptor
        .digest()
        .to_string()
        .parse()
        .map_err(|what| ImageError::refused(container.shown(), format!("something in it {what}")))
}

fn blob(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

/// A small content with the digest and size that its descriptor says.
pub(super) fn document(
    container: &Container,
    descriptor: &Descriptor,
    limits: &ImageLimits,
) -> Result<Vec<u8>, ImageError> {
    let expected = digest(container, descriptor)?;
    let name = blob(&expected);
    let bytes = container.document(&name, limits)?;
    let object = || format!("{}: {name}", container.shown());
    if bytes.len() as u64 != descriptor.size() {
        return Err(ImageError::Mismatch {
            object: object(),
            expected: format!("{} bytes", descriptor.size()),
            found: format!("{} bytes", bytes.len()),
        });
    }
    let found = Digest::of(&bytes);
    if found != expected {
        return Err(ImageError::mismatch(object(), &expected, &found));
    }
    Ok(bytes)
}

fn parse<T: serde::de::DeserializeOwned>(
    container: &Container,
    what: &str,
    bytes: &[u8],
) -> Result<T, ImageError> {
    serde_json::from_slice(bytes).map_err(|error| {
        ImageError::refused(container.shown(), format!("its {what} is not understood: {error}"))
    })
}
