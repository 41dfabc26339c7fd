//! A tree written to disk beneath one directory, following nothing.
//!
//! The directory is new and only this process writes to it, so what the tree says is there is there. Even
//! so every directory is opened beneath the root without following links: should the tree be wrong, the
//! kernel says no.

use std::ffi::OsStr;
use std::io::{Read, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, Mode, OFlags, ResolveFlags, Timespec, Timestamps, fchmod, futimens, linkat, mkdirat,
    openat, openat2, symlinkat, unlinkat,
};
use rustix::io::Errno;

use super::{File, Name, Sink, file_mode};
use crate::ImageError;

/// While a directory is filled.
const FILLING: Mode = Mode::RWXU;
/// Times that every file system can hold (ext4's end in 2446).
const TIMES: std::ops::RangeInclusive<i64> = 0..=15_000_000_000;
const BUFFER: usize = 256 * 1024;

/// Opens what stands at `path` beneath `root`: no link of any kind is followed and no mount crossed.
pub(crate) fn open_beneath(root: impl AsFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let path = if path.is_empty() { &b"."[..] } else { path };
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    openat2(root, OsStr::from_bytes(path), flags | OFlags::CLOEXEC, Mode::empty(), resolve)
}

/// Writes beneath a directory.
pub(crate) struct Disk {
    root: OwnedFd,
    /// For messages.
    path: PathBuf,
    /// The directory that was written to last; archives are in the order of directories.
    parent: Option<(Vec<u8>, OwnedFd)>,
    buffer: Vec<u8>,
}

impl Disk {
    /// Writes into the empty directory `path`.
    pub fn new(path: &Path) -> Result<Self, ImageError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty())
            .map_err(ImageError::errno("open", path))?;
        Ok(Self { root, path: path.to_owned(), parent: None, buffer: vec![0; BUFFER] })
    }

    /// Calls `act` with the directory of `name` and its base name.
    fn at<T>(
        &mut self,
        action: &'static str,
        name: &Name,
        act: impl FnOnce(BorrowedFd<'_>, &OsStr) -> Result<T, Errno>,
    ) -> Result<T, ImageError> {
        let (parent, base) = name.split();
        let known = self.parent.as_ref().is_some_and(|(path, _)| path == parent);
        let go = || {
            if !known {
                let flags = OFlags::PATH | OFlags::DIRECTORY;
                self.parent = Some((parent.to_vec(), open_beneath(&self.root, parent, flags)?));
            }
            match &self.parent {
                Some((_, directory)) => act(directory.as_fd(), OsStr::from_bytes(base)),
                None => Err(Errno::NOENT),
            }
        };
        go().map_err(|errno| self.failed(action, name, errno))
    }

    fn failed(&self, action: &'static str, name: &Name, errno: Errno) -> ImageError {
        let path = self.path.join(OsStr::from_bytes(name.bytes()));
        ImageError::Io { action, path, source: errno.into() }
    }
}

impl Sink for Disk {
    fn directory(&mut self, name: &Name) -> Result<(), ImageError> {
        self.at("create", name, |parent, base| mkdirat(parent, base, FILLING))
    }

    fn file(
        &mut self,
        name: &Name,
        file: &File,
        content: &mut dyn Read,
    ) -> Result<u32, ImageError> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = self.at("create", name, |parent, base| {
            openat(parent, base, flags, Mode::RUSR | Mode::WUSR)
        })?;
        let mut out = std::fs::File::from(fd);
        let mut left = file.size;
        while left > 0 {
            let most = self.buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let read = content
                .read(&mut self.buffer[..most])
                .map_err(ImageError::io("read", Path::new("the layer")))?;
            if read == 0 {
                let what = format!("the archive ends {left} bytes before the entry's end");
                return Err(ImageError::refused(format!("entry {name}"), what));
            }
            out.write_all(&self.buffer[..read]).map_err(|source| {
                let path = self.path.join(OsStr::from_bytes(name.bytes()));
                ImageError::Io { action: "write", path, source }
            })?;
            left -= read as u64;
        }
        let mode = Mode::from_raw_mode(file_mode(file.mode));
        fchmod(&out, mode)
            .and_then(|()| {
                if TIMES.contains(&file.modified) {
                    futimens(&out, &times(file.modified))
                } else {
                    Ok(())
                }
            })
            .map_err(|errno| self.failed("write", name, errno))?;
        Ok(0)
    }

    fn symlink(&mut self, name: &Name, target: &[u8]) -> Result<u32, ImageError> {
        self.at("link", name, |parent, base| symlinkat(OsStr::from_bytes(target), parent, base))?;
        Ok(0)
    }

    fn link(&mut self, name: &Name, to: &Name) -> Result<(), ImageError> {
        let (directory, base) = to.split();
        let from = open_beneath(&self.root, directory, OFlags::PATH | OFlags::DIRECTORY)
            .map_err(|errno| self.failed("open", to, errno))?;
        let base = OsStr::from_bytes(base);
        self.at("link", name, |parent, link| linkat(&from, base, parent, link, AtFlags::empty()))
    }

    fn remove(&mut self, name: &Name, directory: bool) -> Result<(), ImageError> {
        let flags = if directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        self.at("remove", name, |parent, base| unlinkat(parent, base, flags))?;
        if directory {
            // It may be the one that is kept open, and another may be made of its name.
            self.parent = None;
        }
        Ok(())
    }

    fn finish_directory(&mut self, name: &Name, mode: u32) -> Result<(), ImageError> {
        open_beneath(&self.root, name.bytes(), OFlags::RDONLY | OFlags::DIRECTORY)
            .and_then(|directory| fchmod(directory, Mode::from_raw_mode(mode)))
            .map_err(|errno| self.failed("seal", name, errno))
    }
}

fn times(modified: i64) -> Timestamps {
    let at = Timespec { tv_sec: modified, tv_nsec: 0 };
    Timestamps { last_access: at, last_modification: at }
}
