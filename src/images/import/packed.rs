//! Compression: found out by the first bytes, undone within bounded memory.

use std::fs::File;
use std::io::{self, BufRead, Read};
use std::os::unix::fs::FileExt as _;

use flate2::bufread::MultiGzDecoder;

use crate::ImageError;
use crate::unpack::Counter;

/// The largest window of a zstd frame that memory is given for: 128 MiB, as zstd has it itself.
const WINDOW_LOG: u32 = 27;
/// As many bytes tell one compression from another.
const MAGIC: usize = 6;

/// How something is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compression {
    None,
    Gzip,
    Zstd,
}

impl Compression {
    /// By the first bytes, or the name of one that is not understood.
    fn of(start: &[u8]) -> Result<Self, &'static str> {
        match start {
            [0x1f, 0x8b, ..] => Ok(Self::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Ok(Self::Zstd),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Err("xz"),
            [b'B', b'Z', b'h', ..] => Err("bzip2"),
            [0x1f, 0x9d, ..] => Err("compress"),
            [0x04, 0x22, 0x4d, 0x18, ..] => Err("lz4"),
            _ => Ok(Self::None),
        }
    }
}

/// How a file is compressed from `position` on.
pub(crate) fn compression_of(file: &File, position: u64) -> Result<Compression, &'static str> {
    let mut start = [0; MAGIC];
    let read = file.read_at(&mut start, position).unwrap_or(0);
    Compression::of(&start[..read])
}

/// Undoes whatever compression there is. `packed` counts the bytes that went in.
pub(crate) fn unpack<'r, R: BufRead + 'r>(
    mut reader: R,
    packed: &Counter,
    object: &str,
) -> Result<Box<dyn Read + 'r>, ImageError> {
    let start = reader.fill_buf().map_err(|error| damaged(object, error))?;
    let compression = Compression::of(start).map_err(|name| {
        let what = format!("it is compressed with {name}; gzip and zstd are understood");
        ImageError::refused(object, what)
    })?;
    let reader = Counting { reader, counter: packed.clone() };
    Ok(match compression {
        Compression::None => Box::new(reader),
        Compression::Gzip => Box::new(MultiGzDecoder::new(reader)),
        Compression::Zstd => {
            let mut decoder =
                zstd::Decoder::with_buffer(reader).map_err(|error| damaged(object, error))?;
            decoder.window_log_max(WINDOW_LOG).map_err(|error| damaged(object, error))?;
            Box::new(decoder)
        }
    })
}

/// What goes wrong while reading is the archive's fault, unless the system or a reader below says more.
pub(crate) fn damaged(object: &str, error: io::Error) -> ImageError {
    match error.downcast::<ImageError>() {
        Ok(own) => own,
        Err(error) if error.raw_os_error().is_some() => {
            ImageError::io("read", std::path::Path::new(object))(error)
        }
        Err(error) => ImageError::refused(object, format!("it is damaged ({error})")),
    }
}

/// Counts what is consumed.
struct Counting<R> {
    reader: R,
    counter: Counter,
}

impl<R: BufRead> Read for Counting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        self.counter.add(read as u64);
        Ok(read)
    }
}

impl<R: BufRead> BufRead for Counting<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.reader.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.counter.add(amount as u64);
        self.reader.consume(amount);
    }
}
