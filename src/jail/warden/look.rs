//! How much stands in a directory that a jail can write, seen by a walk that only stats.
//!
//! What stands there is a guest's: nothing is opened but directories, no link is followed, and however
//! deep or wide the tree is, the walk needs a fixed number of descriptors and allocates nothing. It ends
//! at the first bound that is passed. It runs in the jail itself, in the place where the program is
//! executed afterwards, or not at all.

use std::ffi::CStr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::fstatat;
use nix::sys::statvfs::fstatvfs;
use nix::unistd::{Whence, lseek};

use crate::open::{beneath_without_links, without_links};
use crate::sys;
use crate::wire::{Bounds, Over};

/// How deep the walk goes; each level holds a descriptor. Deeper is over the bounds: nobody's files are.
pub const LEVELS: usize = 128;

/// A directory on the way down.
struct Level {
    dir: OwnedFd,
    /// Where the listing goes on, as the file system counts.
    next: i64,
}

/// The first bound that what stands below `path` passes; none when it is within all of them.
// Not inlined: its listing takes pages of stack, which whoever has no bounds would have to fetch as well.
#[inline(never)]
pub fn look(path: &CStr, bounds: &Bounds) -> Result<Option<Over>, Errno> {
    let top = open(None, path)?;
    if bounds.reserve > 0 {
        let space = fstatvfs(&top)?;
        if space.blocks_available() as u64 * space.fragment_size() as u64 <= bounds.reserve {
            return Ok(Some(Over::Reserve));
        }
    }
    if bounds.bytes == 0 && bounds.entries == 0 {
        return Ok(None);
    }
    walk(top, bounds)
}

fn walk(top: OwnedFd, bounds: &Bounds) -> Result<Option<Over>, Errno> {
    let mut levels = [const { None }; LEVELS];
    levels[0] = Some(Level { dir: top, next: 0 });
    let mut depth = 0;
    let mut counted = Counted::default();
    let mut listing = Listing { bytes: [0; LISTING] };
    while let Some(level) = levels[depth].as_mut() {
        match read_level(level, &mut listing, &mut counted, bounds)? {
            Step::Over(over) => return Ok(Some(over)),
            Step::Down(_) if depth + 1 == LEVELS => return Ok(Some(Over::Depth)),
            Step::Down(below) => {
                depth += 1;
                levels[depth] = Some(Level { dir: below, next: 0 });
            }
            Step::Up if depth == 0 => return Ok(None),
            Step::Up => {
                levels[depth] = None;
                depth -= 1;
            }
        }
    }
    Ok(None)
}

/// What follows the part of a directory that was read.
enum Step {
    Down(OwnedFd),
    Up,
    Over(Over),
}

#[derive(Default)]
struct Counted {
    bytes: u64,
    entries: u64,
}

impl Counted {
    fn over(&self, bounds: &Bounds) -> Option<Over> {
        if bounds.entries > 0 && self.entries > bounds.entries {
            return Some(Over::Entries);
        }
        // A file that has been stopped at the size limit fills the bound exactly.
        (bounds.bytes > 0 && self.bytes >= bounds.bytes).then_some(Over::Bytes)
    }
}

/// Counts the entries of a directory up to its end or the next directory in it.
fn read_level(
    level: &mut Level,
    listing: &mut Listing,
    counted: &mut Counted,
    bounds: &Bounds,
) -> Result<Step, Errno> {
    // The listing is shared by all levels: after a way down it is read again from where it stopped.
    lseek(&level.dir, level.next, Whence::SeekSet)?;
    loop {
        let length = sys::list(level.dir.as_fd(), &mut listing.bytes)?;
        if length == 0 {
            return Ok(Step::Up);
        }
        let mut rest = &listing.bytes[..length];
        while let Some((entry, after)) = Entry::split(rest) {
            rest = after;
            level.next = entry.next;
            if entry.name == c"." || entry.name == c".." {
                continue;
            }
            counted.entries += 1;
            let directory = count(level.dir.as_fd(), entry.name, counted)?;
            if let Some(over) = counted.over(bounds) {
                return Ok(Step::Over(over));
            }
            if directory {
                match open(Some(level.dir.as_fd()), entry.name) {
                    Ok(below) => return Ok(Step::Down(below)),
                    Err(errno) if passing(errno) => {}
                    Err(errno) => return Err(errno),
                }
            }
        }
    }
}

