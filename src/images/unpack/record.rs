//! What a root filesystem should hold by its layers, computed without writing anything.

use std::io::Read;
use std::path::Path;

use super::{File, Name, Sink, file_mode};
use crate::digest::Hasher;
use crate::{Digest, ImageError};

/// Remembers every file's and link's content, in the order of the numbers that it gave to the tree.
#[derive(Default)]
pub(crate) struct Record(pub Vec<Found>);

/// What stands at a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    File {
        mode: u32,
        size: u64,
        digest: Digest,
    },
    /// With the digest of its target.
    Symlink(Digest),
}

impl Record {
    fn add(&mut self, found: Found) -> u32 {
        self.0.push(found);
        self.0.len() as u32 - 1
    }
}

impl Sink for Record {
    fn directory(&mut self, _: &Name) -> Result<(), ImageError> {
        Ok(())
    }

    fn file(
        &mut self,
        name: &Name,
        file: &File,
        content: &mut dyn Read,
    ) -> Result<u32, ImageError> {
        let mut hasher = Hasher::default();
        let mut buffer = vec![0; 128 * 1024];
        let mut size = 0;
        loop {
            let read = content
                .read(&mut buffer)
                .map_err(ImageError::io("read", Path::new("the layer")))?;
            if read == 0 {
                break;
            }
            hasher.update(&buffer[..read]);
            size += read as u64;
        }
        if size != file.size {
            let what = "the archive ends before the entry does";
            return Err(ImageError::refused(format!("entry {name}"), what));
        }
        Ok(self.add(Found::File { mode: file_mode(file.mode), size, digest: hasher.finish() }))
    }

    fn symlink(&mut self, _: &Name, target: &[u8]) -> Result<u32, ImageError> {
        Ok(self.add(Found::Symlink(Digest::of(target))))
    }

    fn link(&mut self, _: &Name, _: &Name) -> Result<(), ImageError> {
        Ok(())
    }

    fn remove(&mut self, _: &Name, _: bool) -> Result<(), ImageError> {
        Ok(())
    }

    fn finish_directory(&mut self, _: &Name, _: u32) -> Result<(), ImageError> {
        Ok(())
    }
}
