//! The configuration: a TOML file, environment variables and flags, checked whole before anything
//! starts.
//!
//! Two stages. [`document`] reads the file exactly as typed and touches nothing of the host.
//! [`settings`] then resolves every key through [`section`], which knows the allowed ranges, lets flags
//! and variables win, and records where each value came from. A wrong value never stops the reading:
//! all problems are reported at once. Secrets have no place in the file, only a source of one.

mod apply;
mod docker;
mod document;
mod images;
mod import;
mod mcp;
mod model;
mod overlay;
mod paths;
mod secret;
mod section;
mod setting;
mod settings;
mod tools;
mod turn;

use std::path::{Path, PathBuf};

pub use apply::credential;
pub use document::Origin;
pub use import::ForImages;
pub use overlay::{Overlay, variable};
pub use paths::Host;
pub use secret::SecretSource;

pub use settings::{HostSettings, LogFormat, Logging, Settings};
pub use turn::Driver;

use crate::error::{CliError, Exit, Problem};

/// Something wrong in the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Where it stands.
    pub origin: Origin,
    /// One line: what is wrong, without the text of any value.
    pub cause: String,
    /// One line: what is allowed.
    pub remedy: String,
}

/// A value in effect and where it came from.
#[derive(Debug, Clone, PartialEq)]
pub struct Effective {
    /// For example `limits.memory_mb`.
    pub key: String,
    /// The value; null when it is not set. Never a secret.
    pub value: serde_json::Value,
    /// Where it was said.
    pub origin: Origin,
}

/// A checked configuration.
#[derive(Debug)]
pub struct Config {
    /// The file it was read from.
    pub file: PathBuf,
    /// What everything is set to.
    pub settings: Settings,
    /// The same as a list for people, with origins.
    pub effective: Vec<Effective>,
}

impl Config {
    /// Where the value of a setting came from, for the head of a message: file and line, variable or flag;
    /// the file alone for a default.
    pub fn place_of(&self, key: &str) -> String {
        let found = self.effective.iter().find(|one| one.key == key).map(|one| &one.origin);
        place(&shown(&self.file), found.unwrap_or(&Origin::Default))
    }
}

/// Reads and checks the configuration `file`.
pub fn load(file: &Path, overlay: Overlay, host: &Host) -> Result<Config, CliError> {
    let text = read(file)?;
    let base = file.parent().unwrap_or(Path::new("/"));
    match resolve(&text, overlay, host, base) {
        Ok((settings, effective)) => Ok(Config { file: file.to_owned(), settings, effective }),
        Err(findings) => Err(refusal(file, &findings)),
    }
}

/// Reads what a command needs that runs jails for other programs, from the file that is named, or from the
/// usual one where that exists.
pub fn host_settings(named: Option<&Path>) -> Result<HostSettings, CliError> {
    let mut host = Host::of_this_process();
    // Programs that drive a container client start it with next to no environment.
    host.home = host.home.or_else(home_of_this_user);
    let usual = host.config_file().filter(|file| file.exists());
    let file = named.map(Path::to_owned).or(usual);
    let text = file.as_deref().map(read).transpose()?.unwrap_or_default();
    let file = file.unwrap_or_else(|| PathBuf::from("(no file)"));
    let document = document::parse(&text).map_err(|finding| refusal(&file, &[finding]))?;
    let prefixes = HostSettings::SECTIONS.map(|section| variable(section) + "_");
    let ours = |name: &str| prefixes.iter().any(|prefix| name.starts_with(prefix.as_str()));
    let environment = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok().filter(|name| ours(name))?;
        Some((name, value.into_string().unwrap_or_default()))
    });
    let overlay = Overlay { environment: environment.collect(), ..Overlay::default() };
    let reader = section::Reader::new(overlay);
    let directory = file.parent().filter(|path| path.is_absolute()).unwrap_or(Path::new("/"));
    let settings =
        HostSettings::read(&reader.root(&document), &paths::Base { host: &host, directory });
    match (settings, reader.finish()) {
        (Some(settings), (_, findings)) if findings.is_empty() => Ok(settings),
        (_, (_, findings)) => Err(refusal(&file, &findings)),
    }
}

