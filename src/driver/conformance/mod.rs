//! What every driver must do, as a suite that any driver can run.
//!
//! The suite stands in for the rest of turnjail: it makes the directories, serves the broker's socket
//! with a scripted model, and has the driver run turnjail's own worker (protocol 2) from an image that
//! the driver knows. A case passes or says in one sentence what the driver did wrong.
//!
//! ```no_run
//! # async fn check(driver: std::sync::Arc<dyn turnjail_driver::ContainerDriver>) {
//! use turnjail_driver::conformance::{Setting, cases};
//!
//! let setting = Setting::new("turnjail-worker", "/run/user/1000");
//! for case in cases() {
//!     if let Err(fault) = case.check(driver.clone(), &setting).await {
//!         panic!("{}: {fault}", case.name());
//!     }
//! }
//! # }
//! ```
//!
//! What a sealed place keeps the worker from is not tested here: that needs programs that try.

mod cases;
mod model;
mod place;

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use crate::ContainerDriver;

pub use cases::cases;

/// Where and with what the suite runs.
#[derive(Debug, Clone)]
pub struct Setting {
    image: String,
    directory: PathBuf,
    ids: Option<(u32, u32)>,
}

impl Setting {
    /// - `image`: a reference under which the driver finds turnjail's own worker.
    /// - `directory`: an existing directory of the process's user, in which each case makes one of its
    ///   own. Its path has at most 60 bytes, so that sockets in it can be named.
    pub fn new(image: impl Into<String>, directory: impl Into<PathBuf>) -> Self {
        Self { image: image.into(), directory: directory.into(), ids: None }
    }

    /// The user and group that workers are run as, unless the directory's owner: what only a driver
    /// that can take other users' ids has use for.
    #[must_use]
    pub fn ids(mut self, uid: u32, gid: u32) -> Self {
        self.ids = Some((uid, gid));
        self
    }
}

/// What a driver did wrong, in one sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault(String);

impl Fault {
    fn new(fault: impl Into<String>) -> Self {
        Self(fault.into())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Fault {}

type Check = for<'a> fn(
    &'a Arc<dyn ContainerDriver>,
    &'a Setting,
) -> Pin<Box<dyn Future<Output = Result<(), Fault>> + Send + 'a>>;

/// One demand on a driver.
#[derive(Clone, Copy)]
pub struct Case {
    name: &'static str,
    check: Check,
}

impl Case {
    /// What is demanded, in words joined by underscores.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether the driver does it. Needs a tokio runtime with time and I/O.
    pub async fn check(
        &self,
        driver: Arc<dyn ContainerDriver>,
        setting: &Setting,
    ) -> Result<(), Fault> {
        (self.check)(&driver, setting).await
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Case").field(&self.name).finish()
    }
}
