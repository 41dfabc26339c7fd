//! The images that an archive holds, and which of them is meant.

use oci_spec::image::{ImageManifest, MediaType};

use super::container::Container;
use super::{Format, ImportOptions, docker, oci};
use crate::{ImageError, Reference};

/// One image of an archive.
#[derive(Debug)]
pub(crate) struct Candidate {
    /// What the archive calls it.
    pub names: Vec<String>,
    pub origin: Origin,
}

/// How an archive describes an image.
#[derive(Debug)]
pub(crate) enum Origin {
    Oci {
        manifest: Box<ImageManifest>,
        bytes: Vec<u8>,
        media_type: MediaType,
        config: Vec<u8>,
        /// The index that the manifest was chosen from.
        index: Option<Vec<u8>>,
    },
    Docker {
        config: Vec<u8>,
        /// The members that are the layers.
        layers: Vec<String>,
    },
    Rootfs,
}

/// Everything in it, for one platform.
pub(crate) fn candidates(
    container: &Container,
    options: &ImportOptions<'_>,
) -> Result<Vec<Candidate>, ImageError> {
    let format = match options.format {
        Format::Auto if container.has("oci-layout") && container.has("index.json") => Format::Oci,
        Format::Auto if container.has("manifest.json") => Format::Docker,
        Format::Auto => Format::Rootfs,
        format => format,
    };
    if format != Format::Rootfs && options.config.is_some() {
        let what = "it has a configuration of its own, and another was given";
        return Err(ImageError::refused(container.shown(), what));
    }
    match format {
        Format::Oci => oci::candidates(container, options),
        Format::Docker => docker::candidates(container, options),
        Format::Rootfs | Format::Auto => {
            Ok(vec![Candidate { names: Vec::new(), origin: Origin::Rootfs }])
        }
    }
}

/// The one that is meant: by the name that was asked for, by the name that it shall have, or because
/// there is no other.
pub(crate) fn choose(
    candidates: &mut Vec<Candidate>,
    name: &Reference,
    options: &ImportOptions<'_>,
    object: &str,
) -> Result<Candidate, ImageError> {
    let ambiguous = |candidates: &[Candidate]| ImageError::Ambiguous {
        object: object.to_owned(),
        names: candidates.iter().map(Candidate::shown).collect::<Vec<_>>().join(", "),
    };
    let found = match &options.select {
        Some(select) => {
            let wanted = select.parse::<Reference>().ok();
            candidates.iter().position(|one| one.is(select, wanted.as_ref()))
        }
        None if candidates.len() == 1 => Some(0),
        None => candidates.iter().position(|one| one.is(name.tag().unwrap_or(""), Some(name))),
    };
    found.map(|at| candidates.swap_remove(at)).ok_or_else(|| ambiguous(candidates))
}

impl Candidate {
    fn is(&self, text: &str, reference: Option<&Reference>) -> bool {
        let same = |name: &String| {
            name == text || (reference.is_some() && name.parse().ok().as_ref() == reference)
        };
        self.names.iter().any(same)
    }

    fn shown(&self) -> String {
        match &self.names[..] {
            [] => "one without a name".to_owned(),
            names => names
                .iter()
                .map(|name| name.escape_debug().to_string())
                .collect::<Vec<_>>()
                .join(" or "),
        }
    }

    /// The names that the archive gives it, which must be ones.
    pub fn references(&self, object: &str) -> Result<Vec<Reference>, ImageError> {
        let parsed = self.names.iter().map(|name| {
            name.parse().map_err(|error: ImageError| ImageError::refused(object, error.to_string()))
        });
        parsed.collect()
    }
}
