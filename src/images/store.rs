//! One directory of root filesystems, content-addressed, published by rename.

use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use nix::sys::statvfs::{FsFlags, statvfs};

use crate::builtin;
use crate::{ImageConfig, ImageError};

/// The age from which on something in staging is a dead process's.
const LEFT_OVER: std::time::Duration = std::time::Duration::from_secs(60 * 60);

/// An image that a turn can use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The reference it was asked for by.
    pub reference: String,
    /// The digest of its manifest, `sha256:...`: its identity.
    pub digest: String,
    /// Its root filesystem, a directory that nothing writes to any more.
    pub rootfs: PathBuf,
    /// How to start it.
    pub config: ImageConfig,
}

/// The images on this machine.
#[derive(Debug)]
pub struct ImageStore {
    dir: PathBuf,
    /// The built-in image once this process has checked it.
    builtin: Mutex<Option<Image>>,
}

impl ImageStore {
    /// Opens the store in `dir`, making the directory (0700) when it is not there.
    ///
    /// Refuses a directory of another user, one that others can enter, and one on a file system mounted
    /// noexec, where no worker could start.
    pub fn open(dir: &Path) -> Result<Self, ImageError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(ImageError::io("create", dir))?;
        let dir = dir.canonicalize().map_err(ImageError::io("resolve", dir))?;
        let found = fs::metadata(&dir).map_err(ImageError::io("stat", &dir))?;
        let refuse = |what: String, remedy| ImageError::Store { path: dir.clone(), what, remedy };
        if found.uid() != nix::unistd::geteuid().as_raw() {
            let what = format!("belongs to uid {}, not to this user", found.uid());
            return Err(refuse(what, "name a directory of your own"));
        }
        if found.mode() & 0o077 != 0 {
            let what =
                format!("has mode {:04o}; others could change images", found.mode() & 0o7777);
            return Err(refuse(what, "make it private: chmod 700"));
        }
        let flags = statvfs(&dir).map_err(|e| ImageError::io("stat", &dir)(e.into()))?.flags();
        if flags.contains(FsFlags::ST_NOEXEC) {
            let what = "is on a file system mounted noexec".to_owned();
            return Err(refuse(what, "name a store directory on a file system that allows exec"));
        }
        let store = Self { dir, builtin: Mutex::new(None) };
        store.sweep();
        Ok(store)
    }

    /// Removes what a process that died while publishing has left. Best effort: what another process is
    /// just writing is younger, and what cannot be removed only takes room.
    fn sweep(&self) {
        let Ok(entries) = fs::read_dir(self.dir.join("staging")) else { return };
        for path in entries.flatten().map(|entry| entry.path()) {
            let age = fs::symlink_metadata(&path).and_then(|found| found.modified());
            if age.is_ok_and(|then| then.elapsed().is_ok_and(|age| age > LEFT_OVER)) {
                let _ = remove(&path);
            }
        }
    }

    /// Finds the image that `reference` names. Never pulls; the built-in image is written on first use.
    pub fn resolve(&self, reference: &str) -> Result<Image, ImageError> {
        if !builtin::is_builtin(reference) {
            return Err(ImageError::Absent(reference.to_owned()));
        }
        let mut known = self.builtin.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let image = match known.as_ref() {
            Some(image) if image.rootfs.is_dir() => image.clone(),
            _ => self.publish_builtin()?,
        };
        *known = Some(image.clone());
        Ok(Image { reference: reference.to_owned(), ..image })
    }

    fn publish_builtin(&self) -> Result<Image, ImageError> {
        let digest = builtin::builtin_digest();
        let roots = self.directory("roots")?;
        let rootfs = roots.join(digest.trim_start_matches("sha256:"));
        // Asked before the check: what another process publishes meanwhile is not damaged.
        let existed = fs::symlink_metadata(&rootfs).is_ok();
        if !builtin::intact(&rootfs) {
            if existed {
                discard(&rootfs, &self.directory("staging")?)?;
            }
            self.publish(&rootfs)?;
        }
        Ok(Image {
            reference: builtin::BUILTIN.to_owned(),
            digest: digest.to_owned(),
            rootfs,
            config: builtin::config(),
        })
    }

    /// Writes the built-in root beside its place and renames it there, so that a crash or a second
    /// process never shows half of it.
    fn publish(&self, rootfs: &Path) -> Result<(), ImageError> {
        let staging = unused(&self.directory("staging")?)?;
        fs::create_dir(&staging).map_err(ImageError::io("create", &staging))?;
        let written = builtin::unpack(&staging).and_then(|()| {
            seal(&staging)?;
            sync(&staging)?;
            fs::rename(&staging, rootfs).map_err(ImageError::io("publish", rootfs))?;
            sync(&self.directory("roots")?)
        });
        if written.is_err() {
            let _ = remove(&staging);
            // Another process may have published the same image meanwhile.
            if builtin::intact(rootfs) {
                return Ok(());
            }
        }
        written
    }

    fn directory(&self, name: &str) -> Result<PathBuf, ImageError> {
        let path = self.dir.join(name);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)
            .map_err(ImageError::io("create", &path))?;
        Ok(path)
    }
}

