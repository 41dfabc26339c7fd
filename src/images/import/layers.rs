//! Layers, one after the other: copied, hashed, decompressed and unpacked in one go.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use oci_spec::image::{
    ConfigBuilder, Descriptor, ImageConfiguration, ImageConfigurationBuilder, ImageManifestBuilder,
    MediaType, RootFsBuilder, SCHEMA_VERSION,
};
use turnjail_protocol::MOUNT_POINTS;

use super::container::Content;
use super::packed::{self, Compression};
use super::{ImportOptions, Progress, Skipped};
use crate::digest::Hasher;
use crate::directories::Staging;
use crate::index::to_descriptor;
use crate::unpack::{Budget, Counter, Disk, Tree, apply};
use crate::{Digest, ImageConfig, ImageError, ImageLimits};

/// Unpacks layers into a place of the store.
pub(crate) struct Layers<'a> {
    blobs: PathBuf,
    root: PathBuf,
    tree: Tree,
    disk: Disk,
    budget: Budget,
    limits: ImageLimits,
    skipped: Skipped,
    done: Vec<Layer>,
    of: usize,
    progress: Option<&'a dyn Progress>,
}

/// What a layer must be.
#[derive(Debug)]
pub(crate) struct Promise {
    pub digest: Digest,
    pub size: u64,
    /// By its media type.
    pub compression: Compression,
}

/// What a layer is.
#[derive(Debug)]
pub(crate) struct Layer {
    pub digest: Digest,
    pub size: u64,
    pub diff_id: Digest,
    pub compression: Compression,
}

/// All layers, unpacked.
#[derive(Debug)]
pub(crate) struct Unpacked {
    pub layers: Vec<Layer>,
    /// Bytes that they unpacked to.
    pub size: u64,
    pub skipped: Skipped,
    /// The root filesystem.
    pub root: PathBuf,
    /// The layers' blobs by their digests.
    pub blobs: PathBuf,
}

impl<'a> Layers<'a> {
    pub fn new(staging: &Staging, options: &ImportOptions<'a>) -> Result<Self, ImageError> {
        let blobs = staging.directory("blobs")?;
        let root = staging.directory("root")?;
        let limits = options.limits;
        Ok(Self {
            disk: Disk::new(&root)?,
            blobs,
            root,
            tree: Tree::new(limits),
            budget: Budget::new(limits),
            limits,
            skipped: Skipped::default(),
            done: Vec::new(),
            of: 1,
            progress: options.progress,
        })
    }

    /// Says how many there will be.
    pub fn expect(&mut self, layers: usize, object: &str) -> Result<(), ImageError> {
        self.of = layers;
        if layers <= self.limits.layers {
            return Ok(());
        }
        Err(ImageError::Limit {
            object: object.to_owned(),
            limit: format!("{} layers", self.limits.layers),
            setting: "max_layers",
        })
    }

    /// Applies the next layer.
    pub fn add(&mut self, content: Content, promise: Option<&Promise>) -> Result<(), ImageError> {
        let number = self.done.len() + 1;
        let object = format!("layer {number}");
        if let Some(progress) = self.progress {
            progress.layer(number, self.of, content.size());
        }
        if let Some(promise) = promise
            && promise.size != content.size()
        {
            return Err(ImageError::Mismatch {
                object,
                expected: format!("{} bytes", promise.size),
                found: format!("{} bytes", content.size()),
            });
        }
        // A packed layer is no larger than what it unpacks to, but for a few bytes.
        if content.size() > self.limits.layer_bytes {
            return Err(ImageError::layer_limit(object, &self.limits));
        }
        // From here on everything is read from a copy that nobody else can change.
        let blob = self.blobs.join(format!("layer-{number}"));
        content.place(&blob, &object)?;
        let file = File::open(&blob).map_err(ImageError::io("open", &blob))?;
        let (hashed, applied) = std::thread::scope(|scope| {
            let hashing = scope.spawn(|| Digest::of_reader(At { file: &file, at: 0 }));
            let applied = self.apply(&file, &object, promise);
            (hashing.join(), applied)
        });
        let hashed = hashed.unwrap_or_else(|_| Err(io::Error::other("a thread ended early")));
        let (digest, size) = hashed.map_err(ImageError::io("read", &blob))?;
        // That a damaged layer is damaged says more than what its damage looks like.
        if let Some(promise) = promise
            && promise.digest != digest
        {
            return Err(ImageError::mismatch(object, &promise.digest, &digest));
        }
        let (diff_id, compression) = applied?;
        let diff_id = diff_id.unwrap_or_else(|| digest.clone());
        let named = self.blobs.join(digest.hex());
        // A layer that stands twice is there already, perhaps as the same file, which rename(2) would leave
        // under both names.
        if fs::symlink_metadata(&named).is_ok() {
            fs::remove_file(&blob).map_err(ImageError::io("remove", &blob))?;
        } else {
            fs::rename(&blob, &named).map_err(ImageError::io("name", &named))?;
        }
        self.done.push(Layer { digest, size, diff_id, compression });
        Ok(())
    }

