//! A private directory for a demonstration, gone with all its contents when it is over.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::sys::statvfs::{FsFlags, statvfs};
use tempfile::TempDir;

use crate::error::{CliError, Exit};

/// The longest base directory: a socket's path below it has at most 100 bytes.
const LONGEST: usize = 50;

/// The directory; dropping it removes it.
#[derive(Debug)]
pub struct Place {
    directory: TempDir,
}

impl Place {
    /// Makes one where this user can: the temporary directory of the environment, or a usual one.
    pub fn new() -> Result<Self, CliError> {
        let candidates =
            [std::env::temp_dir(), "/tmp".into(), "/var/tmp".into(), "/dev/shm".into()];
        let mut reasons = Vec::new();
        for base in candidates {
            match make(&base) {
                Ok(directory) => return Ok(Self { directory }),
                Err(reason) => reasons.push(format!("{}: {reason}", base.display())),
            }
        }
        reasons.dedup();
        Err(CliError::new(
            Exit::Failed,
            "demo-directory",
            format_args!("no directory for the demonstration can be made ({})", reasons.join(", ")),
            "set TMPDIR to a short path that this user may write, on a file system without noexec",
        ))
    }

    /// For run directories.
    pub fn run(&self) -> PathBuf {
        self.directory.path().join("run")
    }

    /// For workspaces.
    pub fn workspaces(&self) -> PathBuf {
        self.directory.path().join("workspaces")
    }

    /// For the image store.
    pub fn images(&self) -> PathBuf {
        self.directory.path().join("images")
    }

    /// Removes it, and says so if that fails.
    pub fn remove(self) -> Result<(), CliError> {
        let path = self.directory.path().to_owned();
        self.directory.close().map_err(|error| {
            CliError::new(
                Exit::Failed,
                "demo-directory",
                format_args!("{} cannot be removed: {error}", path.display()),
                "remove it by hand",
            )
        })
    }
}

fn make(base: &Path) -> Result<TempDir, String> {
    if !base.is_absolute() || base.as_os_str().len() > LONGEST {
        return Err(format!("not an absolute path of at most {LONGEST} bytes"));
    }
    usable(statvfs(base).map_err(|errno| errno.to_string())?.flags())?;
    let private = std::fs::Permissions::from_mode(0o700);
    tempfile::Builder::new()
        .prefix("turnjail-demo-")
        .permissions(private)
        .tempdir_in(base)
        .map_err(|error| error.to_string())
}

fn usable(flags: FsFlags) -> Result<(), String> {
    if flags.contains(FsFlags::ST_NOEXEC) {
        return Err("mounted noexec, so no worker could start from it".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_private_and_leaves_nothing() {
        let place = Place::new().unwrap();
        let path = place.directory.path().to_owned();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        std::fs::create_dir_all(place.run().join("deep")).unwrap();
        place.remove().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn where_no_worker_could_start_no_place_is_made() {
        assert!(usable(FsFlags::ST_NOSUID | FsFlags::ST_NOEXEC).unwrap_err().contains("noexec"));
        usable(FsFlags::ST_NOSUID).unwrap();
        assert!(make(Path::new("/proc")).is_err());
        assert!(make(Path::new("relative")).is_err());
        assert!(make(Path::new(&format!("/{}", "x".repeat(LONGEST)))).is_err());
        assert!(make(Path::new("/nonexistent")).is_err());
    }
}
