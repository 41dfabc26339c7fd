//! Archives and images as tests want them, and a store to put them in.
#![allow(dead_code)]

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use turnjail_images::{Digest, ImageConfig, ImageStore, Reference};

/// A store and a place for archives beside it.
pub struct Place {
    dir: tempfile::TempDir,
    pub store: ImageStore,
}

impl Place {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let store = dir.path().join("store");
        let store = ImageStore::open(&store).expect("a store");
        Self { dir, store }
    }

    /// The store's directory.
    pub fn dir(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    /// Another opening of the store, as another process would have it.
    pub fn again(&self) -> ImageStore {
        ImageStore::open(&self.dir()).expect("the store")
    }

    /// What stands beside the store: nothing that an import does may change it.
    pub fn outside(&self) -> &Path {
        self.dir.path()
    }

    pub fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.dir.path().join(name);
        fs::write(&path, bytes).expect("an archive");
        path
    }

    /// A new empty directory.
    pub fn scratch(&self, name: &str) -> PathBuf {
        let path = self.dir.path().join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).expect("a directory");
        path
    }

    /// How much is in staging, which is nothing between imports.
    pub fn staged(&self) -> usize {
        fs::read_dir(self.dir().join("staging")).map_or(0, Iterator::count)
    }
}

pub fn name(text: &str) -> Reference {
    text.parse().expect("a reference")
}

/// A layer being made, entry by entry, as odd as wanted.
#[derive(Clone, Default)]
pub struct Layer {
    bytes: Vec<u8>,
}

impl Layer {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn directory(self, name: &str, mode: u32) -> Self {
        self.entry(b'5', &format!("{name}/"), mode, "", b"")
    }

    pub fn file(self, name: &str, mode: u32, content: &[u8]) -> Self {
        self.entry(b'0', name, mode, "", content)
    }

    pub fn symlink(self, name: &str, target: &str) -> Self {
        self.entry(b'2', name, 0o777, target, b"")
    }

    pub fn hard_link(self, name: &str, target: &str) -> Self {
        self.entry(b'1', name, 0o644, target, b"")
    }

    pub fn whiteout(self, name: &str) -> Self {
        let (directory, base) =
            name.rsplit_once('/').map_or((String::new(), name), |(d, b)| (format!("{d}/"), b));
        self.file(&format!("{directory}.wh.{base}"), 0o644, b"")
    }

    pub fn opaque(self, directory: &str) -> Self {
        self.file(&format!("{directory}/.wh..wh..opq"), 0o644, b"")
    }

    /// An extended header for the next entry.
    pub fn pax(self, records: &[(&str, &str)]) -> Self {
        self.entry(b'x', "pax", 0o644, "", &pax_records(records))
    }

    /// Any entry at all, checked by nobody.
    pub fn entry(self, kind: u8, name: &str, mode: u32, link: &str, content: &[u8]) -> Self {
        self.raw(kind, name.as_bytes(), mode, link.as_bytes(), content.len() as u64, content)
    }

    /// As [`entry`](Self::entry), with a size that need not be the content's.
    pub fn raw(
        mut self,
        kind: u8,
        name: &[u8],
        mode: u32,
        link: &[u8],
        size: u64,
        content: &[u8],
    ) -> Self {
        let mut header = [0_u8; 512];
        let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
        assert!(name.len() <= 100 && link.len() <= 100, "use pax for long names");
        put(0, name);
        put(100, format!("{mode:07o}\0").as_bytes());
        put(108, b"0000000\0");
        put(116, b"0000000\0");
        put(124, format!("{size:011o}\0").as_bytes());
        put(136, b"14524770401\0");
        put(148, b"        ");
        put(156, &[kind]);
        put(157, link);
        put(257, b"ustar\x0000");
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.bytes.extend_from_slice(&header);
        self.bytes.extend_from_slice(content);
        self.bytes.resize(self.bytes.len().next_multiple_of(512), 0);
        self
    }

    /// The layer with its end.
    pub fn build(&self) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        bytes.resize(bytes.len() + 1024, 0);
        bytes
    }

    /// The layer without its end.
    pub fn unended(&self) -> Vec<u8> {
        self.bytes.clone()
    }
}

pub fn pax_records(records: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (key, value) in records {
        let rest = format!(" {key}={value}\n");
        let mut length = rest.len() + 1;
        while length.to_string().len() + rest.len() != length {
            length = length.to_string().len() + rest.len();
        }
        bytes.extend_from_slice(format!("{length}{rest}").as_bytes());
    }
    bytes
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).expect("compressed");
    encoder.finish().expect("compressed")
}

pub fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).expect("compressed")
}

/// How layers are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packing {
    None,
    Gzip,
    Zstd,
}

/// An image in parts, to be written in any format and spoilt in any part.
#[derive(Clone)]
pub struct Built {
    pub config: Vec<u8>,
    pub manifest: Vec<u8>,
    pub layers: Vec<Vec<u8>>,
}