    /// Unpacks a layer; answers the digest of what was unpacked where that is not the layer itself.
    fn apply(
        &mut self,
        file: &File,
        object: &str,
        promise: Option<&Promise>,
    ) -> Result<(Option<Digest>, Compression), ImageError> {
        let compression = packed::compression_of(file, 0).unwrap_or(Compression::None);
        if promise.is_some_and(|promise| promise.compression != compression) {
            let what = "its compression is not the one that its media type says";
            return Err(ImageError::refused(object, what));
        }
        let packed = Counter::default();
        let told = Told { reader: At { file, at: 0 }, progress: self.progress };
        let reader = BufReader::with_capacity(256 * 1024, told);
        let reader = packed::unpack(reader, &packed, object)?;
        let metered = self.budget.meter(reader, packed, object);
        let hasher = (compression != Compression::None).then(Hasher::default);
        let mut hashing = Hashing { reader: metered, hasher };
        let buffered = BufReader::with_capacity(256 * 1024, &mut hashing);
        apply(&mut self.tree, &mut self.disk, buffered, object, &mut self.skipped)?;
        Ok((hashing.hasher.map(Hasher::finish), compression))
    }

    /// Makes the mount points and gives directories their permissions.
    pub fn finish(mut self) -> Result<Unpacked, ImageError> {
        self.tree.finish(&mut self.disk, &MOUNT_POINTS)?;
        Ok(Unpacked {
            layers: self.done,
            size: self.budget.total(),
            skipped: self.skipped,
            root: self.root,
            blobs: self.blobs,
        })
    }
}

/// The layers must be those that the configuration was made for, in its order.
pub(crate) fn check_diff_ids(
    configuration: &ImageConfiguration,
    unpacked: &Unpacked,
    object: &str,
) -> Result<(), ImageError> {
    let said = configuration.rootfs().diff_ids();
    let (expected, found) = (said.len(), unpacked.layers.len());
    if expected != found {
        let what = format!("its configuration is for {expected} layers, and it has {found}");
        return Err(ImageError::refused(object, what));
    }
    for (number, (said, layer)) in said.iter().zip(&unpacked.layers).enumerate() {
        if said != layer.diff_id.as_str() {
            return Err(ImageError::Mismatch {
                object: format!("layer {}, unpacked,", number + 1),
                expected: said.chars().take(96).collect(),
                found: layer.diff_id.to_string(),
            });
        }
    }
    Ok(())
}

/// The OCI configuration of a root filesystem.
pub(crate) fn configuration(config: &ImageConfig, unpacked: &Unpacked) -> Vec<u8> {
    let diff_ids = unpacked.layers.iter().map(|layer| layer.diff_id.to_string());
    let rootfs = RootFsBuilder::default().typ("layers").diff_ids(diff_ids.collect::<Vec<_>>());
    let mut inner = ConfigBuilder::default();
    let list = |list: &[String]| list.to_vec();
    if !config.entrypoint.is_empty() {
        inner = inner.entrypoint(list(&config.entrypoint));
    }
    if !config.cmd.is_empty() {
        inner = inner.cmd(list(&config.cmd));
    }
    if !config.env.is_empty() {
        inner = inner.env(list(&config.env));
    }
    if !config.working_dir.is_empty() {
        inner = inner.working_dir(config.working_dir.clone());
    }
    if !config.stop_signal.is_empty() {
        inner = inner.stop_signal(config.stop_signal.clone());
    }
    let or = |text: &str, default: &str| if text.is_empty() { default } else { text }.to_owned();
    let built = ImageConfigurationBuilder::default()
        .architecture(or(&config.architecture, crate::architecture()).as_str())
        .os(or(&config.os, "linux").as_str())
        .rootfs(rootfs.build().expect("its required parts are set"))
        .config(inner.build().expect("it has no required parts"))
        .build()
        .expect("its required parts are set");
    // Labels go in by hand: the crate keeps them in a map without order, and a digest needs one.
    let mut value = serde_json::to_value(&built).expect("JSON of plain values");
    if !config.labels.is_empty() {
        value["config"]["Labels"] = serde_json::json!(config.labels);
    }
    serde_json::to_vec(&value).expect("JSON of plain values")
}

/// A manifest for a configuration and layers that came without one.
pub(crate) fn manifest(config: &[u8], unpacked: &Unpacked) -> Vec<u8> {
    let layers = unpacked
        .layers
        .iter()
        .map(|layer| to_descriptor(&layer.compression.media_type(), &layer.digest, layer.size));
    let config = to_descriptor(&MediaType::ImageConfig, &Digest::of(config), config.len() as u64);
    let manifest = ImageManifestBuilder::default()
        .schema_version(SCHEMA_VERSION)
        .media_type(MediaType::ImageManifest)
        .config(config)
        .layers(layers.collect::<Vec<Descriptor>>())
        .build()
        .expect("its required parts are set");
    serde_json::to_vec(&manifest).expect("JSON of plain values")
}

/// Reads a file from a position of its own.
struct At<'f> {
    file: &'f File,
    at: u64,
}

impl Read for At<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// Tells how far it is.
struct Told<'p, R> {
    reader: R,
    progress: Option<&'p dyn Progress>,
}

impl<R: Read> Read for Told<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        if let Some(progress) = self.progress {
            progress.advance(read as u64);
        }
        Ok(read)
    }
}

/// Hashes what goes through.
struct Hashing<R> {
    reader: R,
    hasher: Option<Hasher>,
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        if let Some(hasher) = &mut self.hasher {
            hasher.update(&buffer[..read]);
        }
        Ok(read)
    }
}