/// A name below `dir` that nothing else uses.
fn unused(dir: &Path) -> Result<PathBuf, ImageError> {
    let random = getrandom::u64()
        .map_err(|e| ImageError::io("draw a random name in", dir)(std::io::Error::other(e)))?;
    Ok(dir.join(format!("{random:016x}")))
}

/// Waits until a directory's names are on disk.
fn sync(dir: &Path) -> Result<(), ImageError> {
    fs::File::open(dir).and_then(|dir| dir.sync_all()).map_err(ImageError::io("sync", dir))
}

/// Makes the mount points unwritable; the root itself stays the owner's until it has been renamed,
/// which needs write permission on the directory that moves.
fn seal(root: &Path) -> Result<(), ImageError> {
    for entry in fs::read_dir(root).map_err(ImageError::io("list", root))? {
        let path = entry.map_err(ImageError::io("list", root))?.path();
        if path.is_dir() {
            let mode = Permissions::from_mode(0o555);
            fs::set_permissions(&path, mode).map_err(ImageError::io("seal", &path))?;
        }
    }
    Ok(())
}

/// Moves a damaged root out of the way, so that its name is never half a root, and removes it; absent
/// is success.
fn discard(rootfs: &Path, staging: &Path) -> Result<(), ImageError> {
    let aside = unused(staging)?;
    match fs::rename(rootfs, &aside) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(ImageError::io("move aside", rootfs)(e)),
        Ok(()) => remove(&aside),
    }
}

