//! The last step of an import: what was made beside becomes the store's, whole or not at all.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::{ImportOptions, Imported, Prepared};
use crate::directories::{Directories, Staging};
use crate::index::{Index, Named};
use crate::lock::{self, Hold, Lock};
use crate::{Digest, Image, ImageError, ImageStore, Reference, remove};

impl ImageStore {
    /// Publishes blobs first, then the root, then the name: a name never leads to what is not there, and a
    /// crash leaves only what nothing names.
    pub(super) fn publish(
        &self,
        staging: &Staging,
        prepared: Prepared,
        name: &Reference,
        options: &ImportOptions<'_>,
    ) -> Result<Imported, ImageError> {
        let digest = prepared.digest();
        let chosen_from = prepared.index.as_deref().map(Digest::of);
        check_digest(name, &digest, chosen_from.as_ref())?;
        let (manifest, config) = (&prepared.manifest, &prepared.config);
        for document in
            [Some(manifest), Some(config), prepared.index.as_ref()].into_iter().flatten()
        {
            let path = prepared.unpacked.blobs.join(Digest::of(document).hex());
            write(&path, document)?;
        }
        // One wait for all files, before anybody can see any of them.
        lock::sync_filesystem(staging.path())?;
        let named = Named {
            // A tag that was checked against a digest is a name without it.
            reference: name.named(),
            digest: digest.clone(),
            manifest_bytes: manifest.len() as u64,
            media_type: prepared.media_type.clone(),
            chosen_from,
            size: prepared.unpacked.size,
        };
        let (lease, replaced) = self.publish_locked(&prepared, named, options)?;
        // Removed when nobody is kept waiting.
        replaced.map_or(Ok(()), |path| remove::tree(&path))?;
        Ok(Imported {
            name: name.clone(),
            image: Image {
                reference: name.to_string(),
                digest: digest.to_string(),
                rootfs: self.dirs.root(&digest),
                config: prepared.parsed,
                size: prepared.unpacked.size,
                _lease: Some(Arc::new(lease)),
            },
            layers: prepared.unpacked.layers.len(),
            skipped: prepared.unpacked.skipped,
        })
    }

    fn publish_locked(
        &self,
        prepared: &Prepared,
        named: Named,
        options: &ImportOptions<'_>,
    ) -> Result<(Lock, Option<std::path::PathBuf>), ImageError> {
        let _store = self.dirs.lock(Hold::Exclusive)?;
        let mut index = Index::read(&self.dirs.store)?;
        let before = index.0.iter().find(|other| other.reference == named.reference);
        if options.keep_names && before.is_some_and(|before| before.digest != named.digest) {
            let what = "is the name of another image".to_owned();
            return Err(ImageError::Reference { text: named.reference.to_string(), what });
        }
        let blobs = Directories::made(self.dirs.blobs())?;
        rename_all(&prepared.unpacked.blobs, &blobs)?;
        lock::sync(&blobs)?;
        let roots = Directories::made(self.dirs.roots())?;
        let root = self.dirs.root(&named.digest);
        let replaced = self.publish_root(&prepared.unpacked.root, &root)?;
        lock::sync(&roots)?;
        let lease = Lock::of_directory(&root, Hold::Shared)?
            .ok_or_else(|| ImageError::Absent(named.reference.to_string()))?;
        index.set(named);
        index.write(&self.dirs.store)?;
        Ok((lease, replaced))
    }

    /// Puts the root at its place. One that is there already is exchanged, which mends a damaged one; a
    /// running jail goes on with the one that it has.
    fn publish_root(
        &self,
        from: &Path,
        to: &Path,
    ) -> Result<Option<std::path::PathBuf>, ImageError> {
        match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(None),
            Err(rustix::io::Errno::EXIST) => {}
            Err(errno) => return Err(ImageError::errno("publish", to)(errno)),
        }
        // In use, it stays: it is what this one is, by its digest. Else it is held until it is exchanged.
        let Some(_held) = Lock::of_directory(to, Hold::Exclusive)? else { return Ok(None) };
        renameat_with(CWD, from, CWD, to, RenameFlags::EXCHANGE)
            .map_err(ImageError::errno("publish", to))?;
        self.dirs.put_aside(from)
    }
}

/// A name with a digest means what it says.
fn check_digest(
    name: &Reference,
    digest: &Digest,
    chosen_from: Option<&Digest>,
) -> Result<(), ImageError> {
    match name.digest() {
        Some(said) if said != digest && Some(said) != chosen_from => {
            Err(ImageError::mismatch(format!("image {name}"), said, digest))
        }
        _ => Ok(()),
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), ImageError> {
    let mut file = fs::File::create(path).map_err(ImageError::io("create", path))?;
    file.write_all(bytes).map_err(ImageError::io("write", path))
}

/// Over what is there: by its digest it is the same, and if not, it is mended.
fn rename_all(from: &Path, to: &Path) -> Result<(), ImageError> {
    for entry in fs::read_dir(from).map_err(ImageError::io("list", from))? {
        let entry = entry.map_err(ImageError::io("list", from))?;
        let to = to.join(entry.file_name());
        fs::rename(entry.path(), &to).map_err(ImageError::io("publish", &to))?;
    }
    Ok(())
}
