//! What a driver is asked to run.

use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// The longest name of a run, in bytes.
const MAX_NAME: usize = 91;
/// The longest image reference, in bytes.
const MAX_IMAGE: usize = 512;

/// Limits of one run. The defaults are those of the TypeScript system.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Memory in MiB, at least 64 (default 512).
    pub memory_mb: u32,
    /// CPUs, over 0 (default 1).
    pub cpus: f64,
    /// Processes, at least 8 (default 64).
    pub pids: u32,
    /// Wall time in milliseconds the turn may take; what bounds CPU time where no CPU share can be set.
    pub time_ms: u64,
}

impl Limits {
    /// The least memory a worker can be given, in MiB.
    pub const MIN_MEMORY_MB: u32 = 64;
    /// The least number of processes a worker can be given.
    pub const MIN_PIDS: u32 = 8;
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory_mb: 512, cpus: 1.0, pids: 64, time_ms: 120_000 }
    }
}

/// One run: which image, which directories, which limits.
#[derive(Debug, Clone, PartialEq)]
pub struct ContainerSpec {
    /// A unique name, `roundtable-sandbox-<16 hex>-<8 hex>`.
    pub name: String,
    /// The image's reference.
    pub image: String,
    /// The turn's private directory holding `broker.sock`, seen read-only at `/broker`.
    pub run_dir: PathBuf,
    /// Seen read-write at `/workspace`.
    pub workspace_dir: PathBuf,
    /// Seen read-write at `/channel`, for shared workspaces.
    pub channel_dir: Option<PathBuf>,
    /// The worker's user id: the host's own, never 0.
    pub uid: u32,
    /// The worker's group id: the host's own, never 0.
    pub gid: u32,
    /// Limits of the run.
    pub limits: Limits,
}

/// Why a specification is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SpecError(pub String);

impl ContainerSpec {
    /// Checks everything that can be checked without touching the host. Drivers call it first, so that
    /// a bad specification is refused in the same way everywhere and before anything is started.
    pub fn check(&self) -> Result<(), SpecError> {
        check_name(&self.name)?;
        check_image(&self.image)?;
        check_id("uid", self.uid)?;
        check_id("gid", self.gid)?;
        self.limits.check()?;
        self.check_directories()
    }

    fn check_directories(&self) -> Result<(), SpecError> {
        let mut directories =
            vec![("run_dir", &self.run_dir), ("workspace_dir", &self.workspace_dir)];
        directories.extend(self.channel_dir.iter().map(|path| ("channel_dir", path)));
        for (field, path) in &directories {
            check_directory(field, path)?;
        }
        for (index, (field, path)) in directories.iter().enumerate() {
            for (other_field, other) in &directories[index + 1..] {
                if path.starts_with(other) || other.starts_with(path) {
                    return Err(SpecError(format!(
                        "{field} {path:?} and {other_field} {other:?} must be separate directories, neither inside the other"
                    )));
                }
            }
        }
        Ok(())
    }
}

impl Limits {
    /// Checks that every limit is in its range.
    pub fn check(&self) -> Result<(), SpecError> {
        if self.memory_mb < Self::MIN_MEMORY_MB {
            return Err(SpecError(format!(
                "memory_mb must be at least {}, but is {}",
                Self::MIN_MEMORY_MB,
                self.memory_mb
            )));
        }
        if !self.cpus.is_finite() || self.cpus <= 0.0 {
            return Err(SpecError(format!("cpus must be a number over 0, but is {}", self.cpus)));
        }
        if self.pids < Self::MIN_PIDS {
            return Err(SpecError(format!(
                "pids must be at least {}, but is {}",
                Self::MIN_PIDS,
                self.pids
            )));
        }
        if self.time_ms == 0 {
            return Err(SpecError("time_ms must be over 0".to_owned()));
        }
        Ok(())
    }
}

/// Names end up in file names, cgroups and engine arguments: `[a-z0-9][a-z0-9_.-]*`.
fn check_name(name: &str) -> Result<(), SpecError> {
    let first = name.bytes().next();
    let valid = name.len() <= MAX_NAME
        && first.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        && name.bytes().all(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_.-".contains(&byte)
        });
    if valid {
        return Ok(());
    }
    Err(SpecError(format!(
        "name must be 1 to {MAX_NAME} of a-z, 0-9, '_', '.' and '-', starting with a letter or digit, but is {name:?}"
    )))
}

/// A reference that no client can take for an option, and that holds no separator of any list.
pub(crate) fn check_image(image: &str) -> Result<(), SpecError> {
    let valid = image.len() <= MAX_IMAGE
        && image.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric())
        && image.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._/:@+-".contains(&byte));
    if valid {
        return Ok(());
    }
    Err(SpecError(format!(
        "image must be a reference such as name:tag or name@sha256:..., at most {MAX_IMAGE} bytes, but is {image:?}"
    )))
}

/// Root, and the value that system calls read as "leave it", are never a worker's id.
fn check_id(field: &str, id: u32) -> Result<(), SpecError> {
    if id == 0 || id == u32::MAX {
        return Err(SpecError(format!("{field} must be an ordinary id, not 0, but is {id}")));
    }
    Ok(())
}

/// Mount arguments of container clients are comma-separated lists, and a path with a control
/// character is nobody's intention.
fn check_directory(field: &str, path: &Path) -> Result<(), SpecError> {
    let bytes = path.as_os_str().as_bytes();
    let cause = if !path.is_absolute() {
        "must be absolute"
    } else if path.parent().is_none() {
        "must not be the root directory"
    } else if bytes.iter().any(|&byte| byte < b' ' || byte == 0x7f || byte == b',') {
        "must have no comma and no control character"
    } else if path.components().any(|part| part == Component::ParentDir) {
        "must not go through '..'"
    } else {
        return Ok(());
    };
    Err(SpecError(format!("{field} {cause}, but is {path:?}")))
}
