//! What can be wrong with an image or the store.

use std::io;
use std::path::{Path, PathBuf};

use crate::{BUILTIN, Digest, ImageLimits};

/// What can be wrong with an image or the store: one sentence naming the object; the remedy apart.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// No image of this name is in the store.
    #[error("image {0:?} is not in the store")]
    Absent(String),
    /// What was given is no reference, or not one that may be used here.
    #[error("image reference {text:?} {what}")]
    Reference {
        /// What was given.
        text: String,
        /// What is wrong with it.
        what: String,
    },
    /// The store's directory cannot be used.
    #[error("image store {path}: {what}")]
    Store {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A file of the store, or one that is imported or exported, cannot be read or written.
    #[error("images: cannot {action} {path}: {source}")]
    Io {
        /// What was tried, a verb.
        action: &'static str,
        /// The object.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The image's configuration is not usable.
    #[error("image {image:?}: {what}")]
    Config {
        /// The image's reference.
        image: String,
        /// What is wrong.
        what: String,
    },
    /// An archive breaks a rule; nothing of it was kept.
    #[error("{object} is refused: {what}")]
    Refused {
        /// The archive, layer or entry.
        object: String,
        /// What is wrong with it.
        what: String,
    },
    /// An archive goes beyond a limit; nothing of it was kept.
    #[error("{object} is refused: it has more than {limit}")]
    Limit {
        /// The archive, layer or entry.
        object: String,
        /// The limit in words, with its unit.
        limit: String,
        /// The setting that holds it.
        setting: &'static str,
    },
    /// A content is not what its digest or size says.
    #[error("{object} is not what was promised: expected {expected}, found {found}")]
    Mismatch {
        /// The content.
        object: String,
        /// The digest or size that was promised.
        expected: String,
        /// What it is.
        found: String,
    },
    /// There is nothing for this machine.
    #[error("{object} has nothing for {wanted}; it has {available}")]
    Platform {
        /// The archive or image.
        object: String,
        /// The platform that was asked for.
        wanted: String,
        /// What there is.
        available: String,
    },
    /// An archive holds several images, and it was not said which.
    #[error("{object} holds several images: {names}")]
    Ambiguous {
        /// The archive.
        object: String,
        /// What there is.
        names: String,
    },
    /// A running turn uses the image.
    #[error("image {0:?} is in use by a running jail")]
    InUse(String),
}

impl ImageError {
    /// A stable word for logs and machines.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Absent(_) => "image-absent",
            Self::Reference { .. } => "image-reference",
            Self::Store { .. } => "image-store",
            Self::Io { .. } => "image-store-io",
            Self::Config { .. } => "image-config",
            Self::Refused { .. } => "image-refused",
            Self::Limit { .. } => "image-limit",
            Self::Mismatch { .. } => "image-digest",
            Self::Platform { .. } => "image-platform",
            Self::Ambiguous { .. } => "image-ambiguous",
            Self::InUse(_) => "image-in-use",
        }
    }

    /// One line saying what to do.
    pub fn remedy(&self) -> String {
        match self {
            Self::Absent(reference) => format!(
                "run `turnjail image pull {reference}` or `turnjail image import FILE {reference}`, or set \
                 image = {BUILTIN:?}, the worker built into turnjail"
            ),
            Self::Reference { what, .. } if what.starts_with("is the name of") => {
                "choose another name, or remove the image that has it: `turnjail image remove`"
                    .to_owned()
            }
            Self::Reference { .. } => {
                "write name[:tag][@sha256:...], for example busybox:1.36".to_owned()
            }
            Self::Store { remedy, .. } => (*remedy).to_owned(),
            Self::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                "make room, for example with `turnjail image gc`".to_owned()
            }
            Self::Io { .. } => "check the path, its owner and permissions".to_owned(),
            Self::Config { .. } => "correct the image and import it again".to_owned(),
            Self::Refused { .. } => {
                "get the image from a source you trust, or have it built without this".to_owned()
            }
            Self::Limit { setting, .. } => {
                format!("raise import.{setting} if you trust the image; nothing of it was kept")
            }
            Self::Mismatch { .. } => "the content is damaged or forged: get it again".to_owned(),
            Self::Platform { .. } => "name a platform that it has with --platform".to_owned(),
            Self::Ambiguous { .. } => "say which one with --select NAME".to_owned(),
            Self::InUse(_) => "wait until it has ended, or add --force".to_owned(),
        }
    }

    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        // What a reader of ours refused comes back through the reader's interface.
        move |source| match source.downcast::<Self>() {
            Ok(own) => own,
            Err(source) => Self::Io { action, path, source },
        }
    }

    pub(crate) fn errno(
        action: &'static str,
        path: &Path,
    ) -> impl FnOnce(rustix::io::Errno) -> Self {
        let path = path.to_owned();
        move |errno| Self::Io { action, path, source: errno.into() }
    }

    pub(crate) fn refused(object: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Refused { object: object.into(), what: what.into() }
    }

    pub(crate) fn layer_limit(object: impl Into<String>, limits: &ImageLimits) -> Self {
        let limit = format!("{} bytes in a layer", limits.layer_bytes);
        Self::Limit { object: object.into(), limit, setting: "max_layer_mb" }
    }

    pub(crate) fn mismatch(object: impl Into<String>, expected: &Digest, found: &Digest) -> Self {
        Self::Mismatch {
            object: object.into(),
            expected: expected.to_string(),
            found: found.to_string(),
        }
    }

    /// As a reader's error, for rules that are applied while reading.
    pub(crate) fn into_io(self) -> io::Error {
        io::Error::other(self)
    }
}
