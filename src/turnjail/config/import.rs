//! `[import]` and `[[registries]]`: how much an image may hold, and how registries are spoken to.

use turnjail_images::ImageLimits;

use super::paths::{Base, Directories, path, shown_option};
use super::secret::SecretSource;
use super::section::Section;
use super::settings::Logging;

const MIB: u64 = 1024 * 1024;
const KIB: u64 = 1024;

/// A registry that is not spoken to anonymously over HTTPS by the platform's authorities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registry {
    /// Its host name, with its port where that is not HTTPS's own.
    pub host: String,
    /// Who pulls; none is nobody.
    pub username: Option<String>,
    /// The password or token.
    pub password: SecretSource,
    /// Whether it is spoken to without TLS.
    pub allow_http: bool,
    /// More certificate authorities beside the platform's.
    pub ca_file: Option<std::path::PathBuf>,
}

/// What the commands that deal with images need of a configuration, whatever else it says or lacks.
#[derive(Debug, Clone)]
pub struct ForImages {
    /// `[directories]`.
    pub directories: Directories,
    /// `[import]`.
    pub limits: ImageLimits,
    /// `[[registries]]`.
    pub registries: Vec<Registry>,
    /// `[log]`.
    pub log: Logging,
}

impl ForImages {
    pub(super) fn read(root: &Section<'_>, base: &Base<'_>) -> Option<Self> {
        let directories = Directories::read(root.section("directories"), base);
        let limits = limits(root.section("import"));
        let registries = Registry::read_all(root, base);
        let log = Logging::read(root.section("log"));
        Some(Self { directories: directories?, limits, registries: registries?, log })
    }
}

/// Reads `[import]`.
pub(super) fn limits(section: Section<'_>) -> ImageLimits {
    let default = ImageLimits::default();
    let number =
        |key, most: i64, default: u64| section.integer(key, 1..=most).or(default as i64) as u64;
    let limits = ImageLimits {
        entries: number("max_entries", 50_000_000, default.entries),
        layers: number("max_layers", 1024, default.layers as u64) as usize,
        layer_bytes: number("max_layer_mb", 1_048_576, default.layer_bytes / MIB) * MIB,
        total_bytes: number("max_total_mb", 1_048_576, default.total_bytes / MIB) * MIB,
        ratio: number("max_ratio", 1_000_000, default.ratio),
        metadata_bytes: number("max_metadata_kb", 65_536, default.metadata_bytes / KIB) * KIB,
        name_bytes: number("max_name_bytes", 4096, default.name_bytes as u64) as usize,
        depth: number("max_depth", 256, default.depth as u64) as usize,
    };
    section.finish();
    limits
}

impl Registry {
    /// Reads every `[[registries]]`.
    pub(super) fn read_all(root: &Section<'_>, base: &Base<'_>) -> Option<Vec<Self>> {
        let read = root.sections("registries").into_iter().map(|one| Self::read(one, base));
        // Every one is read, so that every mistake is found.
        read.collect::<Vec<_>>().into_iter().collect()
    }

    fn read(section: Section<'_>, base: &Base<'_>) -> Option<Self> {
        let host = section.text("host", 255).required();
        let username = section.text("username", 255).optional();
        let password = SecretSource::read_or_none(&section, "password", base);
        let allow_http = section.flag("allow_http").or(false);
        let ca_file = path(&section, "ca_file", base).map(Some).or_shown(None, shown_option);
        if username.is_none()
            && password.as_ref().is_some_and(|password| *password != SecretSource::None)
        {
            section.find(
                section.origin(),
                format_args!("{} is set without a username", section.name("password")),
                format_args!("set {} too", section.name("username")),
            );
        }
        section.finish();
        Some(Self { host: host?, username, password: password?, allow_http, ca_file })
    }
}
