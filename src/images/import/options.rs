//! What to import, and how.

use std::fmt;
use std::io::Read;
use std::path::PathBuf;
use std::str::FromStr;

use crate::{Image, ImageConfig, ImageError, ImageLimits, Reference, architecture};

/// Where an image comes from.
pub enum Source {
    /// An archive, a pipe, or the directory of an OCI image layout.
    Path(PathBuf),
    /// An archive as a stream, such as standard input.
    Stream(Box<dyn Read + Send>),
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => f.debug_tuple("Path").field(path).finish(),
            Self::Stream(_) => f.write_str("Stream"),
        }
    }
}

/// What an archive is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// Found out by what it holds: `oci-layout` and `index.json`, or `manifest.json`, or neither, which
    /// makes it a root filesystem.
    #[default]
    Auto,
    /// An OCI image layout, as an archive or a directory.
    Oci,
    /// What `docker save` writes.
    Docker,
    /// The files of a root filesystem, as `docker export` or `tar` writes them.
    Rootfs,
}

/// What an image is made for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Platform {
    /// The operating system, such as `linux`.
    pub os: String,
    /// The architecture, such as `amd64`.
    pub architecture: String,
    /// The architecture's version, such as `v8`; none takes any.
    pub variant: Option<String>,
}

impl Platform {
    /// This machine's.
    pub fn here() -> Self {
        Self { os: "linux".to_owned(), architecture: architecture().to_owned(), variant: None }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        self.variant.iter().try_for_each(|variant| write!(f, "/{variant}"))
    }
}

impl FromStr for Platform {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<_> = text.split('/').map(str::to_owned).collect();
        let (os, architecture, variant) = match &parts[..] {
            [os, architecture] => (os, architecture, None),
            [os, architecture, variant] => (os, architecture, Some(variant.clone())),
            _ => return Err(format!("{text:?} is no platform such as linux/amd64")),
        };
        if parts.iter().any(String::is_empty) {
            return Err(format!("{text:?} is no platform such as linux/amd64"));
        }
        Ok(Self { os: os.clone(), architecture: architecture.clone(), variant })
    }
}

/// Told while an import goes on.
pub trait Progress: Sync {
    /// Layer `number` of `of` begins; it has `bytes` in the archive.
    fn layer(&self, number: usize, of: usize, bytes: u64) {
        let _ = (number, of, bytes);
    }

    /// So many bytes more of the layer have been unpacked.
    fn advance(&self, bytes: u64) {
        let _ = bytes;
    }
}

/// How to import.
#[derive(Clone, Default)]
pub struct ImportOptions<'p> {
    /// How much the image may hold.
    pub limits: ImageLimits,
    /// What the archive is.
    pub format: Format,
    /// What the image must be for; this machine by default.
    pub platform: Option<Platform>,
    /// Which of an archive's images, by the name that it has there.
    pub select: Option<String>,
    /// The configuration of a root filesystem, which has none of its own.
    pub config: Option<ImageConfig>,
    /// Whether a name that means another image already stays as it is, and the import fails.
    pub keep_names: bool,
    /// Who is told how far it is.
    pub progress: Option<&'p dyn Progress>,
}

impl fmt::Debug for ImportOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImportOptions")
            .field("limits", &self.limits)
            .field("format", &self.format)
            .field("platform", &self.platform)
            .field("select", &self.select)
            .finish_non_exhaustive()
    }
}

impl ImportOptions<'_> {
    /// The platform that is wanted.
    pub fn wanted(&self) -> Platform {
        self.platform.clone().unwrap_or_else(Platform::here)
    }

    pub(crate) fn check_platform(
        &self,
        config: &ImageConfig,
        object: &str,
    ) -> Result<(), ImageError> {
        let wanted = self.wanted();
        if config.os == wanted.os && config.architecture == wanted.architecture {
            return Ok(());
        }
        Err(ImageError::Platform {
            object: object.to_owned(),
            wanted: wanted.to_string(),
            available: format!("{}/{}", config.os, config.architecture),
        })
    }
}

/// What an archive held and an image does not: counted, never made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Device nodes.
    pub devices: u64,
    /// Named pipes.
    pub fifos: u64,
    /// Entries whose set-user-id or set-group-id bit was dropped.
    pub set_id_bits: u64,
    /// Extended attributes and access control lists that were dropped.
    pub attributes: u64,
}

/// An image that was imported.
#[derive(Debug, Clone)]
pub struct Imported {
    /// Its name.
    pub name: Reference,
    /// The image, ready to be used.
    pub image: Image,
    /// The number of its layers.
    pub layers: usize,
    /// What was left out.
    pub skipped: Skipped,
}
