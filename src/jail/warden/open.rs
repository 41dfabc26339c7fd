//! Opening files without following what must not be followed.
//!
//! openat2(2) does it in one call. Where an outer filter keeps that away, the path is walked part by part,
//! with the same result on files that nobody moves about meanwhile: sources are compared with what the
//! host saw in either case, and an image does not change while its jail is made.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat, openat2, readlinkat};
use nix::sys::stat::{FileStat, Mode, fstat};
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};

/// How many symbolic links the kernel follows in one path (path_resolution(7)).
const LINKS: usize = 40;

/// Follows no symbolic link anywhere on the way.
pub fn without_links(path: &CStr, flags: OFlag) -> nix::Result<OwnedFd> {
    let resolve = ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    let how = OpenHow::new().flags(flags | OFlag::O_CLOEXEC).resolve(resolve);
    or_walk(openat2(AT_FDCWD, path, how), || Walk { root: None, links: false }.open(path, flags))
}

/// The same below an open directory.
pub fn beneath_without_links(
    dir: BorrowedFd<'_>,
    path: &CStr,
    flags: OFlag,
) -> nix::Result<OwnedFd> {
    let resolve = ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    let how = OpenHow::new().flags(flags | OFlag::O_CLOEXEC).resolve(resolve);
    let walk = || Walk { root: Some(dir), links: false }.open(path, flags);
    or_walk(openat2(dir, path, how), walk)
}

/// Follows symbolic links, but not those of /proc that lead to what is open.
pub fn without_magic_links(path: &CStr, flags: OFlag) -> nix::Result<OwnedFd> {
    let resolve = ResolveFlag::RESOLVE_NO_MAGICLINKS;
    let how = OpenHow::new().flags(flags | OFlag::O_CLOEXEC).resolve(resolve);
    or_walk(openat2(AT_FDCWD, path, how), || Walk { root: None, links: true }.open(path, flags))
}

/// The same with `root` as the root directory of the path and of every link in it.
pub fn in_root(root: BorrowedFd<'_>, path: &CStr, flags: OFlag) -> nix::Result<OwnedFd> {
    let resolve = ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    let how = OpenHow::new().flags(flags | OFlag::O_CLOEXEC).resolve(resolve);
    or_walk(openat2(root, path, how), || Walk { root: Some(root), links: true }.open(path, flags))
}

/// A kernel or filter without the call says ENOSYS, old filters EPERM, which the walk then says itself
/// where it is about the file.
fn or_walk(
    opened: nix::Result<OwnedFd>,
    walk: impl FnOnce() -> nix::Result<OwnedFd>,
) -> nix::Result<OwnedFd> {
    match opened {
        Err(Errno::ENOSYS | Errno::EPERM) => walk(),
        other => other,
    }
}

/// A walk along a path.
struct Walk<'a> {
    /// Where absolute paths and links start and `..` ends; none is the process's own root.
    root: Option<BorrowedFd<'a>>,
    /// Whether symbolic links are followed.
    links: bool,
}

impl Walk<'_> {
    fn open(&self, path: &CStr, flags: OFlag) -> nix::Result<OwnedFd> {
        let mut ahead = parts(path.to_bytes());
        let mut at = self.start(path.to_bytes())?;
        let mut followed = 0;
        while let Some(part) = ahead.pop() {
            let last = ahead.is_empty();
            if part.to_bytes() == b".." && self.is_root(&at)? {
                continue;
            }
            let next = openat(&at, part.as_c_str(), OFlag::O_PATH | NO_LINK, Mode::empty())?;
            let found = fstat(&next)?;
            if kind(&found) == libc::S_IFLNK {
                followed += 1;
                if !self.links
                    || followed > LINKS
                    || fstatfs(&next)?.filesystem_type() == PROC_SUPER_MAGIC
                {
                    return Err(Errno::ELOOP);
                }
                let target = readlinkat(&next, c"")?.into_vec();
                if target.starts_with(b"/") {
                    at = self.start(&target)?;
                }
                ahead.extend(parts(&target));
                continue;
            }
            if kind(&found) != libc::S_IFDIR && (!last || flags.contains(OFlag::O_DIRECTORY)) {
                return Err(Errno::ENOTDIR);
            }
            if last && !flags.contains(OFlag::O_PATH) {
                return openat(&at, part.as_c_str(), flags | NO_LINK, Mode::empty());
            }
            at = next;
        }
        // What is left is a directory, or a file by O_PATH.
        if flags.contains(OFlag::O_PATH) {
            return Ok(at);
        }
        openat(&at, c".", flags | NO_LINK, Mode::empty())
    }

    fn start(&self, path: &[u8]) -> nix::Result<OwnedFd> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        match self.root {
            Some(root) => openat(root, c".", flags, Mode::empty()),
            // Not open(2), which no filter of a prepared jail has.
            None if path.starts_with(b"/") => openat(AT_FDCWD, c"/", flags, Mode::empty()),
            None => openat(AT_FDCWD, c".", flags, Mode::empty()),
        }
    }

    fn is_root(&self, dir: &OwnedFd) -> nix::Result<bool> {
        let Some(root) = self.root else { return Ok(false) };
        let (root, dir) = (fstat(root)?, fstat(dir.as_fd())?);
        Ok((root.st_dev, root.st_ino) == (dir.st_dev, dir.st_ino))
    }
}

