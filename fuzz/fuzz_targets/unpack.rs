//! Unpacking: layers of hostile bytes, within small limits, into a directory that is looked at afterwards.

#![no_main]

use libfuzzer_sys::fuzz_target;
use turnjail_images::ImageLimits;
use turnjail_images::fuzzing::unpack;

const LIMITS: ImageLimits = ImageLimits {
    entries: 1000,
    layers: 4,
    layer_bytes: 1 << 20,
    total_bytes: 1 << 21,
    ratio: 200,
    metadata_bytes: 1 << 16,
    name_bytes: 4096,
    depth: 64,
};

fuzz_target!(|bytes: &[u8]| {
    let root = tempfile::tempdir().expect("a directory");
    // Both as one layer and as two, so that whiteouts have something to hide.
    let (lower, upper) = bytes.split_at(bytes.len() / 2 / 512 * 512);
    let _ = unpack(&[bytes], root.path(), LIMITS);
    let root = tempfile::tempdir().expect("a directory");
    let _ = unpack(&[lower, upper], root.path(), LIMITS);
});
