//! Makes the built-in image: the static worker in one layer, its configuration and its manifest.
//!
//! Everything in it is fixed (names, times, owners, order), so the same worker gives the same digest.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use turnjail_protocol::{MOUNT_POINTS, PROFILE_LABEL, PROTOCOL_LABEL, SANDBOX_PROTOCOL};

fn main() {
    let worker = turnjail_build::build("turnjail-worker", &["worker", "src/protocol"]);
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("OUT_DIR"));
    let layer = layer(&fs::read(worker).expect("the worker that was just built"));
    let config = config(&layer);
    let manifest = manifest(&layer, &config);
    write(&out, "layer.tar", &layer);
    write(&out, "config.json", &config);
    write(&out, "manifest.json", &manifest);
    let digest = format!("pub(crate) const DIGEST: &str = \"{}\";\n", digest(&manifest));
    write(&out, "digest.rs", digest.as_bytes());
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

fn config(layer: &[u8]) -> Vec<u8> {
    let architecture = match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("x86_64") => "amd64".to_owned(),
        Ok("aarch64") => "arm64".to_owned(),
        other => panic!("turnjail runs on x86_64 and aarch64, not {other:?}"),
    };
    encode(&json!({
        "architecture": architecture,
        "os": "linux",
        "config": {
            "Entrypoint": ["/worker"],
            "WorkingDir": "/",
            "Labels": {
                PROFILE_LABEL: "sealed",
                PROTOCOL_LABEL: SANDBOX_PROTOCOL.to_string(),
            },
        },
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

fn write(dir: &Path, name: &str, bytes: &[u8]) {
    fs::write(dir.join(name), bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
}
