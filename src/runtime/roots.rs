//! The two root directories: made, checked, locked, swept.

use std::fs::DirBuilder;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open};
use nix::sys::stat::{FchmodatFlags, FileStat, Mode, SFlag, fchmodat, fstatat, mkdirat};
use nix::unistd::geteuid;

use crate::lock::{FileLock, LockError};
use crate::run_dir::{self, Directory};
use crate::{SetupError, TurnError};

/// The lock that every runtime shares on a root, and takes alone to sweep it.
const ROOT_LOCK: &str = ".turnjail.lock";
/// The directory of the workspaces' locks, beside the workspaces.
const LOCKS: &str = ".turnjail-locks";
/// The longest path of a broker's socket, in bytes.
const SOCKET_PATH_BYTES: usize = 100;
/// What a run directory and the socket in it add to the run root's path.
const SOCKET_PATH_TAIL: &str = "/turn-XXXXXX/broker.sock";
/// How long another runtime's sweep is waited for, in steps of this many milliseconds.
const SWEEP_WAIT: (u32, u64) = (500, 20);
/// The kind and permissions in a file's mode.
const PERMISSIONS: u32 = 0o7777;

/// The roots, held open and locked for as long as the runtime lives.
#[derive(Debug)]
pub(crate) struct Roots {
    pub run: Arc<Directory>,
    pub workspaces: Directory,
    locks: Directory,
    _shared: [FileLock; 2],
}

/// What a start found of a host that died.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    /// Nobody else used the run root while it was swept.
    pub alone: bool,
}

impl Roots {
    /// Makes and checks both roots, sweeps what a dead host left if nobody else uses them, and shares
    /// their locks.
    pub async fn prepare(
        run_root: &Path,
        workspace_root: &Path,
    ) -> Result<(Self, Leftovers), SetupError> {
        let run = private_root("run_root", run_root)?;
        let workspaces = private_root("workspace_root", workspace_root)?;
        check_separate(&run.path, &workspaces.path)?;
        check_socket_path(&run.path)?;
        let locks = lock_directory(&workspaces)?;
        let (run_lock, alone) = lock_run_root(&run).await?;
        let workspace_lock = share("workspace_root", &workspaces).await?;
        let roots =
            Self { run: Arc::new(run), workspaces, locks, _shared: [run_lock, workspace_lock] };
        Ok((roots, Leftovers { alone }))
    }

    /// Locks a workspace for one turn, against other runtimes and processes.
    pub fn lock_workspace(&self, name: &str) -> Result<FileLock, TurnError> {
        FileLock::exclusive(&self.locks.fd, name).map_err(|error| match error {
            LockError::Held(holder) => TurnError::WorkspaceBusy { holder },
            LockError::Io(error) => host_error(&self.locks.path.join(name), "lock", &error),
        })
    }

    /// Makes a turn's directory under the workspace root if it is not there yet. What stands in it is
    /// never looked at.
    pub fn workspace(&self, name: &str) -> Result<PathBuf, TurnError> {
        let path = self.workspaces.path.join(name);
        let failed = |step, errno: Errno| host_error(&path, step, &errno.into());
        match mkdirat(&self.workspaces.fd, name, Mode::S_IRWXU) {
            Ok(()) => return Ok(path),
            Err(Errno::EEXIST) => {}
            Err(errno) => return Err(failed("make", errno)),
        }
        let status = fstatat(&self.workspaces.fd, name, AtFlags::AT_SYMLINK_NOFOLLOW)
            .map_err(|errno| failed("look at", errno))?;
        check_workspace(&path, &status)?;
        // A worker owns its workspace and may have taken its own permissions away. The name stands
        // in a directory that no worker reaches, so it cannot be exchanged meanwhile.
        if status.st_mode & PERMISSIONS != Mode::S_IRWXU.bits() {
            fchmodat(&self.workspaces.fd, name, Mode::S_IRWXU, FchmodatFlags::FollowSymlink)
                .map_err(|errno| failed("set the permissions of", errno))?;
        }
        Ok(path)
    }
}