fn home_of_this_user() -> Option<PathBuf> {
    let user = nix::unistd::User::from_uid(nix::unistd::getuid()).ok().flatten()?;
    Some(user.dir).filter(|home| home.is_absolute())
}

/// Checks a configuration of flags and variables alone.
pub fn load_without_file(overlay: Overlay, host: &Host) -> Result<Config, CliError> {
    let file = PathBuf::from("(no file)");
    match resolve("", overlay, host, Path::new("/")) {
        Ok((settings, effective)) => Ok(Config { file, settings, effective }),
        Err(findings) => Err(refusal(&file, &findings)),
    }
}

/// Reads what the commands that deal with images need. Nothing that only a turn needs must be there, and
/// where no file is named, none must.
pub fn load_for_images(
    file: Option<&Path>,
    overlay: Overlay,
    host: &Host,
) -> Result<ForImages, CliError> {
    let text = file.map_or_else(|| Ok(String::new()), read)?;
    let file = file.unwrap_or(Path::new("(no file)"));
    let directory = file.parent().filter(|path| path.is_absolute()).unwrap_or(Path::new("/"));
    let document = document::parse(&text).map_err(|finding| refusal(file, &[finding]))?;
    let reader = section::Reader::new(overlay);
    let read = ForImages::read(&reader.root(&document), &paths::Base { host, directory });
    let findings = reader.findings();
    match read {
        Some(read) if findings.is_empty() => Ok(read),
        _ => Err(refusal(file, &findings)),
    }
}

/// Text to settings; relative paths in it start at `base`.
fn resolve(
    text: &str,
    overlay: Overlay,
    host: &Host,
    base: &Path,
) -> Result<(Settings, Vec<Effective>), Vec<Finding>> {
    let document = document::parse(text).map_err(|finding| vec![finding])?;
    let reader = section::Reader::new(overlay);
    let settings = Settings::read(reader.root(&document), &paths::Base { host, directory: base });
    let (effective, findings) = reader.finish();
    match settings {
        Some(settings) if findings.is_empty() => Ok((settings, effective)),
        _ => Err(findings),
    }
}

fn read(file: &Path) -> Result<String, CliError> {
    let refuse = |cause: String, remedy: &str| CliError::new(Exit::Usage, "config", cause, remedy);
    let shown = shown(file);
    let bytes = turnjail_broker::read_file(file, document::FILE_BYTES).map_err(|error| {
        refuse(
            format!("the configuration {shown} cannot be read: {error}"),
            "copy turnjail.example.toml there, or name another file with --config",
        )
    })?;
    let text = std::str::from_utf8(&bytes).map(str::to_owned);
    text.map_err(|_| {
        refuse(format!("the configuration {shown} is not UTF-8"), "save the file as UTF-8 text")
    })
}

/// A path in one line, whatever is in its name.
pub fn shown(file: &Path) -> String {
    let path = file.display().to_string();
    let plain =
        |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
    path.chars().map(plain).collect()
}

fn refusal(file: &Path, findings: &[Finding]) -> CliError {
    let file = shown(file);
    let mut findings: Vec<_> = findings.iter().collect();
    findings.sort_by_key(|finding| match finding.origin {
        Origin::Line(line) => line,
        _ => usize::MAX,
    });
    let problems = findings.into_iter().map(|finding| {
        let place = place(&file, &finding.origin);
        Problem { cause: format!("{place}{}", finding.cause), remedy: finding.remedy.clone() }
    });
    CliError { problems: problems.collect(), exit: Exit::Usage, code: "config".to_owned() }
}

/// The head of a message about a setting.
fn place(file: &str, origin: &Origin) -> String {
    match origin {
        Origin::Line(line) => format!("{file}:{line}: "),
        Origin::Environment(name) => format!("environment {name}: "),
        Origin::Flag(flag) => format!("{flag}: "),
        Origin::Default => format!("{file}: "),
    }
}

#[cfg(test)]
mod tests;
