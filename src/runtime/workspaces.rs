//! Workspaces between turns: how large they are, forgetting one, mending one.
//!
//! What stands in a workspace is a guest's, so all of it is done by the worker in a jail
//! ([`Errand`]); the host names directories and removes the empty ones. The lock of a workspace is held
//! meanwhile, so that no turn of any process runs in it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use nix::fcntl::AtFlags;
use nix::sys::stat::fstatat;
use nix::unistd::{UnlinkatFlags, unlinkat};
use tokio_util::sync::CancellationToken;
use turnjail_driver::{ContainerDriver, ContainerSpec, DriverError, Limits};
use turnjail_protocol::errand::{Errand, ErrandOutcome};

use crate::layout::{self, TurnDirectories};
use crate::roots::Roots;
use crate::run_dir::{self, RunDir};
use crate::settings::Ids;
use crate::{SetupError, TurnError};

/// How long an errand may take.
const ERRAND_TIMEOUT: Duration = Duration::from_secs(300);

/// The workspaces of a host.
pub struct Workspaces {
    roots: Roots,
    driver: Arc<dyn ContainerDriver>,
    image: String,
    ids: Ids,
}

/// What is known of a workspace from outside and, measured in a jail, of what is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkspaceInfo {
    /// The directory's name, which is made from the channel's or the guild's key and does not show it.
    pub name: String,
    /// When its history was last written, or it was made.
    pub last_used: SystemTime,
    /// What is in it; none when a turn runs in it just now, or it cannot be measured.
    pub size: Option<WorkspaceSize>,
}

/// What is in a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkspaceSize {
    /// Files, directories and everything else.
    pub entries: u64,
    /// Bytes of regular files.
    pub bytes: u64,
    /// Part of it is too deep or unreadable and is not counted.
    pub cut: bool,
}

impl Workspaces {
    /// Opens the roots of a host, beside its runtimes. `image` is the one whose worker does the errands.
    pub async fn open(
        run_root: &Path,
        workspace_root: &Path,
        image: impl Into<String>,
        driver: Arc<dyn ContainerDriver>,
    ) -> Result<Self, SetupError> {
        let ids = Ids::of_process()?;
        let (roots, _) = Roots::prepare(run_root, workspace_root).await?;
        Ok(Self { roots, driver, image: image.into(), ids })
    }

    /// The directory of a name, whether it is there or not.
    pub fn path(&self, name: &str) -> PathBuf {
        self.roots.workspaces.path.join(name)
    }

    /// Every workspace and channel state, by name.
    pub async fn list(&self) -> Result<Vec<WorkspaceInfo>, TurnError> {
        let root = &self.roots.workspaces;
        let mut names = root
            .fd
            .try_clone()
            .and_then(run_dir::names)
            .map_err(|error| failed("list", &root.path, &error))?
            .into_iter()
            .filter_map(|name| name.into_string().ok())
            .filter(|name| layout::is_directory_name(name))
            .collect::<Vec<_>>();
        names.sort();
        let mut list = Vec::with_capacity(names.len());
        for name in names {
            let Some(last_used) = self.last_used(&name) else { continue };
            let size = match self.errand(&name, None, Errand::Measure).await {
                Ok(ErrandOutcome::Measured { entries, bytes, cut }) => {
                    Some(WorkspaceSize { entries, bytes, cut })
                }
                // In use, or not to be measured: the others are listed all the same.
                Err(_) => None,
                Ok(_) => return Err(self.no_outcome()),
            };
            list.push(WorkspaceInfo { name, last_used, size });
        }
        Ok(list)
    }

    /// Removes a channel's state beside a shared workspace, or else the workspace, with everything in it.
    /// False when there is none.
    pub async fn remove(&self, directories: &TurnDirectories) -> Result<bool, TurnError> {
        let name = directories.state.as_deref().unwrap_or(&directories.workspace);
        if self.last_used(name).is_none() {
            return Ok(false);
        }
        let lock = directories.state.is_some().then_some(directories.workspace.as_str());
        let _other = lock.map(|name| self.roots.lock_workspace(name)).transpose()?;
        match self.errand(name, Some(name), Errand::Clear).await? {
            ErrandOutcome::Cleared { left: 0, .. } => Ok(true),
            ErrandOutcome::Cleared { left, .. } => Err(TurnError::Host {
                cause: format!("{left} entries of {:?} could not be removed", self.path(name)),
                remedy: Some("remove the directory by hand".to_owned()),
            }),
            _ => Err(self.no_outcome()),
        }
    }

