//! Advisory locks (`flock`) on files of the host's own, so that several processes may share roots.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag, openat};
use nix::sys::stat::Mode;

/// The longest holder's note that is read, in bytes.
const NOTE_BYTES: u64 = 200;

/// A held lock; dropping it lets go.
#[derive(Debug)]
pub(crate) struct FileLock {
    flock: Flock<File>,
}

/// Why a lock was not taken.
#[derive(Debug)]
pub(crate) enum LockError {
    /// Somebody else holds it; what they wrote about themselves.
    Held(String),
    /// The lock file could not be used.
    Io(io::Error),
}

impl FileLock {
    /// Takes the lock on the file `name` of `directory` without waiting, and leaves a note of who
    /// holds it.
    pub fn exclusive(directory: impl AsFd, name: &str) -> Result<Self, LockError> {
        let file = open(directory, name).map_err(LockError::Io)?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(mut flock) => {
                write_note(&mut flock).map_err(LockError::Io)?;
                Ok(Self { flock })
            }
            Err((file, Errno::EWOULDBLOCK)) => Err(LockError::Held(read_note(file))),
            Err((_, errno)) => Err(LockError::Io(errno.into())),
        }
    }

    /// Shares the lock on the file `name` of `directory` without waiting.
    pub fn shared(directory: impl AsFd, name: &str) -> Result<Self, LockError> {
        let file = open(directory, name).map_err(LockError::Io)?;
        match Flock::lock(file, FlockArg::LockSharedNonblock) {
            Ok(flock) => Ok(Self { flock }),
            Err((file, Errno::EWOULDBLOCK)) => Err(LockError::Held(read_note(file))),
            Err((_, errno)) => Err(LockError::Io(errno.into())),
        }
    }

    /// Shares a lock that was held exclusively. Somebody else may hold it for a moment in between.
    pub fn share(self) -> io::Result<Self> {
        self.flock.relock(FlockArg::LockShared)?;
        Ok(self)
    }
}

fn open(directory: impl AsFd, name: &str) -> io::Result<File> {
    let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let file: OwnedFd = openat(directory, name, flags, Mode::S_IRUSR | Mode::S_IWUSR)?;
    Ok(file.into())
}

fn write_note(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.write_all(holder().as_bytes())
}

/// This process, as another one's error names it.
fn holder() -> String {
    let program = std::env::current_exe()
        .ok()
        .and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
        .unwrap_or_else(|| "unknown program".to_owned());
    format!("process {} ({program})\n", std::process::id())
}

/// The note is for people: whatever stands there is cut to one printable line.
fn read_note(file: File) -> String {
    let mut bytes = Vec::new();
    let _ = file.take(NOTE_BYTES).read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().next().unwrap_or_default();
    let line: String = line.chars().filter(|character| !character.is_control()).collect();
    if line.is_empty() { "another process".to_owned() } else { line }
}
