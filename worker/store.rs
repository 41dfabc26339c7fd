//! Files of the worker's own: read only if regular, replaced whole and durably.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::sys::{self, Errno, Kind, ReadError};

/// An open directory.
#[derive(Debug)]
pub struct Dir(OwnedFd);

/// Why a file of the worker's own cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unusable {
    /// It is a link, a directory or a special file, or too large.
    Invalid,
    /// The system's answer.
    Errno(Errno),
}

impl Dir {
    /// Opens a directory by the path that the command line gave.
    pub fn open(path: &[u8]) -> Result<Self, Errno> {
        sys::open_place(path).map(Self)
    }

    /// The descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Reads a regular file of at most `limit` bytes; none if there is nothing under the name.
    pub fn read(&self, name: &str, limit: usize) -> Result<Option<Vec<u8>>, Unusable> {
        let Some(file) = self.open_regular(name)? else { return Ok(None) };
        match sys::read_to_end(file.as_fd(), limit) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(ReadError::TooLarge) => Err(Unusable::Invalid),
            Err(ReadError::Errno(errno)) => Err(Unusable::Errno(errno)),
        }
    }

    fn open_regular(&self, name: &str) -> Result<Option<OwnedFd>, Unusable> {
        match sys::stat(self.fd(), name.as_bytes()) {
            Ok(Kind::File(_)) => {}
            Ok(_) => return Err(Unusable::Invalid),
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(Unusable::Errno(errno)),
        }
        let file = sys::open_file(self.fd(), name.as_bytes()).map_err(Unusable::Errno)?;
        // Whoever may write here may have replaced it since.
        match sys::stat_open(file.as_fd()).map_err(Unusable::Errno)? {
            Kind::File(_) => Ok(Some(file)),
            _ => Err(Unusable::Invalid),
        }
    }

    /// Gives the file new content: after a crash at any moment it has the old or the new, never a
    /// mixture. `<name>.tmp` is written, synced and renamed into place, then the directory synced.
    pub fn replace(&self, name: &str, content: &[u8]) -> Result<(), Errno> {
        let staged = format!("{name}.tmp");
        let moved = self
            .stage(&staged, content)
            .and_then(|()| sys::rename(self.fd(), staged.as_bytes(), self.fd(), name.as_bytes()));
        if let Err(errno) = moved {
            // What failed is what counts; half a file would only take room.
            let _ = sys::unlink(self.fd(), staged.as_bytes());
            return Err(errno);
        }
        sys::sync_dir(self.fd())
    }

    fn stage(&self, name: &str, content: &[u8]) -> Result<(), Errno> {
        let file = self.create(name)?;
        sys::write_all(file.as_fd(), content)?;
        sys::sync(file.as_fd())
    }

    /// Makes a new file in the place of whatever stands there.
    fn create(&self, name: &str) -> Result<OwnedFd, Errno> {
        match sys::create_file(self.fd(), name.as_bytes()) {
            Err(Errno::EXIST) => {}
            made => return made,
        }
        match sys::unlink(self.fd(), name.as_bytes()) {
            // Linux says ISDIR, POSIX PERM.
            Err(Errno::ISDIR | Errno::PERM) => self.put_aside(name)?,
            removed => removed?,
        }
        sys::create_file(self.fd(), name.as_bytes())
    }

    fn put_aside(&self, name: &str) -> Result<(), Errno> {
        let aside = format!("{name}.{}", random_name()?);
        sys::rename(self.fd(), name.as_bytes(), self.fd(), aside.as_bytes())
    }
}

/// 16 random hexadecimal digits.
pub fn random_name() -> Result<String, Errno> {
    Ok(format!("{:016x}", u64::from_ne_bytes(sys::random()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn dir() -> (tempfile::TempDir, Dir) {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open(temp.path().as_os_str().as_encoded_bytes()).unwrap();
        (temp, dir)
    }

    fn names(temp: &tempfile::TempDir) -> Vec<String> {
        let entries = fs::read_dir(temp.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_for_its_owner_alone() {
        let (temp, dir) = dir();
        dir.replace("a", b"old").unwrap();
        dir.replace("a", b"new").unwrap();
        assert_eq!(dir.read("a", 3), Ok(Some(b"new".to_vec())));
        let mode = fs::metadata(temp.path().join("a")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(names(&temp), ["a"]);
    }

    #[test]
    fn nothing_under_a_name_is_none() {
        assert_eq!(dir().1.read("a", 10), Ok(None));
    }

    #[test]
    fn a_file_over_the_limit_is_invalid() {
        let (_temp, dir) = dir();
        dir.replace("a", b"1234").unwrap();
        assert_eq!(dir.read("a", 4), Ok(Some(b"1234".to_vec())));
        assert_eq!(dir.read("a", 3), Err(Unusable::Invalid));
    }

    #[test]
    fn only_regular_files_are_read() {
        let (temp, dir) = dir();
        fs::write(temp.path().join("target"), "secret").unwrap();
        symlink(temp.path().join("target"), temp.path().join("link")).unwrap();
        symlink("nowhere", temp.path().join("dangling")).unwrap();
        fs::create_dir(temp.path().join("directory")).unwrap();
        rustix::fs::mknodat(
            dir.fd(),
            "pipe",
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .unwrap();
        for name in ["link", "dangling", "directory", "pipe"] {
            assert_eq!(dir.read(name, 10), Err(Unusable::Invalid), "{name}");
        }
    }

    #[test]
    fn a_leftover_is_replaced_and_never_followed() {
        let (temp, dir) = dir();
        let victim = temp.path().join("victim");
        fs::write(&victim, "untouched").unwrap();
        fs::write(temp.path().join("a.tmp"), "leftover of a killed worker, longer").unwrap();
        dir.replace("a", b"1").unwrap();
        symlink(&victim, temp.path().join("a.tmp")).unwrap();
        dir.replace("a", b"2").unwrap();
        fs::hard_link(&victim, temp.path().join("a.tmp")).unwrap();
        dir.replace("a", b"3").unwrap();
        assert_eq!(dir.read("a", 9), Ok(Some(b"3".to_vec())));
        assert_eq!(fs::read(&victim).unwrap(), b"untouched");
        assert_eq!(names(&temp), ["a", "victim"]);
    }

    #[test]
    fn a_directory_in_the_way_is_put_aside_with_its_content() {
        let (temp, dir) = dir();
        fs::create_dir(temp.path().join("a.tmp")).unwrap();
        fs::write(temp.path().join("a.tmp/kept"), "kept").unwrap();
        dir.replace("a", b"new").unwrap();
        let names = names(&temp);
        assert_eq!(names.len(), 2, "{names:?}");
        assert_eq!(dir.read("a", 9), Ok(Some(b"new".to_vec())));
        assert_eq!(fs::read(temp.path().join(&names[1]).join("kept")).unwrap(), b"kept");
    }

    #[test]
    fn a_link_under_the_name_itself_is_replaced_not_followed() {
        let (temp, dir) = dir();
        let victim = temp.path().join("victim");
        fs::write(&victim, "untouched").unwrap();
        symlink(&victim, temp.path().join("a")).unwrap();
        dir.replace("a", b"new").unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"untouched");
        assert_eq!(dir.read("a", 9), Ok(Some(b"new".to_vec())));
    }
}