/// Sweeps the run root if no other runtime uses it, and shares its lock. Also tells whether it was
/// alone.
async fn lock_run_root(run: &Directory) -> Result<(FileLock, bool), SetupError> {
    match FileLock::exclusive(&run.fd, ROOT_LOCK) {
        Ok(lock) => {
            sweep(run)?;
            let shared = lock.share().map_err(|error| unusable("run_root", &run.path, &error))?;
            Ok((shared, true))
        }
        Err(LockError::Held(_)) => Ok((share("run_root", run).await?, false)),
        Err(LockError::Io(error)) => Err(unusable("run_root", &run.path, &error)),
    }
}

/// A directory that stays is a nuisance, not a danger: it is said and the host starts.
fn sweep(run: &Directory) -> Result<(), SetupError> {
    let swept = run_dir::sweep(run).map_err(|error| unusable("run_root", &run.path, &error))?;
    if swept.removed > 0 {
        tracing::info!(directories = swept.removed, root = ?run.path, "removed what an earlier host left");
    }
    for (directory, error) in swept.failed {
        tracing::warn!(?directory, %error, "run directory of an earlier host not removed");
    }
    Ok(())
}

/// Shares a root's lock; whoever has it alone is sweeping and soon done.
async fn share(option: &'static str, root: &Directory) -> Result<FileLock, SetupError> {
    let (steps, milliseconds) = SWEEP_WAIT;
    for _ in 0..steps {
        match FileLock::shared(&root.fd, ROOT_LOCK) {
            Ok(lock) => return Ok(lock),
            Err(LockError::Held(_)) => {
                tokio::time::sleep(Duration::from_millis(milliseconds)).await;
            }
            Err(LockError::Io(error)) => return Err(unusable(option, &root.path, &error)),
        }
    }
    Err(SetupError::Root {
        option,
        path: root.path.clone(),
        problem: "is locked by another process".to_owned(),
        remedy: format!("end the process that holds {ROOT_LOCK} in it"),
    })
}

/// Makes a root if it is absent, and checks that it is the user's own.
fn private_root(option: &'static str, path: &Path) -> Result<Directory, SetupError> {
    let failed = |error: io::Error| unusable(option, path, &error);
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
    // Where others may write beside it, as in /tmp, a link there may be somebody's who wants this host
    // to sweep another directory of its user.
    let named = open_directory(path).map_err(|error| match error.raw_os_error() {
        Some(number) if path.is_symlink() && Errno::from_raw(number) == Errno::ENOTDIR => {
            link(option, path)
        }
        _ => failed(error),
    })?;
    let path = path.canonicalize().map_err(failed)?;
    let failed = |error: io::Error| unusable(option, &path, &error);
    let fd = open_directory(&path).map_err(failed)?;
    if identity(&named).map_err(failed)? != identity(&fd).map_err(failed)? {
        return Err(failed(Errno::ESTALE.into()));
    }
    let directory = Directory { path, fd };
    let status = std::fs::File::from(
        directory.fd.try_clone().map_err(|error| unusable(option, &directory.path, &error))?,
    )
    .metadata()
    .map_err(|error| unusable(option, &directory.path, &error))?;
    let refused = |problem: &str, remedy: String| SetupError::Root {
        option,
        path: directory.path.clone(),
        problem: problem.to_owned(),
        remedy,
    };
    if directory.path.parent().is_none() {
        return Err(refused("is the root directory", "name a directory for this alone".to_owned()));
    }
    if status.uid() != geteuid().as_raw() {
        return Err(refused(
            &format!("belongs to user {}, not to the host's user {}", status.uid(), geteuid()),
            format!("name another directory, or give this one to user {}", geteuid()),
        ));
    }
    if status.mode() & 0o077 != 0 {
        return Err(refused(
            &format!("has mode {:04o}, which lets others in", status.mode() & PERMISSIONS),
            format!("chmod 700 {:?}", directory.path),
        ));
    }
    Ok(directory)
}

