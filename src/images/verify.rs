//! Verification: everything in the store is hashed again, and every root filesystem compared with its
//! layers.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, BufReader};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use turnjail_protocol::MOUNT_POINTS;

use crate::index::Named;
use crate::unpack::{Budget, Counter, Directory, Found, NodeKind, Record, Tree, apply};
use crate::{Digest, ImageError, ImageLimits, ImageStore, Skipped, builtin, garbage, import, lock};

/// What [`ImageStore::verify`] found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// Images whose every file was compared.
    pub images: u64,
    /// Layers, configurations and manifests that were hashed.
    pub blobs: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Things that nothing leads to; `gc` removes them.
    pub unreferenced: u64,
    /// What is not as it should be; none in a clean store.
    pub differences: Vec<Difference>,
}

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Difference {
    /// The image's name, where it is an image's.
    pub image: Option<String>,
    /// What it is about: a path in the store.
    pub object: String,
    /// What is wrong.
    pub what: String,
}

/// How far it is.
struct Progress<'t> {
    told: &'t dyn Fn(u64, u64),
    read: Cell<u64>,
    of: u64,
}

/// Tells what is read.
struct Read<'p, 't> {
    file: File,
    progress: &'p Progress<'t>,
}

impl io::Read for Read<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.progress.read.set(self.progress.read.get() + read as u64);
        (self.progress.told)(self.progress.read.get(), self.progress.of);
        Ok(read)
    }
}

/// More differences of one image than this say nothing new.
const SHOWN: usize = 100;

impl ImageStore {
    /// Hashes every blob and compares every root filesystem, file by file, with what its layers say.
    ///
    /// Costs as much as importing everything again. Changes nothing.
    pub fn verify(&self) -> Result<Verified, ImageError> {
        self.verify_telling(&|_, _| {})
    }

    /// The same, telling again and again how many bytes of how many have been read.
    pub fn verify_telling(&self, told: &dyn Fn(u64, u64)) -> Result<Verified, ImageError> {
        let mut verified = Verified::default();
        let blobs = garbage::list(&self.dirs.blobs())?;
        let bytes =
            blobs.iter().filter_map(|blob| Some(fs::metadata(blob).ok()?.len())).sum::<u64>();
        // Nearly all of it is layers, which are read once for their digest and once to be compared.
        let progress = Progress { told, read: Cell::new(0), of: bytes * 2 };
        Self::verify_blobs(&blobs, &progress, &mut verified)?;
        let index = self.index()?;
        let mut done: Vec<&Digest> = Vec::new();
        for named in &index.0 {
            if done.contains(&&named.digest) {
                continue;
            }
            done.push(&named.digest);
            let mut report = Report { image: named.reference.to_string(), found: Vec::new() };
            if let Err(error) = self.verify_image(named, &progress, &mut report) {
                report.add(&self.dirs.root(&named.digest), error.to_string());
            }
            verified.images += 1;
            verified.differences.extend(report.found);
        }
        self.verify_builtin(&mut verified);
        let roots = garbage::list(&self.dirs.roots())?;
        let known = |root: &Path| {
            let name = root.file_name().unwrap_or_default().as_bytes().to_vec();
            let digests = index.0.iter().map(|named| &named.digest);
            digests.chain([&builtin::digest()]).any(|digest| digest.hex().as_bytes() == name)
        };
        verified.unreferenced += roots.iter().filter(|root| !known(root)).count() as u64;
        Ok(verified)
    }

    fn verify_blobs(
        blobs: &[PathBuf],
        progress: &Progress<'_>,
        verified: &mut Verified,
    ) -> Result<(), ImageError> {
        for path in blobs {
            let mut wrong = |what: String| {
                let object = path.display().to_string();
                verified.differences.push(Difference { image: None, object, what });
            };
            let name = path.file_name().and_then(|name| name.to_str());
            let Some(digest) = name.and_then(Digest::from_hex) else {
                wrong("has no digest's name".to_owned());
                continue;
            };
            // Another process may remove what nothing leads to.
            let Ok(file) = File::open(path) else { continue };
            let reader = Read { file, progress };
            let (found, size) = Digest::of_reader(reader).map_err(ImageError::io("read", path))?;
            if found != digest {
                wrong(format!("has the content {found}"));
            }
            verified.blobs += 1;
            verified.bytes += size;
        }
        Ok(())
    }

    /// Applies the layers again, to nothing but memory, and looks for every difference.
    fn verify_image(
        &self,
        named: &Named,
        progress: &Progress<'_>,
        report: &mut Report,
    ) -> Result<(), ImageError> {
        let root = self.dirs.root(&named.digest);
        let held = lock::Lock::of_directory(&root, lock::Hold::Shared)?;
        if held.is_none() {
            report.add(&root, "is missing".to_owned());
            return Ok(());
        }
        let (tree, record) = self.expected(named, progress)?;
        compare(tree.root(), &record, &root, report);
        Ok(())
    }

