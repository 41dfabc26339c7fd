//! A private directory for a benchmark, as an ordinary user.

use std::fs::{DirBuilder, Permissions, set_permissions};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use nix::unistd::{Gid, Uid, geteuid, setgid, setgroups, setuid};
use tempfile::TempDir;

/// A private directory that goes with the value, below the system's temporary one or below
/// `TURNJAIL_BENCH_DIR`.
pub struct Scratch {
    directory: TempDir,
    dropped_root: bool,
}

impl Scratch {
    /// Drops root, which never makes jails, and makes the directory. To be called before any thread is
    /// started.
    pub fn new() -> Self {
        let dropped_root = leave_root();
        let base =
            std::env::var_os("TURNJAIL_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        let base = base.canonicalize().expect("the directory for benchmarks");
        let directory = tempfile::tempdir_in(base).expect("a directory");
        set_permissions(directory.path(), Permissions::from_mode(0o700)).expect("chmod");
        Self { directory, dropped_root }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// A private directory in it.
    pub fn private(&self, name: &str) -> PathBuf {
        let path = self.path().join(name);
        DirBuilder::new().recursive(true).mode(0o700).create(&path).expect("a directory");
        path
    }

    /// Whether the process was started by root, and so cannot write where it was built.
    pub fn dropped_root(&self) -> bool {
        self.dropped_root
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

fn leave_root() -> bool {
    const ORDINARY: u32 = 1000;
    if !geteuid().is_root() {
        return false;
    }
    setgroups(&[]).expect("root can clear its groups");
    setgid(Gid::from_raw(ORDINARY)).expect("root can change its group");
    setuid(Uid::from_raw(ORDINARY)).expect("root can change its user");
    true
}