    /// Puts a history or memory aside that is not readable as one; the names that they have now.
    pub async fn repair(&self, directories: &TurnDirectories) -> Result<Vec<String>, TurnError> {
        let mut aside = Vec::new();
        let names = [Some(&directories.workspace), directories.state.as_ref()];
        for name in names.into_iter().flatten().filter(|name| self.last_used(name).is_some()) {
            match self.errand(name, None, Errand::Repair).await? {
                ErrandOutcome::Repaired { aside: names } => {
                    // What was no file at all is gone and has no name any more.
                    aside.extend(names.into_iter().map(|(file, now)| match &*now {
                        "" => format!("{name}/{file} (removed: it was no file)"),
                        now => format!("{name}/{now}"),
                    }));
                }
                _ => return Err(self.no_outcome()),
            }
        }
        Ok(aside)
    }

    /// When the directory last changed; none when it is not there.
    fn last_used(&self, name: &str) -> Option<SystemTime> {
        let fd = &self.roots.workspaces.fd;
        let status = fstatat(fd, name, AtFlags::AT_SYMLINK_NOFOLLOW).ok()?;
        let seconds = u64::try_from(status.st_mtime).ok()?;
        Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
    }

    /// Has a worker do an errand in the workspace, and removes the directory `gone` after it.
    async fn errand(
        &self,
        name: &str,
        gone: Option<&str>,
        errand: Errand,
    ) -> Result<ErrandOutcome, TurnError> {
        let _lock = self.roots.lock_workspace(name)?;
        let run = &self.roots.run;
        let run_dir = RunDir::create(run).map_err(|e| failed("make", &run.path, &e))?;
        let limits = Limits::default();
        let spec = ContainerSpec {
            name: layout::run_name(&layout::channel_workspace(name), &crate::runtime::turn_id()?),
            image: self.image.clone(),
            run_dir: run_dir.path().to_owned(),
            workspace_dir: self.roots.workspace(name)?,
            channel_dir: None,
            uid: self.ids.uid,
            gid: self.ids.gid,
            limits: Limits { time_ms: ERRAND_TIMEOUT.as_millis() as u64, ..limits },
        };
        let cancel = CancellationToken::new();
        let late = cancel.clone();
        let timer = tokio::spawn(async move {
            tokio::time::sleep(ERRAND_TIMEOUT).await;
            late.cancel();
        });
        let outcome = self.driver.run(&spec, errand.to_json().as_bytes(), &cancel, &()).await;
        timer.abort();
        let outcome = outcome.map_err(|error| match error {
            DriverError::Cancelled => TurnError::Timeout { after: ERRAND_TIMEOUT },
            error => TurnError::Driver(error),
        })?;
        let cleared = ErrandOutcome::parse(errand, &outcome.reply.text)
            .filter(|_| outcome.reply.ok)
            .ok_or_else(|| self.no_outcome())?;
        if let (Some(gone), ErrandOutcome::Cleared { left: 0, .. }) = (gone, &cleared) {
            unlinkat(&self.roots.workspaces.fd, gone, UnlinkatFlags::RemoveDir)
                .map_err(|errno| failed("remove", &self.path(gone), &errno.into()))?;
        }
        Ok(cleared)
    }

    fn no_outcome(&self) -> TurnError {
        TurnError::Host {
            cause: format!("the worker of image {:?} does not know this errand", self.image),
            remedy: Some("use the worker built into turnjail".to_owned()),
        }
    }
}

fn failed(step: &str, path: &Path, error: &std::io::Error) -> TurnError {
    TurnError::Host { cause: format!("cannot {step} {path:?}: {error}"), remedy: None }
}

impl std::fmt::Debug for Workspaces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workspaces")
            .field("root", &self.roots.workspaces.path)
            .finish_non_exhaustive()
    }
}