    fn expected(
        &self,
        named: &Named,
        progress: &Progress<'_>,
    ) -> Result<(Tree, Record), ImageError> {
        // What was let in under wider limits is no difference.
        let limits = ImageLimits {
            entries: u64::MAX,
            layer_bytes: u64::MAX,
            total_bytes: u64::MAX,
            ratio: u64::MAX,
            layers: usize::MAX,
            metadata_bytes: u64::MAX,
            name_bytes: usize::MAX,
            depth: usize::MAX,
        };
        let (manifest, _) = self.documents(named)?;
        let mut tree = Tree::new(limits);
        let mut record = Record::default();
        let budget = Budget::new(limits);
        for (number, layer) in manifest.layers().iter().enumerate() {
            let object = format!("layer {}", number + 1);
            let what = |what| ImageError::refused(&object, what);
            let digest: Digest = layer.digest().to_string().parse().map_err(what)?;
            let path = self.dirs.blob(&digest);
            let file = File::open(&path).map_err(ImageError::io("open", &path))?;
            let packed = Counter::default();
            let reader = import::unpack(BufReader::new(Read { file, progress }), &packed, &object)?;
            let reader =
                BufReader::with_capacity(256 * 1024, budget.meter(reader, packed, &object));
            apply(&mut tree, &mut record, reader, &object, &mut Skipped::default())?;
        }
        tree.finish(&mut record, &MOUNT_POINTS)?;
        Ok((tree, record))
    }

    fn verify_builtin(&self, verified: &mut Verified) {
        let root = self.dirs.root(&builtin::digest());
        if fs::symlink_metadata(&root).is_err() {
            return;
        }
        verified.images += 1;
        if !builtin::intact(&root) {
            verified.differences.push(Difference {
                image: Some(builtin::BUILTIN.to_owned()),
                object: root.display().to_string(),
                what: "is not the worker inside this program; the next turn replaces it".to_owned(),
            });
        }
    }
}

/// Every difference between a tree and what is on disk.
pub(crate) fn differences(tree: &Tree, record: &Record, root: &Path) -> Vec<Difference> {
    let mut report = Report { image: String::new(), found: Vec::new() };
    compare(tree.root(), record, root, &mut report);
    report.found
}

struct Report {
    image: String,
    found: Vec<Difference>,
}

impl Report {
    fn add(&mut self, path: &Path, what: String) {
        if self.found.len() < SHOWN {
            let object = path.display().to_string();
            self.found.push(Difference { image: Some(self.image.clone()), object, what });
        }
    }
}

/// A directory and all below it. What is there is only looked at, never followed.
fn compare(expected: &Directory, record: &Record, path: &Path, report: &mut Report) {
    let Ok(metadata) = fs::symlink_metadata(path) else {
        return report.add(path, "is missing".to_owned());
    };
    if !metadata.is_dir() {
        return report.add(path, "should be a directory".to_owned());
    }
    check_mode(metadata.permissions().mode(), expected.mode, path, report);
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries.flatten(),
        Err(error) => return report.add(path, format!("cannot be read: {error}")),
    };
    for entry in entries {
        if !expected.children.contains_key(entry.file_name().as_bytes()) {
            report.add(&entry.path(), "should not be there".to_owned());
        }
    }
    for (name, node) in &expected.children {
        let path = path.join(std::ffi::OsStr::from_bytes(name));
        match &node.kind {
            NodeKind::Directory(directory) => compare(directory, record, &path, report),
            NodeKind::File(id) | NodeKind::Symlink(id) => {
                if let Some(found) = record.0.get(*id as usize)
                    && let Err(what) = compare_leaf(found, &path, report)
                {
                    report.add(&path, what);
                }
            }
        }
    }
}

fn compare_leaf(expected: &Found, path: &Path, report: &mut Report) -> Result<(), String> {
    let metadata = fs::symlink_metadata(path).map_err(|_| "is missing".to_owned())?;
    match expected {
        Found::Symlink(target) => {
            let found = fs::read_link(path).map_err(|_| "should be a link".to_owned())?;
            if Digest::of(found.as_os_str().as_bytes()) != *target {
                return Err("leads elsewhere".to_owned());
            }
        }
        Found::File { mode, size, digest } => {
            if !metadata.is_file() {
                return Err("should be a file".to_owned());
            }
            check_mode(metadata.permissions().mode(), *mode, path, report);
            if metadata.size() != *size {
                return Err(format!("has {} bytes and should have {size}", metadata.size()));
            }
            let file = File::open(path).map_err(|error| format!("cannot be read: {error}"))?;
            let (found, _) =
                Digest::of_reader(file).map_err(|error| format!("cannot be read: {error}"))?;
            if found != *digest {
                return Err("has another content".to_owned());
            }
        }
    }
    Ok(())
}

fn check_mode(found: u32, expected: u32, path: &Path, report: &mut Report) {
    let found = found & 0o7777;
    if found != expected {
        report.add(path, format!("has the permissions {found:04o} and should have {expected:04o}"));
    }
}
