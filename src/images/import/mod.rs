//! Import: an archive becomes an image of the store, or nothing is left of it.

mod assembly;
mod candidate;
mod container;
mod docker;
mod layers;
mod oci;
mod options;
mod packed;
mod publish;

use std::path::Path;

use oci_spec::image::{ImageConfiguration, MediaType};

pub use assembly::{Assembly, Needed, manifest_for, parts_of};
use candidate::{Candidate, Origin};
use container::Container;
use layers::{Layers, Unpacked};
pub use options::{Format, ImportOptions, Imported, Platform, Progress, Skipped, Source};
pub(crate) use packed::unpack;

use crate::directories::Staging;
use crate::{Digest, ImageConfig, ImageError, ImageStore, Reference, builtin};

impl ImageStore {
    /// Makes an image of what `source` holds, under the name `name`.
    ///
    /// What the archive calls itself selects among its images and nothing else: the name is the caller's,
    /// and the identity is the digest. A name that is there already means the new image from then on.
    /// Every digest and size is verified, and whatever breaks a rule or a limit leaves nothing behind.
    pub fn import(
        &self,
        source: Source,
        name: &Reference,
        options: &ImportOptions<'_>,
    ) -> Result<Imported, ImageError> {
        check_name(name)?;
        let staging = self.dirs.stage()?;
        let container = Container::open(source, &staging, options)?;
        let mut candidates = candidate::candidates(&container, options)?;
        let chosen = candidate::choose(&mut candidates, name, options, container.shown())?;
        self.import_one(&container, &chosen, name, options)
    }

    /// Makes images of all that `source` holds, under the names that it gives them, as `docker load` does.
    ///
    /// A name that means another image already is an error and stays what it is.
    pub fn load(
        &self,
        source: Source,
        options: &ImportOptions<'_>,
    ) -> Result<Vec<Imported>, ImageError> {
        let staging = self.dirs.stage()?;
        let container = Container::open(source, &staging, options)?;
        let candidates = candidate::candidates(&container, options)?;
        let mut imported = Vec::new();
        for candidate in &candidates {
            for name in candidate.references(container.shown())? {
                check_name(&name)?;
                let options = ImportOptions { keep_names: true, ..options.clone() };
                imported.push(self.import_one(&container, candidate, &name, &options)?);
            }
        }
        if imported.is_empty() {
            let what = "it has no image with a name; import it with a name of your own";
            return Err(ImageError::refused(container.shown(), what));
        }
        Ok(imported)
    }

    /// The list of steps.
    fn import_one(
        &self,
        container: &Container,
        candidate: &Candidate,
        name: &Reference,
        options: &ImportOptions<'_>,
    ) -> Result<Imported, ImageError> {
        let staging = self.dirs.stage()?;
        let parts = unpack_layers(container, candidate, &staging, options)?;
        let prepared = assemble(candidate, parts, container.shown(), options)?;
        self.publish(&staging, prepared, name, options)
    }
}

/// A name that may be given away.
fn check_name(name: &Reference) -> Result<(), ImageError> {
    if builtin::owns(name) {
        let what = "is the name of the worker built into turnjail, and of nothing else".to_owned();
        return Err(ImageError::Reference { text: name.to_string(), what });
    }
    Ok(())
}

fn unpack_layers(
    container: &Container,
    candidate: &Candidate,
    staging: &Staging,
    options: &ImportOptions<'_>,
) -> Result<Unpacked, ImageError> {
    let mut layers = Layers::new(staging, options)?;
    match &candidate.origin {
        Origin::Oci { manifest, .. } => oci::unpack(container, manifest, &mut layers)?,
        Origin::Docker { layers: names, .. } => docker::unpack(container, names, &mut layers)?,
        Origin::Rootfs => layers.add(container.whole()?, None)?,
    }
    layers.finish()
}

/// All that is to be published.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub manifest: Vec<u8>,
    pub media_type: MediaType,
    pub config: Vec<u8>,
    pub parsed: ImageConfig,
    /// The index that the manifest was chosen from.
    pub index: Option<Vec<u8>>,
    pub unpacked: Unpacked,
}

/// Configuration and manifest, as the archive has them or made anew, fitting to the layers.
fn assemble(
    candidate: &Candidate,
    unpacked: Unpacked,
    object: &str,
    options: &ImportOptions<'_>,
) -> Result<Prepared, ImageError> {
    let (config, manifest, index) = match &candidate.origin {
        Origin::Oci { manifest, bytes, media_type, config, index } => {
            oci::check(manifest, object)?;
            (config.clone(), Some((bytes.clone(), media_type.clone())), index.clone())
        }
        Origin::Docker { config, .. } => (config.clone(), None, None),
        Origin::Rootfs => {
            let config = options.config.clone().unwrap_or_default();
            (layers::configuration(&config, &unpacked), None, None)
        }
    };
    let configuration: ImageConfiguration = serde_json::from_slice(&config).map_err(|error| {
        ImageError::refused(object, format!("its configuration is not understood: {error}"))
    })?;
    layers::check_diff_ids(&configuration, &unpacked, object)?;
    let parsed =
        ImageConfig::of(&configuration).map_err(|what| ImageError::refused(object, what))?;
    options.check_platform(&parsed, object)?;
    let (manifest, media_type) = match manifest {
        Some(manifest) => manifest,
        None => (layers::manifest(&config, &unpacked), MediaType::ImageManifest),
    };
    Ok(Prepared { manifest, media_type, config, parsed, index, unpacked })
}

impl Prepared {
    /// The image's identity.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.manifest)
    }
}

/// A path for messages.
pub(crate) fn shown(path: &Path) -> String {
    path.display().to_string()
}
