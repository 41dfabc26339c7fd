//! What can be typed after `turnjail image`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use turnjail_images::{Format, Platform, Reference};

/// What to do with images.
#[derive(Debug, Subcommand)]
pub enum ImageCommand {
    /// Make an image of an archive, a pipe or an OCI image layout
    Import(ImportArguments),
    /// Fetch an image from its registry
    Pull(PullArguments),
    /// Print every image
    List,
    /// Print an image's configuration, labels, size and digest as JSON
    Inspect {
        /// The image
        #[arg(value_name = "IMAGE")]
        reference: String,
    },
    /// Remove images by their names
    Remove {
        /// The images
        #[arg(value_name = "IMAGE", required = true)]
        references: Vec<String>,
        /// Also while a jail uses one: it loses the files that it has not opened
        #[arg(long)]
        force: bool,
    },
    /// Write an image as one archive, for `docker load` or another machine
    Export(ExportArguments),
    /// Hash everything again and compare every root filesystem with its layers
    Verify,
    /// Remove what no name leads to
    Gc,
}

/// What to import.
#[derive(Debug, Args)]
pub struct ImportArguments {
    /// An archive (tar, also with gzip or zstd), the directory of an OCI image layout, or - for standard
    /// input
    #[arg(value_name = "SOURCE")]
    pub source: PathBuf,
    /// The image's name from now on
    #[arg(value_name = "IMAGE", value_parser = reference)]
    pub name: Reference,
    /// What the archive is
    #[arg(long, value_enum, default_value = "auto")]
    pub format: FormatArgument,
    /// Which image of an archive that holds several, by its name there
    #[arg(long, value_name = "NAME")]
    pub select: Option<String>,
    /// What the image is for, such as linux/arm64 [default: this machine]
    #[arg(long, value_name = "OS/ARCH", value_parser = platform)]
    pub platform: Option<Platform>,
    /// JSON with Entrypoint, Cmd, Env, WorkingDir and Labels, for a root filesystem
    #[arg(long, value_name = "FILE")]
    pub image_config: Option<PathBuf>,
}

/// What to pull.
#[derive(Debug, Args)]
pub struct PullArguments {
    /// The image: [REGISTRY/]NAME[:TAG][@sha256:DIGEST]
    #[arg(value_name = "IMAGE", value_parser = reference)]
    pub name: Reference,
    /// What the image is for, such as linux/arm64 [default: this machine]
    #[arg(long, value_name = "OS/ARCH", value_parser = platform)]
    pub platform: Option<Platform>,
}

/// What an archive is.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum FormatArgument {
    /// By what it holds
    Auto,
    /// An OCI image layout
    Oci,
    /// Written by docker save
    Docker,
    /// The files of a root filesystem, as tar or docker export write them
    Rootfs,
}

impl From<FormatArgument> for Format {
    fn from(format: FormatArgument) -> Self {
        match format {
            FormatArgument::Auto => Self::Auto,
            FormatArgument::Oci => Self::Oci,
            FormatArgument::Docker => Self::Docker,
            FormatArgument::Rootfs => Self::Rootfs,
        }
    }
}

/// What to export.
#[derive(Debug, Args)]
pub struct ExportArguments {
    /// The image
    #[arg(value_name = "IMAGE")]
    pub reference: String,
    /// Where to; - is standard output
    #[arg(long, short, value_name = "FILE", default_value = "-")]
    pub output: PathBuf,
    /// What to write
    #[arg(long, value_enum, default_value = "docker")]
    pub format: ExportFormatArgument,
}

/// What to write.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum ExportFormatArgument {
    /// An OCI image layout
    Oci,
    /// The same, readable for docker load
    Docker,
}

pub(super) fn reference(text: &str) -> Result<Reference, String> {
    text.parse().map_err(|error: turnjail_images::ImageError| error.to_string())
}

pub(super) fn platform(text: &str) -> Result<Platform, String> {
    text.parse()
}
