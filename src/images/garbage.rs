//! Removing names, and what no name leads to any more.

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;

use crate::index::Index;
use crate::lock::{Hold, Lock};
use crate::{Digest, ImageError, ImageStore, Reference, builtin, remove};

/// What [`ImageStore::remove`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Removed {
    /// The name that is gone.
    pub untagged: Reference,
    /// The image that went with it, where no other name means it.
    pub deleted: Option<Digest>,
}

/// What [`ImageStore::gc`] removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Freed {
    /// Layers, configurations and manifests.
    pub blobs: u64,
    /// Bytes of these.
    pub blob_bytes: u64,
    /// Root filesystems.
    pub roots: u64,
    /// Root filesystems that no name leads to, and that a running jail still uses.
    pub kept_in_use: u64,
    /// Things that a process left half made when it died.
    pub left_over: usize,
}

impl ImageStore {
    /// Removes a name, and the image with its last name. Refused while a jail uses the image, unless it
    /// is forced: the jail then loses the files that it has not opened.
    pub fn remove(&self, reference: &str, force: bool) -> Result<Removed, ImageError> {
        let parsed: Reference = reference.parse()?;
        if builtin::is_builtin(&parsed) {
            let what = "names the worker built into turnjail, which is always there".to_owned();
            return Err(ImageError::Reference { text: reference.to_owned(), what });
        }
        let (removed, garbage) = self.remove_locked(&parsed, reference, force)?;
        discard(&garbage)?;
        Ok(removed)
    }

    fn remove_locked(
        &self,
        parsed: &Reference,
        reference: &str,
        force: bool,
    ) -> Result<(Removed, Garbage), ImageError> {
        let _store = self.dirs.lock(Hold::Exclusive)?;
        let mut index = Index::read(&self.dirs.store)?;
        let absent = || ImageError::Absent(reference.to_owned());
        let named = index.find(parsed).ok_or_else(absent)?.clone();
        index.0.retain(|other| other.reference != named.reference);
        let last = !index.0.iter().any(|other| other.digest == named.digest);
        let root = self.dirs.root(&named.digest);
        // Held until it is out of the way: nobody begins to use it meanwhile.
        let held = if last { Lock::of_directory(&root, Hold::Exclusive)? } else { None };
        if last && !force && held.is_none() && root.exists() {
            return Err(ImageError::InUse(reference.to_owned()));
        }
        let mut garbage = Garbage::default();
        index.write(&self.dirs.store)?;
        if last {
            garbage.roots.extend(self.dirs.put_aside(&root)?);
            garbage.blobs = self.unreferenced_blobs(&index)?;
            garbage.delete_blobs()?;
        }
        let deleted = last.then_some(named.digest);
        Ok((Removed { untagged: named.reference, deleted }, garbage))
    }

    /// Removes what no name leads to: what crashes, moved names and older versions of the built-in worker
    /// have left. What a running jail uses stays.
    pub fn gc(&self) -> Result<Freed, ImageError> {
        let mut freed = Freed { left_over: self.dirs.sweep(), ..Freed::default() };
        let garbage = {
            let _store = self.dirs.lock(Hold::Exclusive)?;
            let index = Index::read(&self.dirs.store)?;
            let mut garbage =
                Garbage { blobs: self.unreferenced_blobs(&index)?, roots: Vec::new() };
            for root in self.unreferenced_roots(&index)? {
                let held = Lock::of_directory(&root, Hold::Exclusive)?;
                let directory = fs::symlink_metadata(&root).is_ok_and(|found| found.is_dir());
                if directory && held.is_none() {
                    freed.kept_in_use += 1;
                    continue;
                }
                garbage.roots.extend(self.dirs.put_aside(&root)?);
            }
            freed.blobs = garbage.blobs.len() as u64;
            freed.blob_bytes =
                garbage.blobs.iter().filter_map(|blob| Some(fs::metadata(blob).ok()?.len())).sum();
            freed.roots = garbage.roots.len() as u64;
            garbage.delete_blobs()?;
            garbage
        };
        discard(&garbage)?;
        Ok(freed)
    }

    /// Blobs that no name leads to.
    fn unreferenced_blobs(&self, index: &Index) -> Result<Vec<PathBuf>, ImageError> {
        let mut needed = HashSet::new();
        for named in &index.0 {
            // Which blobs a damaged image needs is not known: until it is mended, none goes.
            let Ok(blobs) = self.blobs_of(named) else { return Ok(Vec::new()) };
            needed.extend(blobs.into_iter().map(|digest| digest.hex().to_owned()));
        }
        let unneeded = |path: &PathBuf| {
            path.file_name()
                .and_then(|name| name.to_str())
                .is_none_or(|name| !needed.contains(name))
        };
        Ok(list(&self.dirs.blobs())?.into_iter().filter(unneeded).collect())
    }

    fn unreferenced_roots(&self, index: &Index) -> Result<Vec<PathBuf>, ImageError> {
        let needed = index.0.iter().map(|named| named.digest.clone()).chain([builtin::digest()]);
        let needed: HashSet<_> = needed.map(|digest| self.dirs.root(&digest)).collect();
        let roots = list(&self.dirs.roots())?;
        Ok(roots.into_iter().filter(|root| !needed.contains(root)).collect())
    }

    /// The digests of all that an image is made of.
    pub(crate) fn blobs_of(&self, named: &crate::index::Named) -> Result<Vec<Digest>, ImageError> {
        let (manifest, _) = self.documents(named)?;
        let descriptors = manifest.layers().iter().chain([manifest.config()]);
        let digests = descriptors.map(|descriptor| {
            let what = |what| ImageError::Config { image: named.reference.to_string(), what };
            descriptor.digest().to_string().parse().map_err(what)
        });
        let mut digests = digests.collect::<Result<Vec<Digest>, _>>()?;
        digests.push(named.digest.clone());
        digests.extend(named.chosen_from.clone());
        Ok(digests)
    }
}

/// What is to be deleted.
#[derive(Default)]
struct Garbage {
    blobs: Vec<PathBuf>,
    /// Already out of the way.
    roots: Vec<PathBuf>,
}

impl Garbage {
    /// While the store is held alone: an import may just be about to publish the same blob.
    fn delete_blobs(&self) -> Result<(), ImageError> {
        self.blobs
            .iter()
            .try_for_each(|blob| fs::remove_file(blob).map_err(ImageError::io("remove", blob)))
    }
}

fn discard(garbage: &Garbage) -> Result<(), ImageError> {
    garbage.roots.iter().try_for_each(|root| remove::tree(root))
}

/// The entries of a directory of the store; none where it is not there yet.
pub(crate) fn list(dir: &std::path::Path) -> Result<Vec<PathBuf>, ImageError> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(ImageError::io("list", dir))?,
    };
    let paths = entries.map(|entry| Ok(entry.map_err(ImageError::io("list", dir))?.path()));
    let mut paths = paths.collect::<Result<Vec<_>, ImageError>>()?;
    paths.sort();
    Ok(paths)
}