/// Removes a tree of the store. The owner's write permission may be missing on directories.
fn remove(root: &Path) -> Result<(), ImageError> {
    let failed = ImageError::io("remove", root);
    // A link may stand there; what it leads to is none of ours.
    let found = match fs::symlink_metadata(root) {
        Ok(found) => found,
        Err(error) => return Err(failed(error)),
    };
    if !found.is_dir() {
        return fs::remove_file(root).map_err(failed);
    }
    if let Ok(entries) = fs::read_dir(root) {
        for path in entries.flatten().map(|entry| entry.path()) {
            if fs::symlink_metadata(&path).is_ok_and(|m| m.is_dir()) {
                let _ = fs::set_permissions(&path, Permissions::from_mode(0o700));
            }
        }
    }
    fs::remove_dir_all(root).map_err(ImageError::io("remove", root))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> (tempfile::TempDir, ImageStore) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        fs::set_permissions(dir.path(), Permissions::from_mode(0o700)).expect("chmod");
        let store = ImageStore::open(dir.path()).expect("a new store");
        (dir, store)
    }

    #[test]
    fn the_builtin_image_appears_on_first_use() {
        let (_dir, store) = store();
        let image = store.resolve(builtin::BUILTIN).expect("the built-in image");
        assert!(builtin::intact(&image.rootfs));
        assert_eq!(image.digest, builtin::builtin_digest());
        assert_eq!(store.resolve("turnjail-worker:latest").expect("again").rootfs, image.rootfs);
    }

    #[test]
    fn an_absent_image_is_refused_with_a_remedy() {
        let (_dir, store) = store();
        let error = store.resolve("busybox").expect_err("not there");
        assert_eq!(error.code(), "image-absent");
        assert!(
            error.to_string().contains("busybox") && error.remedy().contains("turnjail-worker")
        );
    }

    #[test]
    fn a_changed_worker_is_replaced_by_the_next_process() {
        let (dir, store) = store();
        let worker = store.resolve(builtin::BUILTIN).expect("image").rootfs.join("worker");
        fs::set_permissions(&worker, Permissions::from_mode(0o755)).expect("chmod");
        fs::write(&worker, b"something else").expect("overwrite");
        let again = ImageStore::open(dir.path()).expect("reopen");
        let image = again.resolve(builtin::BUILTIN).expect("repaired");
        assert!(builtin::intact(&image.rootfs));
        let left = fs::read_dir(dir.path().join("staging")).expect("staging").count();
        assert_eq!(left, 0, "nothing is left in staging");
    }

    #[test]
    fn what_a_dead_process_left_is_swept_and_what_is_young_is_not() {
        let (dir, _store) = store();
        let staging = dir.path().join("staging");
        for name in ["old", "young"] {
            fs::create_dir_all(staging.join(name).join("workspace")).expect("directories");
        }
        let then = std::time::SystemTime::now() - 2 * LEFT_OVER;
        fs::File::open(staging.join("old")).and_then(|f| f.set_modified(then)).expect("aged");
        ImageStore::open(dir.path()).expect("reopen");
        assert!(!staging.join("old").exists() && staging.join("young").exists());
    }

    #[test]
    fn a_link_in_staging_is_removed_and_not_what_it_leads_to() {
        let (dir, _store) = store();
        let outside = tempfile::tempdir().expect("a temporary directory");
        let sub = outside.path().join("sub");
        fs::create_dir(&sub).expect("a directory");
        fs::set_permissions(&sub, Permissions::from_mode(0o755)).expect("chmod");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(outside.path(), &link).expect("a link");
        remove(&link).expect("removed");
        assert!(fs::symlink_metadata(&link).is_err());
        assert_eq!(fs::metadata(&sub).expect("kept").mode() & 0o777, 0o755);
    }

    #[test]
    fn a_link_at_a_mount_point_is_replaced_by_the_next_process() {
        let (dir, store) = store();
        let rootfs = store.resolve(builtin::BUILTIN).expect("image").rootfs;
        fs::remove_dir(rootfs.join("workspace")).expect("an empty directory");
        std::os::unix::fs::symlink("/", rootfs.join("workspace")).expect("a link");
        assert!(!builtin::intact(&rootfs));
        let image = ImageStore::open(dir.path()).expect("reopen").resolve(builtin::BUILTIN);
        assert!(builtin::intact(&image.expect("repaired").rootfs));
        fs::create_dir(rootfs.join("more")).expect("a directory");
        assert!(!builtin::intact(&rootfs));
    }

    #[test]
    fn two_processes_publishing_at_once_agree() {
        let (dir, _store) = store();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let store = ImageStore::open(dir.path()).expect("open");
                    store.resolve(builtin::BUILTIN).expect("resolve");
                });
            }
        });
    }

    #[test]
    fn a_store_that_others_can_enter_is_refused() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).expect("chmod");
        let error = ImageStore::open(dir.path()).expect_err("too open");
        assert!(error.to_string().contains("0755"), "{error}");
    }
}
