//! Makes the built-in image: the static worker in one layer, its configuration and its manifest.

mod worker_image;

use std::path::{Path, PathBuf};
use std::{env, fs};

use turnjail_protocol::{PROTOCOL_LABEL, SANDBOX_PROTOCOL};

use worker_image::WorkerImage;

const DEFINITION: &str = include_str!("../../images/worker/config.json");

fn main() {
    let worker = turnjail_build::build("turnjail-worker", &["worker", "src/protocol"]);
    for file in ["build.rs", "worker_image.rs", "../../images/worker/config.json"] {
        println!("cargo::rerun-if-changed={file}");
    }
    let label = format!("\"{PROTOCOL_LABEL}\": \"{SANDBOX_PROTOCOL}\"");
    assert!(DEFINITION.contains(&label), "images/worker/config.json must say {label}");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("OUT_DIR"));
    let architecture = env::var("CARGO_CFG_TARGET_ARCH").expect("the target's architecture");
    let worker = fs::read(worker).expect("the worker that was just built");
    let image = WorkerImage::new(&worker, DEFINITION, &architecture);
    write(&out, "layer.tar", &image.layer);
    write(&out, "config.json", &image.config);
    write(&out, "manifest.json", &image.manifest);
    let digest = format!("pub(crate) const DIGEST: &str = \"{}\";\n", image.digest);
    write(&out, "digest.rs", digest.as_bytes());
}

fn write(dir: &Path, name: &str, bytes: &[u8]) {
    fs::write(dir.join(name), bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
}
