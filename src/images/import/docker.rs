//! What `docker save` writes: `manifest.json` names a configuration and layers.

use serde::Deserialize;

use super::ImportOptions;
use super::candidate::{Candidate, Origin};
use super::container::Container;
use super::layers::Layers;
use crate::ImageError;

/// An archive of more images than this is not looked through.
const IMAGES: usize = 64;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Option<Vec<String>>,
}

/// All images of the archive.
pub(super) fn candidates(
    container: &Container,
    options: &ImportOptions<'_>,
) -> Result<Vec<Candidate>, ImageError> {
    let refuse = |what: String| ImageError::refused(container.shown(), what);
    let manifest = container.document("manifest.json", &options.limits)?;
    let saved: Vec<Saved> = serde_json::from_slice(&manifest)
        .map_err(|error| refuse(format!("its manifest.json is not understood: {error}")))?;
    if saved.is_empty() || saved.len() > IMAGES {
        return Err(refuse(format!("its manifest.json has {} images", saved.len())));
    }
    let candidates = saved.into_iter().map(|saved| {
        let config = container.document(&saved.config, &options.limits)?;
        let origin = Origin::Docker { config, layers: saved.layers.unwrap_or_default() };
        Ok(Candidate { names: saved.repo_tags.unwrap_or_default(), origin })
    });
    candidates.collect()
}

/// Applies the layers. They have no digests of their own here: the configuration's, of the unpacked
/// layers, are checked afterwards.
pub(super) fn unpack(
    container: &Container,
    names: &[String],
    layers: &mut Layers<'_>,
) -> Result<(), ImageError> {
    layers.expect(names.len(), container.shown())?;
    names.iter().try_for_each(|name| layers.add(container.content(name)?, None))
}
