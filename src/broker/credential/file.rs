//! A credential in a file: trimmed, and read again only when the file has changed.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::Secret;
use crate::file::read_with_metadata;

/// The most a credential's file may hold.
const MAX_BYTES: usize = 64 * 1024;

/// What tells one version of a file from another.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Version {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl From<&Metadata> for Version {
    fn from(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// A file with a credential in it.
pub(super) struct SecretFile {
    path: PathBuf,
    known: Mutex<Option<(Version, Secret)>>,
}

impl SecretFile {
    pub fn new(path: PathBuf) -> Self {
        Self { path, known: Mutex::new(None) }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The credential as the file holds it now.
    pub fn read(&self) -> io::Result<Secret> {
        let version = Version::from(&std::fs::metadata(&self.path)?);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((read, secret)) = &*known
            && *read == version
        {
            return Ok(secret.clone());
        }
        let (version, secret) = self.load()?;
        *known = Some((version, secret.clone()));
        Ok(secret)
    }

    fn load(&self) -> io::Result<(Version, Secret)> {
        let (bytes, metadata) = read_with_metadata(&self.path, MAX_BYTES)?;
        let text = std::str::from_utf8(&bytes)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not UTF-8"))?;
        Ok((Version::from(&metadata), Secret::new(text.trim())))
    }
}
