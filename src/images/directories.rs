//! The directories of a store, and the places where something is being made.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use nix::sys::statvfs::{FsFlags, statvfs};

use crate::lock::{Hold, Lock};
use crate::{Digest, ImageError, remove};

/// Where everything of a store is.
#[derive(Debug, Clone)]
pub(crate) struct Directories {
    pub store: PathBuf,
}

impl Directories {
    /// Opens the store in `dir`; see [`ImageStore::open`](crate::ImageStore::open).
    pub fn open(dir: &Path) -> Result<Self, ImageError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(ImageError::io("create", dir))?;
        let dir = dir.canonicalize().map_err(ImageError::io("resolve", dir))?;
        let found = fs::metadata(&dir).map_err(ImageError::io("stat", &dir))?;
        let refuse = |what: String, remedy| ImageError::Store { path: dir.clone(), what, remedy };
        if found.uid() != nix::unistd::geteuid().as_raw() {
            let what = format!("belongs to uid {}, not to this user", found.uid());
            return Err(refuse(what, "name a directory of your own"));
        }
        if found.mode() & 0o077 != 0 {
            let what =
                format!("has mode {:04o}; others could change images", found.mode() & 0o7777);
            return Err(refuse(what, "make it private: chmod 700"));
        }
        let flags = statvfs(&dir).map_err(|e| ImageError::io("stat", &dir)(e.into()))?.flags();
        if flags.contains(FsFlags::ST_NOEXEC) {
            let what = "is on a file system mounted noexec".to_owned();
            let remedy = "name a store on a file system that allows exec (directories.images)";
            return Err(refuse(what, remedy));
        }
        Ok(Self { store: dir })
    }

    pub fn roots(&self) -> PathBuf {
        self.store.join("roots")
    }

    /// The root filesystem of the image with this digest.
    pub fn root(&self, digest: &Digest) -> PathBuf {
        self.roots().join(digest.hex())
    }

    pub fn blobs(&self) -> PathBuf {
        self.store.join("blobs/sha256")
    }

    pub fn blob(&self, digest: &Digest) -> PathBuf {
        self.blobs().join(digest.hex())
    }

    fn staging(&self) -> PathBuf {
        self.store.join("staging")
    }

    /// A directory of a store, made when it is not there.
    pub fn made(path: PathBuf) -> Result<PathBuf, ImageError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)
            .map_err(ImageError::io("create", &path))?;
        Ok(path)
    }

    pub fn lock(&self, hold: Hold) -> Result<Lock, ImageError> {
        Lock::of_store(&self.store, hold)
    }

    /// A place to make something in, gone with all its contents when it is dropped, or swept by another
    /// process when this one dies.
    pub fn stage(&self) -> Result<Staging, ImageError> {
        // Nobody sweeps between the making of the directory and its lock.
        let _store = self.lock(Hold::Shared)?;
        let path = self.unused()?;
        fs::create_dir(&path).map_err(ImageError::io("create", &path))?;
        let lock = Lock::of_directory(&path, Hold::Exclusive)?;
        if lock.is_some() {
            return Ok(Staging { path, _lock: lock });
        }
        Err(ImageError::Store {
            path,
            what: "cannot be locked".to_owned(),
            remedy: "name a store directory on a file system with flock(2)",
        })
    }

    /// Moves a directory of the store out of the way, so that its name is never half of it, to be removed
    /// from there; absent is success.
    pub fn put_aside(&self, path: &Path) -> Result<Option<PathBuf>, ImageError> {
        let aside = self.unused()?;
        match fs::rename(path, &aside) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(ImageError::io("move aside", path)(e)),
            Ok(()) => Ok(Some(aside)),
        }
    }

    fn unused(&self) -> Result<PathBuf, ImageError> {
        let staging = Self::made(self.staging())?;
        let random = getrandom::u64().map_err(|e| {
            ImageError::io("draw a random name in", &staging)(std::io::Error::other(e))
        })?;
        Ok(staging.join(format!("{random:016x}")))
    }

    /// Removes what processes that died have left in staging, and answers how many places that were. Best
    /// effort: what cannot be removed only takes room.
    pub fn sweep(&self) -> usize {
        let listed = || fs::read_dir(self.staging()).ok().map(Iterator::flatten);
        if listed().is_none_or(|mut entries| entries.next().is_none()) {
            return 0;
        }
        let Ok(store) = self.lock(Hold::Exclusive) else { return 0 };
        let places = listed().into_iter().flatten().map(|entry| entry.path());
        // Held while it is removed, so that nobody else does the same.
        let dead = places.filter_map(|path| {
            let directory = fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir());
            let lock = Lock::of_directory(&path, Hold::Exclusive).ok().flatten();
            (!directory || lock.is_some()).then_some((path, lock))
        });
        let dead: Vec<_> = dead.collect();
        drop(store);
        dead.iter().filter(|(path, _)| remove::tree(path).is_ok()).count()
    }
}

/// See [`Directories::stage`].
#[derive(Debug)]
pub(crate) struct Staging {
    path: PathBuf,
    _lock: Option<Lock>,
}

impl Staging {
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A new directory in it.
    pub fn directory(&self, name: &str) -> Result<PathBuf, ImageError> {
        let path = self.path.join(name);
        DirBuilder::new().mode(0o700).create(&path).map_err(ImageError::io("create", &path))?;
        Ok(path)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let _ = remove::tree(&self.path);
    }
}