/// Adds what an entry takes; whether it is a directory. A file with several names is counted by parts.
fn count(dir: BorrowedFd<'_>, name: &CStr, counted: &mut Counted) -> Result<bool, Errno> {
    let status = match fstatat(dir, name, AtFlags::AT_SYMLINK_NOFOLLOW | AtFlags::AT_NO_AUTOMOUNT) {
        Err(errno) if passing(errno) => return Ok(false),
        other => other?,
    };
    let directory = status.st_mode & libc::S_IFMT == libc::S_IFDIR;
    let names = if directory { 1 } else { (status.st_nlink as u64).max(1) };
    counted.bytes += status.st_blocks as u64 * 512 / names;
    Ok(directory)
}

/// The tree changes while it is walked, and what is not this user's cannot be the guest's.
fn passing(errno: Errno) -> bool {
    matches!(errno, Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::EACCES | Errno::EXDEV)
}

fn open(dir: Option<BorrowedFd<'_>>, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
    match dir {
        Some(dir) => beneath_without_links(dir, name, flags),
        None => without_links(name, flags),
    }
}

const LISTING: usize = 16 * 1024;

/// Records of getdents64(2).
#[repr(align(8))]
struct Listing {
    bytes: [u8; LISTING],
}

struct Entry<'a> {
    name: &'a CStr,
    next: i64,
}

impl<'a> Entry<'a> {
    /// The first record: inode (8 bytes), position of the next (8), length (2), type (1), name.
    fn split(records: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let next = i64::from_ne_bytes(records.get(8..16)?.try_into().ok()?);
        let length = usize::from(u16::from_ne_bytes(records.get(16..18)?.try_into().ok()?));
        let name = CStr::from_bytes_until_nul(records.get(19..length)?).ok()?;
        Some((Self { name, next }, records.get(length..)?))
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::fs;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    fn on(path: &Path, bytes: u64, entries: u64) -> Option<Over> {
        let path = CString::new(path.as_os_str().as_bytes()).expect("a path");
        look(&path, &Bounds { bytes, entries, reserve: 0 }).expect("a walk")
    }

    #[test]
    fn bytes_are_those_on_disk_and_links_are_not_followed() {
        let (inside, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(outside.path().join("large"), vec![1; 4 << 20]).unwrap();
        symlink(outside.path(), inside.path().join("link")).unwrap();
        let sparse = fs::File::create(inside.path().join("sparse")).unwrap();
        sparse.set_len(1 << 30).unwrap();
        assert_eq!(on(inside.path(), 1 << 20, 0), None);
        let deep = inside.path().join("a/b/c");
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("file"), vec![1; 2 << 20]).unwrap();
        assert_eq!(on(inside.path(), 1 << 20, 0), Some(Over::Bytes));
        assert_eq!(on(inside.path(), 4 << 20, 0), None);
    }

    #[test]
    fn names_of_one_file_count_it_once() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), vec![1; 1 << 20]).unwrap();
        for number in 0..20 {
            fs::hard_link(dir.path().join("file"), dir.path().join(number.to_string())).unwrap();
        }
        assert_eq!(on(dir.path(), 2 << 20, 0), None);
        assert_eq!(on(dir.path(), 1 << 19, 0), Some(Over::Bytes));
    }

    #[test]
    fn entries_are_counted_across_directories_and_listings() {
        let dir = tempfile::tempdir().unwrap();
        for part in 0..3 {
            let part = dir.path().join(format!("part-{part}"));
            fs::create_dir(&part).unwrap();
            for file in 0..700 {
                fs::write(part.join(format!("a-name-that-fills-the-listing-{file}")), "").unwrap();
                if file % 100 == 0 {
                    fs::create_dir(part.join(format!("dir-{file}"))).unwrap();
                }
            }
        }
        let all = 3 + 3 * 700 + 3 * 7;
        assert_eq!(on(dir.path(), 0, all), None);
        assert_eq!(on(dir.path(), 0, all - 1), Some(Over::Entries));
    }

    #[test]
    fn a_chain_deeper_than_the_walk_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let chain = |levels| (1..levels).fold(dir.path().to_owned(), |path, _| path.join("d"));
        fs::create_dir_all(chain(LEVELS)).unwrap();
        assert_eq!(on(dir.path(), 1 << 40, 1 << 40), None);
        fs::create_dir_all(chain(LEVELS + 1)).unwrap();
        assert_eq!(on(dir.path(), 1 << 40, 1 << 40), Some(Over::Depth));
    }

    #[test]
    fn room_that_must_stay_free_is_looked_at() {
        let path = CString::new(std::env::temp_dir().as_os_str().as_bytes()).unwrap();
        let reserve = |reserve| look(&path, &Bounds { bytes: 0, entries: 0, reserve }).unwrap();
        assert_eq!(reserve(1), None);
        assert_eq!(reserve(u64::MAX), Some(Over::Reserve));
    }
}
