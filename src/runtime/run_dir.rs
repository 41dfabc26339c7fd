//! A turn's private directory under the run root: made, removed, and swept after a crash.
//!
//! It holds nothing but the host's own files (the broker's socket) and is read-only for the worker.
//! Everything is done relative to descriptors, never by path.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, fstat, mkdirat};
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};

/// What the names of run directories begin with.
const PREFIX: &str = "turn-";
/// How many random characters follow.
const RANDOM: usize = 6;
/// What the random characters are taken from.
const ALPHABET: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
/// A name is taken only by accident, and not this often in a row.
const ATTEMPTS: u32 = 16;

/// A root directory, held open.
#[derive(Debug)]
pub(crate) struct Directory {
    pub path: PathBuf,
    pub fd: OwnedFd,
}

/// A turn's run directory; dropping it removes it.
#[derive(Debug)]
pub(crate) struct RunDir {
    root: Arc<Directory>,
    name: String,
    path: PathBuf,
    removed: bool,
}

impl RunDir {
    /// Makes a fresh one, mode 0700.
    pub fn create(root: &Arc<Directory>) -> io::Result<Self> {
        for _ in 0..ATTEMPTS {
            let name = random_name()?;
            match mkdirat(&root.fd, name.as_str(), Mode::S_IRWXU) {
                Ok(()) => {
                    let path = root.path.join(&name);
                    return Ok(Self { root: root.clone(), name, path, removed: false });
                }
                Err(Errno::EEXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Err(Errno::EEXIST.into())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it with the files in it.
    pub fn remove(mut self) -> io::Result<()> {
        self.removed = true;
        remove(&self.root, &self.name)
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        if self.removed {
            return;
        }
        if let Err(error) = remove(&self.root, &self.name) {
            tracing::warn!(directory = ?self.path, %error, "run directory not removed");
        }
    }
}

/// What a sweep found.
#[derive(Debug, Default)]
pub(crate) struct Swept {
    pub removed: usize,
    pub failed: Vec<(PathBuf, io::Error)>,
}

/// Removes every run directory under `root`. Only for whoever holds the root's lock exclusively: those
/// of running turns would go too.
pub(crate) fn sweep(root: &Directory) -> io::Result<Swept> {
    let mut swept = Swept::default();
    for name in names(root.fd.as_fd().try_clone_to_owned()?)? {
        let Ok(name) = name.to_str() else { continue };
        if !is_run_dir(name) {
            continue;
        }
        match remove(root, name) {
            Ok(()) => swept.removed += 1,
            Err(error) => swept.failed.push((root.path.join(name), error)),
        }
    }
    Ok(swept)
}

fn is_run_dir(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|random| {
        random.len() == RANDOM && random.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

/// Bytes over the greatest multiple of the alphabet's length would favour its beginning.
fn random_name() -> io::Result<String> {
    let mut name = PREFIX.to_owned();
    while name.len() < PREFIX.len() + RANDOM {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)?;
        let picked = bytes.iter().filter(|&&byte| usize::from(byte) < ALPHABET.len() * 4);
        name.extend(
            picked
                .map(|&byte| char::from(ALPHABET[usize::from(byte) % ALPHABET.len()]))
                .take(PREFIX.len() + RANDOM - name.len()),
        );
    }
    Ok(name)
}

/// Removes one run directory of ours with its files. A directory inside one is not the host's doing:
/// it is left, and said.
fn remove(root: &Directory, name: &str) -> io::Result<()> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let directory = match openat(&root.fd, name, flags, Mode::empty()) {
        Ok(directory) => directory,
        Err(Errno::ENOENT) => return Ok(()),
        Err(errno) => return Err(errno.into()),
    };
    if fstat(&directory)?.st_uid != geteuid().as_raw() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it belongs to another user"));
    }
    for entry in names(directory.try_clone()?)? {
        match unlinkat(&directory, entry.as_c_str(), UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    // An open directory that is removed stays on some file systems' lists of orphans until it is closed.
    drop(directory);
    match unlinkat(&root.fd, name, UnlinkatFlags::RemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// The names in a directory but `.` and `..`, read whole before anything is changed.
pub(crate) fn names(directory: OwnedFd) -> io::Result<Vec<std::ffi::CString>> {
    let mut listing = Dir::from_fd(reopened(&directory)?)?;
    let mut names = Vec::new();
    for entry in listing.iter() {
        let entry = entry?;
        let name: &CStr = entry.file_name();
        if name != c"." && name != c".." {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// A descriptor with a reading position of its own: a duplicate shares it with the original.
fn reopened(directory: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    Ok(openat(directory, c".", flags, Mode::empty())?)
}
