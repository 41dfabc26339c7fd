//! How long an import takes beside `tar -x` of the same layers.
//!
//! Measured in turn, several rounds, each into fresh directories; removing them is not counted.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;
use turnjail_images::{Digest, ImageStore, ImportOptions, Source};

const MIB: usize = 1024 * 1024;
const ROUNDS: usize = 5;
/// Files and bytes of each of a layer's three kinds: sources, libraries, and a few large ones.
const KINDS: [(usize, usize); 3] = [(2000, 8 * 1024), (150, 128 * 1024), (4, 8 * MIB)];

fn main() {
    let dir = tempfile::tempdir_in(
        std::env::var_os("TURNJAIL_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from),
    )
    .expect("a directory");
    for gzip in [false, true] {
        measure(dir.path(), gzip);
    }
}

fn measure(dir: &Path, gzip: bool) {
    let tars: Vec<Vec<u8>> = (0..3).map(layer).collect();
    let unpacked: usize = tars.iter().map(Vec::len).sum();
    let layers: Vec<Vec<u8>> =
        tars.iter().map(|tar| if gzip { compress(tar) } else { tar.clone() }).collect();
    let paths: Vec<PathBuf> = layers
        .iter()
        .enumerate()
        .map(|(number, layer)| {
            let path = dir.join(format!("layer-{number}"));
            fs::write(&path, layer).expect("written");
            path
        })
        .collect();
    let archive = dir.join("image.tar");
    fs::write(&archive, saved(&tars, &layers)).expect("written");
    let mut times: [Vec<Duration>; 3] = Default::default();
    for _ in 0..ROUNDS {
        times[0].push(tar(dir, &paths, gzip, false));
        times[1].push(tar(dir, &paths, gzip, true));
        times[2].push(import(dir, &archive));
    }
    let median = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2].as_secs_f64() * 1000.0
    };
    let [plain, synced, import] = times.each_mut().map(median);
    let kind = if gzip { "gzip" } else { "not compressed" };
    println!(
        "{} MiB in 3 layers, {kind}: tar -x {plain:.0} ms, tar -x and sync {synced:.0} ms, import {import:.0} ms ({:.2} x tar -x)",
        unpacked / MIB,
        import / plain
    );
    println!(
        "{}",
        json!({"table": "import", "layers": kind, "tar_ms": plain, "tar_sync_ms": synced, "import_ms": import, "ratio": import / plain})
    );
}

fn tar(dir: &Path, layers: &[PathBuf], gzip: bool, sync: bool) -> Duration {
    let root = dir.join("tar");
    fs::create_dir(&root).expect("a directory");
    let start = Instant::now();
    for layer in layers {
        let mode = if gzip { "-xzf" } else { "-xf" };
        let status = Command::new("tar").arg(mode).arg(layer).arg("-C").arg(&root).status();
        assert!(status.expect("tar").success());
    }
    if sync {
        let status = Command::new("sync").arg("-f").arg(&root).status();
        assert!(status.expect("sync").success());
    }
    let time = start.elapsed();
    fs::remove_dir_all(&root).expect("removed");
    time
}

fn import(dir: &Path, archive: &Path) -> Duration {
    let place = dir.join("store");
    let store = ImageStore::open(&place).expect("a store");
    let source = Source::Path(archive.to_owned());
    let name = "bench".parse().expect("a name");
    let start = Instant::now();
    let imported = store.import(source, &name, &ImportOptions::default()).expect("imported");
    let time = start.elapsed();
    drop(imported);
    fs::remove_dir_all(&place).expect("removed");
    time
}

/// Files as images have them: text that compresses, and what does not.
fn layer(number: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ number as u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut tar = tar::Builder::new(Vec::new());
    for (kind, (files, bytes)) in KINDS.into_iter().enumerate() {
        for file in 0..files {
            let mut content = Vec::with_capacity(bytes);
            while content.len() < bytes {
                let word = random();
                content.extend_from_slice(&word.to_le_bytes());
                content
                    .extend_from_slice(b"the same words again and again, as programs have them ");
            }
            content.truncate(bytes);
            let mut header = tar::Header::new_ustar();
            header.set_mode(0o644);
            header.set_size(bytes as u64);
            header.set_mtime(1_700_000_000);
            let path = format!("usr/{number}/{kind}/{}/{file}", file / 100);
            tar.append_data(&mut header, path, &content[..]).expect("an entry");
        }
    }
    tar.into_inner().expect("a layer")
}

fn compress(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).expect("compressed");
    encoder.finish().expect("compressed")
}

/// As `docker save` writes it.
fn saved(tars: &[Vec<u8>], layers: &[Vec<u8>]) -> Vec<u8> {
    let diff_ids: Vec<_> = tars.iter().map(|tar| Digest::of(tar).to_string()).collect();
    let config = json!({
        "architecture": turnjail_images::architecture(), "os": "linux", "config": {},
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    });
    let names: Vec<_> = (0..layers.len()).map(|number| format!("{number}/layer.tar")).collect();
    let manifest =
        json!([{"Config": "config.json", "RepoTags": ["bench:latest"], "Layers": names}]);
    let mut tar = tar::Builder::new(Vec::new());
    let mut add = |name: &str, bytes: &[u8]| {
        let mut header = tar::Header::new_ustar();
        header.set_mode(0o644);
        header.set_size(bytes.len() as u64);
        tar.append_data(&mut header, name, bytes).expect("an entry");
    };
    for (name, layer) in names.iter().zip(layers) {
        add(name, layer);
    }
    add("config.json", config.to_string().as_bytes());
    add("manifest.json", manifest.to_string().as_bytes());
    tar.into_inner().expect("an archive")
}
