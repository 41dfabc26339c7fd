//! Directories: the XDG places by default, `~` and relative paths resolved.

use std::path::{Component, Path, PathBuf};

use super::document::Raw;
use super::section::Section;
use super::setting::Setting;

/// What the configuration may know of the host.
#[derive(Debug, Clone)]
pub struct Host {
    /// The real user id.
    pub uid: u32,
    /// The home directory, when the environment names an absolute one.
    pub home: Option<PathBuf>,
    /// `XDG_CONFIG_HOME`, when absolute.
    pub config_home: Option<PathBuf>,
    /// `XDG_DATA_HOME`, when absolute.
    pub data_home: Option<PathBuf>,
    /// `XDG_RUNTIME_DIR`, when absolute.
    pub runtime_dir: Option<PathBuf>,
}

impl Host {
    /// Reads it from this process's environment.
    pub fn of_this_process() -> Self {
        let absolute =
            |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        Self {
            uid: nix::unistd::getuid().as_raw(),
            home: absolute("HOME"),
            config_home: absolute("XDG_CONFIG_HOME"),
            data_home: absolute("XDG_DATA_HOME"),
            runtime_dir: absolute("XDG_RUNTIME_DIR"),
        }
    }

    /// `turnjail/turnjail.toml` in the user's configuration directory.
    pub fn config_file(&self) -> Option<PathBuf> {
        let home = || self.home.as_ref().map(|home| home.join(".config"));
        let directory = self.config_home.clone().or_else(home)?;
        Some(directory.join("turnjail/turnjail.toml"))
    }

    fn data(&self, name: &str) -> Option<PathBuf> {
        let home = || self.home.as_ref().map(|home| home.join(".local/share"));
        let directory = self.data_home.clone().or_else(home)?;
        Some(directory.join("turnjail").join(name))
    }

    /// Short, because a socket's path within it has at most 100 bytes.
    fn run(&self) -> PathBuf {
        match &self.runtime_dir {
            Some(directory) => directory.join("turnjail"),
            None => PathBuf::from(format!("/tmp/turnjail-{}", self.uid)),
        }
    }
}

/// Where relative paths of a configuration start.
pub struct Base<'h> {
    /// The host's facts.
    pub host: &'h Host,
    /// The directory of the configuration file.
    pub directory: &'h Path,
}

impl Base<'_> {
    /// An absolute path without `.` and `..`, or none when `~` has no meaning here.
    pub(super) fn resolve(&self, text: &str) -> Option<PathBuf> {
        let path = if text == "~" {
            self.host.home.clone()?
        } else if let Some(rest) = text.strip_prefix("~/") {
            self.host.home.as_ref()?.join(rest)
        } else {
            self.directory.join(text)
        };
        let plain = |part: &Component<'_>| !matches!(part, Component::ParentDir);
        (path.is_absolute() && path.components().all(|part| plain(&part))).then_some(path)
    }
}

/// A path that is not empty.
pub fn path<'s, 'a>(
    section: &'s Section<'a>,
    key: &'static str,
    base: &Base<'_>,
) -> Setting<'s, 'a, PathBuf> {
    let wanted = "a path: absolute, below ~/, or relative to the configuration file; without ..";
    section.value(key, wanted, |raw| match raw {
        Raw::Text(text) if !text.is_empty() && !text.contains('\0') => base.resolve(text),
        _ => None,
    })
}

/// How a path is shown.
pub fn shown(path: PathBuf) -> serde_json::Value {
    path.display().to_string().into()
}

/// As [`shown`] for one that may be absent.
pub fn shown_option(path: Option<PathBuf>) -> serde_json::Value {
    path.map_or(serde_json::Value::Null, shown)
}

/// `[directories]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directories {
    /// Run directories of running turns, each with its broker's socket.
    pub run: PathBuf,
    /// Workspaces of channels: memory, history, files.
    pub workspaces: PathBuf,
    /// The image store.
    pub images: PathBuf,
}

impl Directories {
    pub(super) fn read(section: Section<'_>, base: &Base<'_>) -> Option<Self> {
        let run = path(&section, "run", base).or_shown(base.host.run(), shown);
        let workspaces = data(&section, "workspaces", base);
        let images = data(&section, "images", base);
        section.finish();
        Some(Self { run, workspaces: workspaces?, images: images? })
    }
}

/// A directory that stands below the user's data directory unless it is named.
fn data(section: &Section<'_>, key: &'static str, base: &Base<'_>) -> Option<PathBuf> {
    let setting = path(section, key, base);
    let place = setting.map(Some).or_shown(base.host.data(key), shown_option);
    if place.is_none() {
        let name = section.name(key);
        section.find(
            section.origin(),
            format_args!("{name} is not set, and neither XDG_DATA_HOME nor HOME is"),
            format_args!("set {name} to an absolute path, or set HOME"),
        );
    }
    place
}