const NO_LINK: OFlag = OFlag::O_NOFOLLOW.union(OFlag::O_CLOEXEC);

fn kind(found: &FileStat) -> libc::mode_t {
    found.st_mode & libc::S_IFMT
}

/// The parts of a path, the last first. A path that ends with a slash names a directory, which a last part
/// `.` asks for as well.
fn parts(path: &[u8]) -> Vec<CString> {
    let directory = path.ends_with(b"/") || path.ends_with(b"/.");
    let parts = path.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && part != b".");
    let parts = parts.rev().filter_map(|part| CString::new(part).ok());
    directory.then(|| c".".to_owned()).into_iter().chain(parts).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    fn c(path: &Path) -> CString {
        CString::new(path.as_os_str().as_bytes()).expect("a path")
    }

    /// What the kernel and the walk make of a path: the file, or the error.
    fn both(
        root: Option<BorrowedFd<'_>>,
        links: bool,
        path: &Path,
        flags: OFlag,
    ) -> [Result<(u64, u64), Errno>; 2] {
        let path = c(path);
        let identity = |opened: nix::Result<OwnedFd>| {
            let found = fstat(&opened?)?;
            Ok((found.st_dev, found.st_ino))
        };
        let kernel = match (root, links) {
            (None, false) => without_links(&path, flags),
            (None, true) => without_magic_links(&path, flags),
            (Some(root), false) => beneath_without_links(root, &path, flags),
            (Some(root), true) => in_root(root, &path, flags),
        };
        [identity(kernel), identity(Walk { root, links }.open(&path, flags))]
    }

    #[test]
    fn the_walk_finds_what_the_kernel_finds() {
        let home = tempfile::tempdir().expect("a directory");
        let home = home.path().canonicalize().expect("its real path");
        fs::create_dir_all(home.join("a/b")).expect("directories");
        fs::write(home.join("a/file"), "x").expect("a file");
        symlink("b", home.join("a/near")).expect("a link");
        symlink("/a/b", home.join("a/rooted")).expect("a link");
        symlink("../../../../..", home.join("a/up")).expect("a link");
        symlink("/proc/self/fd/0", home.join("magic")).expect("a link");
        symlink("round", home.join("round")).expect("a link");
        let root =
            openat(AT_FDCWD, &home, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()).expect("it");
        let flags = [OFlag::O_PATH, OFlag::O_PATH | OFlag::O_DIRECTORY, OFlag::O_RDONLY];
        for name in [
            "a",
            "a/b",
            "a/b/..",
            "a/file",
            "a/file/",
            "a/near",
            "a/rooted",
            "a/up",
            "a/up/a",
            "magic",
            "round",
            "missing",
            "a/missing/b",
            ".",
            "..",
            "../..",
            "a/./b",
            "a//b",
        ] {
            for flags in flags {
                for links in [false, true] {
                    let [kernel, walk] = both(None, links, &home.join(name), flags);
                    assert_eq!(
                        kernel.is_ok(),
                        walk.is_ok(),
                        "{name} {flags:?} {kernel:?} {walk:?}"
                    );
                    assert_eq!(kernel.ok(), walk.ok(), "{name} {flags:?} {links}");
                }
                let [kernel, walk] = both(Some(root.as_fd()), true, Path::new(name), flags);
                assert_eq!(kernel.is_ok(), walk.is_ok(), "{name} {flags:?} {kernel:?} {walk:?}");
                assert_eq!(kernel.ok(), walk.ok(), "{name} {flags:?} in the root");
            }
        }
        for magic in ["/proc/self/exe", "/proc/self/fd/0", "/proc/self/cwd", "/proc/self/root/etc"]
        {
            let [kernel, walk] = both(None, true, Path::new(magic), OFlag::O_PATH);
            assert_eq!([kernel.is_ok(), walk.is_ok()], [false, false], "{magic}");
        }
    }
}
