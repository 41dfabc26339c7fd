//! Advisory locks (`flock`) on files of the host's own, so that several processes may share roots.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::LazyLock;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag, openat};
use nix::sys::stat::Mode;

/// The length of a holder's note, in bytes.
const NOTE_BYTES: u64 = 128;

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
            Ok(flock) => {
                write_note(&flock).map_err(LockError::Io)?;
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
    // Should a pipe stand there, nothing waits for its other end.
    let flags = flags | OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file: OwnedFd = openat(directory, name, flags, Mode::S_IRUSR | Mode::S_IWUSR)?;
    let file = File::from(file);
    let status = file.metadata()?;
    if !status.is_file() || status.nlink() != 1 {
        return Err(io::Error::other("it is not a plain lock file; remove it"));
    }
    Ok(file)
}

/// Written over the last holder's, in one length and only when it differs: every turn comes by here, and
/// cutting a file to nothing before writing it makes some file systems flush it to disk.
fn write_note(file: &File) -> io::Result<()> {
    let note = holder_note();
    let mut written = Vec::with_capacity(note.len());
    file.take(NOTE_BYTES).read_to_end(&mut written)?;
    if written != note.as_bytes() {
        file.write_all_at(note.as_bytes(), 0)?;
    }
    Ok(())
}

/// This process, as another one's error names it, in one line of [`NOTE_BYTES`].
fn holder_note() -> &'static str {
    static NOTE: LazyLock<String> = LazyLock::new(|| {
        let program = std::env::current_exe()
            .ok()
            .and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
            .unwrap_or_else(|| "unknown program".to_owned());
        let program: String = program.chars().filter(char::is_ascii_graphic).take(64).collect();
        let mut note = format!("process {} ({program})", std::process::id());
        note.extend(std::iter::repeat_n(' ', NOTE_BYTES as usize - 1 - note.len()));
        note.push('\n');
        note
    });
    &NOTE
}

/// The note is for people: whatever stands there is cut to one printable line.
fn read_note(file: File) -> String {
    let mut bytes = Vec::new();
    let _ = file.take(NOTE_BYTES).read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().next().unwrap_or_default();
    let line: String =
        line.trim_end().chars().filter(|character| !character.is_control()).collect();
    if line.is_empty() { "another process".to_owned() } else { line }
}
