//! Advisory locks (`flock`): between processes, and gone with the process that held them.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, openat};
use rustix::io::Errno;

use crate::ImageError;

/// How a lock is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    Shared,
    Exclusive,
}

/// A lock on a file or directory, held until it is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: OwnedFd,
}

impl Lock {
    /// Waits for the store's own lock.
    pub fn of_store(dir: &Path, hold: Hold) -> Result<Self, ImageError> {
        let path = dir.join("lock");
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = openat(rustix::fs::CWD, &path, flags, Mode::RUSR | Mode::WUSR)
            .map_err(ImageError::errno("open", &path))?;
        let operation = match hold {
            Hold::Shared => FlockOperation::LockShared,
            Hold::Exclusive => FlockOperation::LockExclusive,
        };
        loop {
            match flock(&file, operation) {
                Ok(()) => return Ok(Self { _file: file }),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(ImageError::errno("lock", &path)(errno)),
            }
        }
    }

    /// Locks a directory; none when it is not there, has been replaced meanwhile, or is held so that this
    /// is not possible.
    pub fn of_directory(path: &Path, hold: Hold) -> Result<Option<Self>, ImageError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let open = || openat(rustix::fs::CWD, path, flags, Mode::empty());
        let directory = match open() {
            Ok(directory) => directory,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(ImageError::errno("open", path)(errno)),
        };
        let operation = match hold {
            Hold::Shared => FlockOperation::NonBlockingLockShared,
            Hold::Exclusive => FlockOperation::NonBlockingLockExclusive,
        };
        match flock(&directory, operation) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK | Errno::INTR) => return Ok(None),
            Err(errno) => return Err(ImageError::errno("lock", path)(errno)),
        }
        // Who removes it renames it while holding it alone: what is locked now may be gone from there.
        let same = rustix::fs::lstat(path)
            .and_then(|there| Ok((there, fstat(&directory)?)))
            .is_ok_and(|(there, here)| (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino));
        Ok(same.then_some(Self { _file: directory }))
    }
}

/// Waits until all that was written to the file system of `dir` is on disk: one call for many files.
pub(crate) fn sync_filesystem(dir: &Path) -> Result<(), ImageError> {
    let file = File::open(dir).map_err(ImageError::io("open", dir))?;
    rustix::fs::syncfs(&file).map_err(ImageError::errno("sync", dir))
}

/// Waits until a directory's names are on disk.
pub(crate) fn sync(dir: &Path) -> Result<(), ImageError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(ImageError::io("sync", dir))
}
