//! Memory does not grow with what a hostile archive calls things.

mod common;

use std::path::PathBuf;
use std::process::Command;

use common::{Layer, Place, name};
use turnjail_images::{Format, ImageStore, ImportOptions, Source};

const STORE: &str = "TURNJAIL_TEST_MEMORY_STORE";
const ARCHIVE: &str = "TURNJAIL_TEST_MEMORY_ARCHIVE";
/// So many names or targets of almost 4096 bytes: 35 MiB of them.
const NAMES: usize = 9_000;
/// Half of what they would take.
const MORE_KIB: u64 = 17 * 1024;

/// Imports, whatever comes of it, and says how much memory this process had at most.
#[test]
#[ignore = "the other test of this file starts it as a process"]
fn child() {
    let variable =
        |name: &str| std::env::var_os(name).map(PathBuf::from).expect("started by a test");
    let store = ImageStore::open(&variable(STORE)).expect("a store");
    for format in [Format::Auto, Format::Rootfs] {
        let options = ImportOptions { format, ..ImportOptions::default() };
        let _ = store.import(Source::Path(variable(ARCHIVE)), &name("x"), &options);
        let _ = store.verify();
    }
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    println!("\npeak{peak}");
}

fn peak_kib(archive: &[u8]) -> u64 {
    let place = Place::new();
    let archive = place.write("archive", archive);
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "child", "--ignored", "--nocapture", "--test-threads", "1"])
        .env(STORE, place.dir())
        .env(ARCHIVE, archive)
        .output()
        .expect("a child");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let peak = text.lines().find_map(|line| line.strip_prefix("peak"));
    let peak = peak.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)));
    peak.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn a46_long_names_and_targets_are_not_kept() {
    let long = "t".repeat(4000);
    let targets = (0..NAMES).fold(Layer::new(), |layer, number| {
        layer.pax(&[("linkpath", &long)]).symlink(&format!("{number}"), "x")
    });
    let directories = format!("{}/", "d".repeat(240)).repeat(16);
    let hidden = (0..NAMES).fold(Layer::new(), |layer, number| {
        layer.pax(&[("path", &format!("{directories}.wh.{number}"))]).file("x", 0o644, b"")
    });
    let few = peak_kib(&Layer::new().file("x", 0o644, b"").build());
    for (archive, what) in [(targets, "targets"), (hidden, "whiteouts")] {
        let peak = peak_kib(&archive.build());
        assert!(peak < few + MORE_KIB, "{peak} KiB for {what}, and {few} KiB without");
    }
}