impl Built {
    pub fn new(config: &ImageConfig, layers: &[Layer], packing: Packing) -> Self {
        let tars: Vec<_> = layers.iter().map(Layer::build).collect();
        let media = match packing {
            Packing::None => "application/vnd.oci.image.layer.v1.tar",
            Packing::Gzip => "application/vnd.oci.image.layer.v1.tar+gzip",
            Packing::Zstd => "application/vnd.oci.image.layer.v1.tar+zstd",
        };
        let pack = |tar: &Vec<u8>| match packing {
            Packing::None => tar.clone(),
            Packing::Gzip => gzip(tar),
            Packing::Zstd => zstd(tar),
        };
        let layers: Vec<_> = tars.iter().map(pack).collect();
        let diff_ids: Vec<_> = tars.iter().map(|tar| Digest::of(tar).to_string()).collect();
        let document = json!({
            "architecture": turnjail_images::architecture(),
            "os": "linux",
            "config": {
                "Entrypoint": config.entrypoint, "Cmd": null, "Env": config.env,
                "WorkingDir": config.working_dir, "Labels": config.labels,
            },
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
        });
        let config = document.to_string().into_bytes();
        let manifest = manifest(&config, &layers, media);
        Self { config, manifest: manifest.to_string().into_bytes(), layers }
    }

    /// The manifest as a value, to be changed.
    pub fn manifest_value(&self) -> Value {
        serde_json::from_slice(&self.manifest).expect("JSON")
    }

    pub fn index(&self, name: &str) -> Value {
        json!({
            "schemaVersion": 2,
            "manifests": [{
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "digest": Digest::of(&self.manifest).as_str(),
                "size": self.manifest.len(),
                "annotations": {"org.opencontainers.image.ref.name": name},
            }],
        })
    }

    /// Everything of an OCI layout but its index.
    pub fn blobs(&self) -> Vec<(String, Vec<u8>)> {
        let parts = self.layers.iter().chain([&self.config, &self.manifest]);
        let named =
            parts.map(|bytes| (format!("blobs/sha256/{}", Digest::of(bytes).hex()), bytes.clone()));
        named.collect()
    }

    pub fn oci_files(&self, name: &str) -> Vec<(String, Vec<u8>)> {
        let mut files = self.blobs();
        files.push(("oci-layout".to_owned(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec()));
        files.push(("index.json".to_owned(), self.index(name).to_string().into_bytes()));
        files
    }

    pub fn oci_archive(&self, name: &str) -> Vec<u8> {
        archive(&self.oci_files(name))
    }

    pub fn oci_directory(&self, dir: &Path, name: &str) -> PathBuf {
        write_files(dir, &self.oci_files(name));
        dir.to_owned()
    }

    pub fn docker_archive(&self, name: &str) -> Vec<u8> {
        let mut files = vec![("config.json".to_owned(), self.config.clone())];
        let mut layers = Vec::new();
        for (number, layer) in self.layers.iter().enumerate() {
            files.push((format!("{number}/layer.tar"), layer.clone()));
            layers.push(format!("{number}/layer.tar"));
        }
        let manifest = json!([{"Config": "config.json", "RepoTags": [name], "Layers": layers}]);
        files.push(("manifest.json".to_owned(), manifest.to_string().into_bytes()));
        archive(&files)
    }
}

pub fn manifest(config: &[u8], layers: &[Vec<u8>], media: &str) -> Value {
    let descriptor = |media: &str, bytes: &[u8]| json!({"mediaType": media, "digest": Digest::of(bytes).as_str(), "size": bytes.len()});
    json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("application/vnd.oci.image.config.v1+json", config),
        "layers": layers.iter().map(|layer| descriptor(media, layer)).collect::<Vec<_>>(),
    })
}

pub fn archive(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    files.iter().fold(Layer::new(), |layer, (name, bytes)| layer.file(name, 0o644, bytes)).build()
}

pub fn write_files(dir: &Path, files: &[(String, Vec<u8>)]) {
    for (name, bytes) in files {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        fs::write(&path, bytes).expect("a file");
    }
}

/// What a tree is: names, kinds, modes and contents, to see that nothing of it was changed.
pub fn snapshot(dir: &Path, except: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut left = vec![dir.to_owned()];
    while let Some(path) = left.pop() {
        if path == except {
            continue;
        }
        let metadata = fs::symlink_metadata(&path).expect("metadata");
        let what = if metadata.is_dir() {
            left.extend(
                fs::read_dir(&path).expect("a list").map(|entry| entry.expect("one").path()),
            );
            "directory".to_owned()
        } else if metadata.is_symlink() {
            fs::read_link(&path).expect("a link").display().to_string()
        } else {
            Digest::of(&fs::read(&path).expect("a file")).to_string()
        };
        found.push(format!("{} {:o} {what}", path.display(), metadata.permissions().mode()));
    }
    found.sort();
    found
}
