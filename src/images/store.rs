//! One directory of images, content-addressed, published by rename.

use std::collections::HashMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use oci_spec::image::{ImageConfiguration, ImageManifest};

use crate::directories::Directories;
use crate::index::{Index, Named, Stamp};
use crate::lock::{self, Hold, Lock};
use crate::{Digest, Image, ImageConfig, ImageError, Reference, builtin, remove};

/// The images on this machine.
///
/// The directory is an OCI image layout (`oci-layout`, `index.json`, `blobs/sha256/`) with one unpacked
/// root filesystem for each image (`roots/<digest>`), a place for what is being made (`staging`) and a
/// lock. Several processes may use it at once.
#[derive(Debug)]
pub struct ImageStore {
    pub(crate) dirs: Directories,
    known: Mutex<Known>,
}

/// What has been read already.
#[derive(Debug, Default)]
struct Known {
    /// Whether the built-in image has been checked by this process.
    builtin: bool,
    /// The index and the state of its file.
    index: Option<(Stamp, Arc<Index>)>,
    /// Configurations by the digest of the manifest: they never change.
    configs: HashMap<Digest, ImageConfig>,
}

impl ImageStore {
    /// Opens the store in `dir`, making the directory (0700) when it is not there.
    ///
    /// Refuses a directory of another user, one that others can enter, and one on a file system mounted
    /// noexec, where no worker could start.
    pub fn open(dir: &Path) -> Result<Self, ImageError> {
        let store = Self { dirs: Directories::open(dir)?, known: Mutex::default() };
        store.dirs.sweep();
        Ok(store)
    }

    /// Finds the image that `reference` names. Never pulls; the built-in image is written on first use.
    pub fn resolve(&self, reference: &str) -> Result<Image, ImageError> {
        let parsed: Reference = reference.parse()?;
        if builtin::is_builtin(&parsed) {
            return self.resolve_builtin(reference);
        }
        let absent = || ImageError::Absent(reference.to_owned());
        let index = self.index()?;
        let named = index.find(&parsed).ok_or_else(absent)?;
        let config = self.config(named, reference)?;
        let rootfs = self.dirs.root(&named.digest);
        let lease = Lock::of_directory(&rootfs, Hold::Shared)?.ok_or_else(absent)?;
        Ok(Image {
            reference: reference.to_owned(),
            digest: named.digest.to_string(),
            rootfs,
            config,
            size: named.size,
            _lease: Some(Arc::new(lease)),
        })
    }

    fn resolve_builtin(&self, reference: &str) -> Result<Image, ImageError> {
        let digest = builtin::digest();
        let rootfs = self.dirs.root(&digest);
        let mut lease = Lock::of_directory(&rootfs, Hold::Shared)?;
        if !self.known().builtin || lease.is_none() {
            // Only one thread of this process checks and repairs.
            let mut known = self.known();
            self.publish_builtin(&rootfs)?;
            known.builtin = true;
            lease = Lock::of_directory(&rootfs, Hold::Shared)?;
        }
        let lease = lease.ok_or_else(|| ImageError::Absent(reference.to_owned()))?;
        Ok(Image {
            reference: reference.to_owned(),
            digest: digest.to_string(),
            rootfs,
            config: builtin::config(),
            size: builtin::size(),
            _lease: Some(Arc::new(lease)),
        })
    }

    /// Writes the built-in root beside its place and renames it there, so that a crash or a second
    /// process never shows half of it.
    fn publish_builtin(&self, rootfs: &Path) -> Result<(), ImageError> {
        // Asked before the check: what another process publishes meanwhile is not damaged.
        let existed = fs::symlink_metadata(rootfs).is_ok();
        if builtin::intact(rootfs) {
            return Ok(());
        }
        if existed && let Some(aside) = self.dirs.put_aside(rootfs)? {
            remove::tree(&aside)?;
        }
        let staging = self.dirs.stage()?;
        let root = staging.directory("root")?;
        let roots = Directories::made(self.dirs.roots())?;
        let written = builtin::unpack(&root).and_then(|()| {
            seal(&root)?;
            lock::sync(&root)?;
            fs::rename(&root, rootfs).map_err(ImageError::io("publish", rootfs))?;
            lock::sync(&roots)
        });
        // Another process may have published the same image meanwhile.
        if written.is_err() && builtin::intact(rootfs) { Ok(()) } else { written }
    }

    /// The index as it is now.
    pub(crate) fn index(&self) -> Result<Arc<Index>, ImageError> {
        let stamp = Index::stamp(&self.dirs.store);
        let mut known = self.known();
        if let (Some(stamp), Some((read, index))) = (stamp, &known.index)
            && stamp == *read
        {
            return Ok(Arc::clone(index));
        }
        let index = Arc::new(Index::read(&self.dirs.store)?);
        known.index = stamp.map(|stamp| (stamp, Arc::clone(&index)));
        Ok(index)
    }

    /// The configuration of an image, by the digests from its name on.
    fn config(&self, named: &Named, reference: &str) -> Result<ImageConfig, ImageError> {
        if let Some(config) = self.known().configs.get(&named.digest) {
            return Ok(config.clone());
        }
        let (_, configuration) = self.documents(named)?;
        let config = ImageConfig::of(&configuration)
            .map_err(|what| ImageError::Config { image: reference.to_owned(), what })?;
        self.known().configs.insert(named.digest.clone(), config.clone());
        Ok(config)
    }

    /// Manifest and configuration of an image, verified.
    pub(crate) fn documents(
        &self,
        named: &Named,
    ) -> Result<(ImageManifest, ImageConfiguration), ImageError> {
        let image = named.reference.to_string();
        let broken = |what: String| ImageError::Config { image: image.clone(), what };
        let manifest = self.document(&named.digest)?;
        let manifest: ImageManifest = serde_json::from_slice(&manifest)
            .map_err(|error| broken(format!("its manifest is not understood: {error}")))?;
        let digest = manifest.config().digest().to_string().parse().map_err(broken)?;
        let configuration = serde_json::from_slice(&self.document(&digest)?)
            .map_err(|error| broken(format!("its configuration is not understood: {error}")))?;
        Ok((manifest, configuration))
    }

    /// A small blob of the store, verified.
    pub(crate) fn document(&self, digest: &Digest) -> Result<Vec<u8>, ImageError> {
        let path = self.dirs.blob(digest);
        let bytes = fs::read(&path).map_err(ImageError::io("read", &path))?;
        let found = Digest::of(&bytes);
        if found == *digest {
            return Ok(bytes);
        }
        Err(ImageError::mismatch(path.display().to_string(), digest, &found))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
    fn an_absent_image_is_refused_with_the_commands_that_bring_it() {
        let (_dir, store) = store();
        let error = store.resolve("busybox:1").expect_err("not there");
        assert_eq!(error.code(), "image-absent");
        assert!(error.to_string().contains("busybox:1"));
        assert!(error.remedy().contains("`turnjail image pull busybox:1`"), "{}", error.remedy());
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
    fn what_a_dead_process_left_is_swept_and_what_is_being_made_is_not() {
        let (dir, store) = store();
        let staging = dir.path().join("staging");
        let alive = store.dirs.stage().expect("a place");
        fs::create_dir_all(staging.join("dead/workspace")).expect("directories");
        fs::write(staging.join("file"), b"").expect("a file");
        ImageStore::open(dir.path()).expect("reopen");
        assert!(!staging.join("dead").exists() && !staging.join("file").exists());
        assert!(alive.path().is_dir());
        drop(alive);
        assert_eq!(fs::read_dir(&staging).expect("staging").count(), 0);
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
