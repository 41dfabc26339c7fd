//! The worker's program: the one in the built-in image, as it ships.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use turnjail_images::{BUILTIN, ImageStore};

/// The static worker. Its image is kept between runs, in a directory of this user's.
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let name = format!("turnjail-test-images-{}", nix::unistd::geteuid());
        let store = ImageStore::open(&std::env::temp_dir().join(name)).expect("an image store");
        store.resolve(BUILTIN).expect("the built-in image").rootfs.join("worker")
    })
}
