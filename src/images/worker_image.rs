//! The worker image: made by the build script, and by the test that makes it again.
//!
//! Everything in it is fixed (names, times, owners, order), so the same worker gives the same digest.

use std::fmt::Write as _;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use turnjail_protocol::MOUNT_POINTS;

/// An image in its parts.
pub struct WorkerImage {
    /// The one layer.
    pub layer: Vec<u8>,
    /// The configuration.
    pub config: Vec<u8>,
    /// The manifest.
    pub manifest: Vec<u8>,
    /// The manifest's digest.
    pub digest: String,
}

impl WorkerImage {
    /// Makes the image of the worker's program and of `definition`, for `architecture` in Rust's words.
    pub fn new(worker: &[u8], definition: &str, architecture: &str) -> Self {
        let layer = layer(worker);
        let config = config(&layer, definition, architecture);
        let manifest = manifest(&layer, &config);
        let digest = digest(&manifest);
        Self { layer, config, manifest, digest }
    }
}

fn layer(worker: &[u8]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for name in MOUNT_POINTS {
        let mut header = header(tar::EntryType::Directory, 0o755, 0);
        let name = name.trim_start_matches('/');
        tar.append_data(&mut header, format!("{name}/"), &[][..]).expect("a directory entry");
    }
    let mut header = header(tar::EntryType::Regular, 0o555, worker.len() as u64);
    tar.append_data(&mut header, "worker", worker).expect("the worker's entry");
    tar.into_inner().expect("the end of the archive")
}

fn header(kind: tar::EntryType, mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

fn config(layer: &[u8], definition: &str, architecture: &str) -> Vec<u8> {
    let architecture = match architecture {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => panic!("turnjail runs on x86_64 and aarch64, not {other:?}"),
    };
    let definition: Value = serde_json::from_str(definition).expect("images/worker/config.json");
    encode(&json!({
        "architecture": architecture,
        "os": "linux",
        "config": definition,
        "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
    }))
}

fn manifest(layer: &[u8], config: &[u8]) -> Vec<u8> {
    let descriptor = |media: &str, bytes: &[u8]| json!({"mediaType": media, "digest": digest(bytes), "size": bytes.len()});
    encode(&json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("application/vnd.oci.image.config.v1+json", config),
        "layers": [descriptor("application/vnd.oci.image.layer.v1.tar", layer)],
    }))
}

fn encode(value: &Value) -> Vec<u8> {
    serde_json::to_vec(value).expect("JSON of plain values")
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold("sha256:".to_owned(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
