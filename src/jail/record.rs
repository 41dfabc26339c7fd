//! The record of passed canaries, for commands that run one turn and end: valid for this boot, this
//! program file and these policies, and for nobody else's directory.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use turnjail_warden::wire::Facts;

use crate::Isolation;

/// The longest record that is read, in bytes.
const BYTES: u64 = 4096;

/// Where passes are kept and what a pass of now looks like. Whoever can write the directory can already
/// run anything as this user, so a record protects against change, not against that user.
#[derive(Debug)]
pub(crate) struct Record {
    directory: PathBuf,
    now: String,
}

impl Record {
    /// None where the directory is not this user's alone, or what identifies a pass cannot be found out:
    /// then every canary is run.
    pub(crate) fn open(directory: &Path, facts: &Facts) -> Option<Self> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        let found = made.and_then(|()| fs::symlink_metadata(directory)).ok()?;
        let own = found.uid() == nix::unistd::geteuid().as_raw();
        let private = found.mode() & 0o777 == 0o700;
        (found.is_dir() && own && private).then_some(())?;
        Some(Self { directory: directory.to_owned(), now: now(facts)? })
    }

    /// Whether a jail of this isolation passed.
    pub(crate) fn has(&self, isolation: Isolation) -> bool {
        let mut text = String::new();
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(self.path(isolation));
        file.and_then(|file| file.take(BYTES).read_to_string(&mut text)).is_ok() && text == self.now
    }

    /// Notes a pass. That it cannot be noted costs the next command a canary.
    pub(crate) fn add(&self, isolation: Isolation) {
        let path = self.path(isolation);
        let staged = path.with_extension(std::process::id().to_string());
        let flags = OFlags::NOFOLLOW.bits() as i32;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600).custom_flags(flags);
        let written = options
            .open(&staged)
            .and_then(|mut file| file.write_all(self.now.as_bytes()))
            .and_then(|()| fs::rename(&staged, &path));
        if let Err(error) = written {
            let _ = fs::remove_file(&staged);
            tracing::debug!(%error, "a passed canary could not be noted");
        }
    }

    fn path(&self, isolation: Isolation) -> PathBuf {
        let loopback = if isolation.loopback { "-loopback" } else { "" };
        self.directory.join(format!("canary-{}{loopback}", isolation.profile))
    }
}

/// Boot, program file, kernel and policies, in one line. The warden and the policies are part of the
/// program file.
fn now(facts: &Facts) -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let program = fs::metadata("/proc/self/exe").ok()?;
    let namespace =
        |name: &str| fs::metadata(format!("/proc/self/ns/{name}")).map(|found| found.ino());
    let namespaces = (namespace("user").ok()?, namespace("mnt").ok()?);
    let file =
        (program.dev(), program.ino(), program.size(), program.mtime(), program.mtime_nsec());
    Some(format!("{} {file:?} {namespaces:?} {facts:?}\n", boot.trim()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use turnjail_warden::mechanisms::Mechanisms;

    use super::*;

    fn facts(landlock_abi: u32) -> Facts {
        Facts {
            landlock_abi,
            mechanisms: Mechanisms {
                detached_mounts: true,
                clone3: true,
                close_range: true,
                openat2: true,
            },
            mdwe: true,
            sealed_filter: "a".to_owned(),
            sealed_stages: [String::new(), String::new()],
            clearing_filter: String::new(),
            general_filter: "b".to_owned(),
            loopback_filter: "c".to_owned(),
        }
    }

    fn directory() -> tempfile::TempDir {
        let directory = tempfile::tempdir().expect("a directory");
        let private = fs::Permissions::from_mode(0o700);
        fs::set_permissions(directory.path(), private).expect("chmod");
        directory
    }

    #[test]
    fn a_pass_is_known_for_the_same_policies_and_isolation_alone() {
        let directory = directory();
        let record = Record::open(directory.path(), &facts(7)).expect("a record");
        assert!(!record.has(Isolation::SEALED));
        record.add(Isolation::SEALED);
        assert!(record.has(Isolation::SEALED) && !record.has(Isolation::GENERAL));
        let other = Record::open(directory.path(), &facts(0)).expect("a record");
        assert!(!other.has(Isolation::SEALED), "without landlock it is another pass");
        assert_eq!(fs::read_dir(directory.path()).expect("it").count(), 1);
    }

    #[test]
    fn a_directory_that_others_can_write_holds_no_record() {
        let directory = directory();
        let open = fs::Permissions::from_mode(0o770);
        fs::set_permissions(directory.path(), open).expect("chmod");
        assert!(Record::open(directory.path(), &facts(7)).is_none());
    }
}
