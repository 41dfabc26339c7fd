//! An image that can be used.

use std::path::PathBuf;
use std::sync::Arc;

use crate::lock::Lock;
use crate::{ImageConfig, ImageError};

/// An image that a turn can use. As long as it or a copy of it lives, the store does not remove its root
/// filesystem unless it is forced to.
#[derive(Debug, Clone)]
pub struct Image {
    /// The reference it was asked for by.
    pub reference: String,
    /// The digest of its manifest, `sha256:...`: its identity.
    pub digest: String,
    /// Its root filesystem, a directory that nothing writes to any more.
    pub rootfs: PathBuf,
    /// How to start it.
    pub config: ImageConfig,
    /// Bytes of all its layers, unpacked.
    pub size: u64,
    pub(crate) _lease: Option<Arc<Lock>>,
}

impl Image {
    /// A root filesystem that is no store's, for embedders who bring their own: nothing is verified, the
    /// digest is empty, and nobody keeps it from being removed.
    pub fn outside_a_store(reference: &str, rootfs: PathBuf, config: ImageConfig) -> Self {
        let reference = reference.to_owned();
        Self { reference, digest: String::new(), rootfs, config, size: 0, _lease: None }
    }

    /// What every driver wants of an image before it starts it: something to start, for this machine.
    pub fn check_runnable(&self) -> Result<(), ImageError> {
        let refuse = |what: String| Err(ImageError::Config { image: self.reference.clone(), what });
        let config = &self.config;
        if config.command().next().is_none_or(String::is_empty) {
            return refuse("names no program: it has neither Entrypoint nor Cmd".to_owned());
        }
        if !config.is_for_this_machine() {
            let (os, architecture) = (&config.os, &config.architecture);
            let here = crate::architecture();
            return refuse(format!("is for {os}/{architecture}, and this machine is linux/{here}"));
        }
        Ok(())
    }
}

/// The identity of an image does not depend on who holds it.
impl PartialEq for Image {
    fn eq(&self, other: &Self) -> bool {
        self.reference == other.reference
            && self.digest == other.digest
            && self.rootfs == other.rootfs
            && self.config == other.config
    }
}

impl Eq for Image {}
