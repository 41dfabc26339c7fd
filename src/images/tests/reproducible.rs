//! The worker image is made of the worker and its definition and of nothing else: not of the time, the
//! place or the order of anything.

mod common;
#[path = "../worker_image.rs"]
mod worker_image;

use std::fs;

use turnjail_images::{BUILTIN, builtin_digest};
use worker_image::WorkerImage;

const DEFINITION: &str = include_str!("../../../images/worker/config.json");

#[test]
fn the_same_worker_gives_the_same_digest() {
    let place = common::Place::new();
    let image = place.store.resolve(BUILTIN).expect("the built-in image");
    let worker = fs::read(image.rootfs.join("worker")).expect("the worker");
    let make = |worker: &[u8]| WorkerImage::new(worker, DEFINITION, std::env::consts::ARCH);
    let again = make(&worker);
    assert_eq!(again.digest, builtin_digest());
    for _ in 0..8 {
        let other = make(&worker);
        assert!(other.manifest == again.manifest && other.config == again.config);
        assert!(other.layer == again.layer);
    }
    let mut changed = worker;
    changed[100] ^= 1;
    assert_ne!(make(&changed).digest, builtin_digest(), "another worker has another");
}