fn link(option: &'static str, path: &Path) -> SetupError {
    SetupError::Root {
        option,
        path: path.to_owned(),
        problem: "is a symbolic link".to_owned(),
        remedy: "name the directory that it points to".to_owned(),
    }
}

/// What tells a directory from every other.
fn identity(directory: &OwnedFd) -> io::Result<(u64, u64)> {
    let status = nix::sys::stat::fstat(directory)?;
    Ok((status.st_dev, status.st_ino))
}

/// Opens a directory; a symbolic link is none.
fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Ok(open(path, flags, Mode::empty())?)
}

/// The locks' directory stands beside the workspaces: nothing of a workspace is ever opened.
fn lock_directory(workspaces: &Directory) -> Result<Directory, SetupError> {
    let path = workspaces.path.join(LOCKS);
    let failed = |error: io::Error| unusable("workspace_root", &path, &error);
    match mkdirat(&workspaces.fd, LOCKS, Mode::S_IRWXU) {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(errno) => return Err(failed(errno.into())),
    }
    let fd = open_directory(&path).map_err(failed)?;
    Ok(Directory { path, fd })
}

fn check_separate(run: &Path, workspaces: &Path) -> Result<(), SetupError> {
    if !run.starts_with(workspaces) && !workspaces.starts_with(run) {
        return Ok(());
    }
    Err(SetupError::Root {
        option: "run_root",
        path: run.to_owned(),
        problem: format!(
            "and workspace_root {workspaces:?} must be separate, neither inside the other"
        ),
        remedy: "name two directories side by side".to_owned(),
    })
}

/// Whether a socket in a turn's directory has room for its path.
pub(crate) fn check_socket_path(run: &Path) -> Result<(), SetupError> {
    let length = run.as_os_str().as_bytes().len() + SOCKET_PATH_TAIL.len();
    if length <= SOCKET_PATH_BYTES {
        return Ok(());
    }
    Err(SetupError::Root {
        option: "run_root",
        path: run.to_owned(),
        problem: format!(
            "is too long: with {SOCKET_PATH_TAIL} a socket's path has {length} bytes, and at most {SOCKET_PATH_BYTES} are possible"
        ),
        remedy: format!(
            "name a directory whose path has at most {} bytes, for example in the user's runtime directory",
            SOCKET_PATH_BYTES - SOCKET_PATH_TAIL.len()
        ),
    })
}

fn check_workspace(path: &Path, status: &FileStat) -> Result<(), TurnError> {
    let kind = SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT;
    let problem = if kind != SFlag::S_IFDIR {
        "is no directory"
    } else if status.st_uid != geteuid().as_raw() {
        "belongs to another user"
    } else {
        return Ok(());
    };
    Err(TurnError::Host {
        cause: format!("workspace {path:?} {problem}"),
        remedy: Some("move it away".to_owned()),
    })
}

fn unusable(option: &'static str, path: &Path, error: &io::Error) -> SetupError {
    SetupError::Root {
        option,
        path: path.to_owned(),
        problem: format!("cannot be used: {error}"),
        remedy: "name a directory that the host's user can make and use".to_owned(),
    }
}

fn host_error(path: &Path, step: &str, error: &io::Error) -> TurnError {
    let remedy = match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOSPC | Errno::EDQUOT) => Some("free space or inodes of its file system"),
        Some(Errno::EMFILE | Errno::ENFILE) => {
            Some("raise the limit of open files, or run fewer turns at once")
        }
        _ => None,
    };
    TurnError::Host {
        cause: format!("cannot {step} {path:?}: {error}"),
        remedy: remedy.map(str::to_owned),
    }
}
