//! Files that an operator names, read without trusting what stands at their path.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::libc;
use zeroize::Zeroizing;

/// Reads a regular file of at most `max_bytes`. Nothing at the path makes this wait: a pipe, a socket or a
/// device is refused. The content is wiped when dropped.
///
/// # Errors
/// The file cannot be opened or read, is no regular file, or is larger.
pub fn read_file(path: &Path, max_bytes: usize) -> io::Result<Zeroizing<Vec<u8>>> {
    read_with_metadata(path, max_bytes).map(|(bytes, _)| bytes)
}

/// The same, with what the file was when it was opened.
pub(crate) fn read_with_metadata(
    path: &Path,
    max_bytes: usize,
) -> io::Result<(Zeroizing<Vec<u8>>, Metadata)> {
    let (file, metadata) = open_regular(path)?;
    // Room for all of it at once: a growing buffer would leave copies behind that nobody wipes.
    let expected = usize::try_from(metadata.len()).unwrap_or(usize::MAX).min(max_bytes);
    let mut bytes = Zeroizing::new(Vec::with_capacity(expected + 1 + 32));
    file.take(max_bytes as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > max_bytes {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("over {max_bytes} bytes")));
    }
    Ok((bytes, metadata))
}

fn open_regular(path: &Path) -> io::Result<(File, Metadata)> {
    // Opening a pipe waits for its writer unless told not to; a regular file is read as ever.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    Ok((file, metadata))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_regular_file_within_its_bound_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(**read_file(&path, 5).unwrap(), *b"12345");
        assert_eq!(read_file(&path, 4).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        // Endless, of no size, and a directory.
        for path in ["/dev/zero", "/dev/null", "/"] {
            let error = read_file(Path::new(path), 5).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{path}");
        }
    }

    #[test]
    fn a_pipe_is_refused_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || sender.send(read_file(&path, 5)));
        let read = receiver.recv_timeout(std::time::Duration::from_secs(10)).expect("it waits");
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
