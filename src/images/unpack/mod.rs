//! Layers to a root filesystem: read strictly, applied to a model of the tree, carried out beneath one
//! directory.
//!
//! Three parts that know nothing of each other's worries. [`entries`] reads an archive and refuses what
//! could be understood in two ways. [`tree`] knows what every layer has put where and decides what an
//! entry means. A [`Sink`] does as it is told: one writes to disk ([`disk`]), one computes what should be
//! there ([`record`]), so that a published root can be compared with its layers at any time.

mod disk;
mod entries;
mod meter;
mod name;
mod pax;
mod record;
mod tree;

use std::io::Read;

pub(crate) use disk::{Disk, open_beneath};
pub(crate) use entries::{Entry, Kind, each, each_in_file};
pub(crate) use meter::{Budget, Counter};
pub(crate) use name::Name;
pub(crate) use record::{Found, Record};
pub(crate) use tree::{Directory, NodeKind, Tree};

use crate::{ImageError, Skipped};

/// What makes of a tree's entries what they are for.
pub(crate) trait Sink {
    /// A directory, to be written to until [`finish_directory`](Self::finish_directory).
    fn directory(&mut self, name: &Name) -> Result<(), ImageError>;
    /// A file of `size` bytes. Answers what the tree shall remember of it.
    fn file(&mut self, name: &Name, file: &File, content: &mut dyn Read)
    -> Result<u32, ImageError>;
    /// A symbolic link.
    fn symlink(&mut self, name: &Name, target: &[u8]) -> Result<u32, ImageError>;
    /// Another name of a file or link that is there.
    fn link(&mut self, name: &Name, to: &Name) -> Result<(), ImageError>;
    /// Takes a file, a link or an empty directory away.
    fn remove(&mut self, name: &Name, directory: bool) -> Result<(), ImageError>;
    /// Nothing more is put into a directory.
    fn finish_directory(&mut self, name: &Name, mode: u32) -> Result<(), ImageError>;
}

/// What is kept of a file's header.
#[derive(Debug, Clone, Copy)]
pub(crate) struct File {
    pub mode: u32,
    pub modified: i64,
    pub size: u64,
}

/// Permissions alone, and enough of them that the owner can read and delete it again. Everything belongs
/// to one user, so set-id bits would give nobody's rights away and sticky bits protect nothing.
pub(crate) fn file_mode(mode: u32) -> u32 {
    (mode & 0o777) | 0o400
}

/// As [`file_mode`] for directories.
pub(crate) fn directory_mode(mode: u32) -> u32 {
    (mode & 0o777) | 0o700
}

/// Applies one layer.
pub(crate) fn apply<S: Sink>(
    tree: &mut Tree,
    sink: &mut S,
    layer: impl Read,
    object: &str,
    skipped: &mut Skipped,
) -> Result<(), ImageError> {
    let limits = tree.start_layer(object);
    each(layer, object, &limits, &mut |entry, content| {
        skipped.attributes += entry.attributes;
        if entry.mode & 0o6000 != 0 {
            skipped.set_id_bits += 1;
        }
        match entry.kind {
            Kind::Device => skipped.devices += 1,
            Kind::Fifo => skipped.fifos += 1,
            _ => {}
        }
        tree.entry(sink, entry, content)
    })
}
