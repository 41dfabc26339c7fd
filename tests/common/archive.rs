//! Images as archives, in the form that `docker save` writes: the worker's, and variations of it.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use turnjail_protocol::{PROFILE_LABEL, PROTOCOL_LABEL, SANDBOX_PROTOCOL};

use crate::program;

/// The configuration of the worker image for this host, to be altered.
pub fn configuration() -> Value {
    json!({
        "architecture": turnjail_driver::image::host_architecture(),
        "os": "linux",
        "config": {
            "Entrypoint": ["/worker"],
            "WorkingDir": "/",
            "Labels": {
                PROFILE_LABEL: "sealed",
                PROTOCOL_LABEL: SANDBOX_PROTOCOL.to_string(),
            },
        },
    })
}

/// An archive with one image: the static worker, or another static program, with a configuration.
///
/// # Panics
/// When the worker cannot be read.
pub fn image(reference: &str, program: &[u8], mut configuration: Value) -> Vec<u8> {
    let layer = layer(program);
    configuration["rootfs"] =
        json!({"type": "layers", "diff_ids": [format!("sha256:{}", digest(&layer))]});
    let configuration = configuration.to_string().into_bytes();
    let name = format!("{}.json", digest(&configuration));
    let manifest = json!([{"Config": name, "RepoTags": [reference], "Layers": ["layer.tar"]}]);
    let mut archive = tar::Builder::new(Vec::new());
    for (name, bytes) in [
        (name.as_str(), configuration.as_slice()),
        ("layer.tar", &layer),
        ("manifest.json", manifest.to_string().as_bytes()),
    ] {
        let mut header = header(tar::EntryType::Regular, 0o644, bytes.len());
        archive.append_data(&mut header, name, bytes).expect("an entry");
    }
    archive.into_inner().expect("an archive")
}

/// The worker's own image under a name.
///
/// # Panics
/// When the worker cannot be read.
pub fn worker(reference: &str) -> Vec<u8> {
    image(reference, &std::fs::read(program()).expect("the worker"), configuration())
}

fn layer(program: &[u8]) -> Vec<u8> {
    let mut layer = tar::Builder::new(Vec::new());
    for name in ["broker/", "channel/", "dev/", "proc/", "tmp/", "workspace/"] {
        let mut header = header(tar::EntryType::Directory, 0o755, 0);
        layer.append_data(&mut header, name, &[][..]).expect("an entry");
    }
    let mut header = header(tar::EntryType::Regular, 0o555, program.len());
    layer.append_data(&mut header, "worker", program).expect("an entry");
    layer.into_inner().expect("a layer")
}

fn header(kind: tar::EntryType, mode: u32, size: usize) -> tar::Header {
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size as u64);
    header
}

fn digest(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
