//! What can be wrong with an image or the store.

use std::io;
use std::path::PathBuf;

/// What can be wrong with an image or the store: one sentence naming the object; the remedy apart.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// No image of this name is in the store.
    #[error("image {0:?} is not in the store")]
    Absent(String),
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
    /// A file of the store cannot be read or written.
    #[error("image store: cannot {action} {path}: {source}")]
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
}

impl ImageError {
    /// A stable word for logs and machines.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Absent(_) => "image-absent",
            Self::Store { .. } => "image-store",
            Self::Io { .. } => "image-store-io",
            Self::Config { .. } => "image-config",
        }
    }

    /// One line saying what to do.
    pub fn remedy(&self) -> String {
        match self {
            Self::Absent(_) => {
                format!("set image = {:?}, the worker built into turnjail", crate::BUILTIN)
            }
            Self::Store { remedy, .. } => (*remedy).to_owned(),
            Self::Io { .. } => "check the directory's owner, permissions and free space".to_owned(),
            Self::Config { .. } => "correct the image and import it again".to_owned(),
        }
    }

    pub(crate) fn io(
        action: &'static str,
        path: &std::path::Path,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}
