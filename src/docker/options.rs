//! How the engine is reached.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use turnjail_driver::DriverError;

use crate::fault;

/// How the engine is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DockerOptions {
    /// The client's program, `docker` by default: a name that is searched in [`path`](Self::path), or
    /// an absolute path. `podman` and turnjail's own docker command work as well.
    pub program: PathBuf,
    /// Where the engine listens, as `DOCKER_HOST` has it: `unix:///...`. None is the client's own
    /// default. Only sockets of this host: the directories of a turn are mounted from it.
    pub host: Option<String>,
    /// The `PATH` of the client, by which a program without a slash is found.
    pub path: OsString,
    /// The `HOME` of the client: podman keeps its images below it. Docker's settings there are never
    /// read, since they can put proxies with their passwords into containers.
    pub home: Option<PathBuf>,
    /// The `XDG_RUNTIME_DIR` of the client, which podman needs.
    pub runtime_dir: Option<PathBuf>,
}

impl DockerOptions {
    /// The `docker` in the usual directories, with its own default socket.
    pub fn new() -> Self {
        Self {
            program: PathBuf::from("docker"),
            host: None,
            path: "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into(),
            home: None,
            runtime_dir: None,
        }
    }

    /// What can be refused without starting anything.
    pub(crate) fn check(&self) -> Result<(), DriverError> {
        let bare = self.program.components().count() == 1;
        if self.program.as_os_str().is_empty() || !(bare || self.program.is_absolute()) {
            return Err(fault::policy(
                format!("the docker program {:?} is neither a name nor absolute", self.program),
                "name it by its absolute path",
            ));
        }
        let local = |host: &str| {
            host.strip_prefix("unix://").is_some_and(|path| Path::new(path).is_absolute())
        };
        match &self.host {
            Some(host) if !local(host) => Err(fault::policy(
                format!("the docker host {host:?} is not a socket of this host"),
                "use unix:///path/of/the.sock: a turn's directories are mounted from this host",
            )),
            _ => Ok(()),
        }
    }
}

impl Default for DockerOptions {
    fn default() -> Self {
        Self::new()
    }
}
