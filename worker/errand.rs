//! Errands of the host: measuring, clearing and mending a workspace, following nothing.
//!
//! What stands in a workspace may have been planted: every walk needs a fixed number of descriptors and
//! little memory however deep or wide it is, opens directories only, and goes on past what it cannot do.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use turnjail_protocol::errand::{Errand, ErrandOutcome};
use turnjail_protocol::{Reply, WorkerCode};

use crate::arguments::Places;
use crate::store::{Dir, random_name};
use crate::sys::{self, Errno, Kind};
use crate::{history, memory};

/// How deep a measuring walk goes; each level holds a descriptor.
const LEVELS: usize = 64;

/// Does the errand in the workspace.
pub fn run(errand: Errand, places: &Places<'_>) -> Result<Reply, WorkerCode> {
    if errand == Errand::Clear {
        // Where it cannot be, opening says why.
        let _ = sys::let_owner_into_place(places.workspace);
    }
    let workspace = Dir::open(places.workspace).map_err(|_| WorkerCode::Io)?;
    let outcome = match errand {
        Errand::Measure => measure(&workspace),
        Errand::Clear => clear(&workspace),
        Errand::Repair => repair(&workspace),
    };
    let outcome = outcome.map_err(|_| WorkerCode::Io)?;
    Ok(Reply { ok: true, text: outcome.to_json() })
}

/// A directory that is being walked, and the names in it that are still to come.
struct Level {
    dir: OwnedFd,
    names: Vec<Vec<u8>>,
}

impl Level {
    fn open(parent: BorrowedFd<'_>, name: &[u8]) -> Result<Self, Errno> {
        let dir = sys::open_dir(parent, name)?;
        Ok(Self { names: names(dir.as_fd())?, dir })
    }
}

fn names(dir: BorrowedFd<'_>) -> Result<Vec<Vec<u8>>, Errno> {
    let mut names = Vec::new();
    sys::list(dir, |name| names.push(name.to_vec()))?;
    Ok(names)
}

fn measure(workspace: &Dir) -> Result<ErrandOutcome, Errno> {
    let (mut entries, mut bytes, mut cut) = (0, 0, false);
    let mut levels = vec![Level::open(workspace.fd(), b".")?];
    while let Some(level) = levels.last_mut() {
        let Some(name) = level.names.pop() else {
            levels.pop();
            continue;
        };
        entries += 1;
        match sys::stat(level.dir.as_fd(), &name) {
            Ok(Kind::File(size)) => bytes += size,
            Ok(Kind::Directory) => {
                let below = Level::open(level.dir.as_fd(), &name);
                match below {
                    Ok(below) if levels.len() < LEVELS => levels.push(below),
                    _ => cut = true,
                }
            }
            Ok(Kind::Other) => {}
            Err(_) => cut = true,
        }
    }
    Ok(ErrandOutcome::Measured { entries, bytes, cut })
}

/// Removes everything. A directory in a directory is moved to the top first, so that no walk is ever
/// more than one level deep.
fn clear(workspace: &Dir) -> Result<ErrandOutcome, Errno> {
    let top = workspace.fd();
    let (mut removed, mut left) = (0, Vec::new());
    loop {
        // Opened anew each time: a descriptor lists a directory once.
        let listed = Level::open(top, b".")?.names;
        let todo: Vec<_> = listed.into_iter().filter(|name| !left.contains(name)).collect();
        if todo.is_empty() {
            break;
        }
        for name in todo {
            match remove(top, &name) {
                Ok(count) => removed += count,
                Err(_) => left.push(name),
            }
        }
    }
    sys::sync_dir(top)?;
    Ok(ErrandOutcome::Cleared { removed, left: left.len() as u64 })
}

/// Removes one entry of the top; what is below it comes to the top or is removed, too.
fn remove(top: BorrowedFd<'_>, name: &[u8]) -> Result<u64, Errno> {
    if sys::unlink(top, name).is_ok() || sys::remove_dir(top, name).is_ok() {
        return Ok(1);
    }
    open_again(top, name)?;
    let dir = sys::open_dir(top, name)?;
    let mut removed = 0;
    for below in names(dir.as_fd())? {
        let gone = sys::unlink(dir.as_fd(), &below).is_ok()
            || sys::remove_dir(dir.as_fd(), &below).is_ok();
        if gone {
            removed += 1;
        } else {
            // What moves to another directory is written to: it gets another parent.
            open_again(dir.as_fd(), &below)?;
            sys::rename(dir.as_fd(), &below, top, random_name()?.as_bytes())?;
        }
    }
    sys::remove_dir(top, name)?;
    Ok(removed + 1)
}

/// A program of a general image can close a directory even to its owner.
fn open_again(parent: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
    match sys::stat(parent, name)? {
        Kind::Directory => sys::let_owner_in(parent, name),
        _ => Ok(()),
    }
}

/// Gives a broken history or memory another name, or removes what is no file at all; what is readable
/// stays.
fn repair(workspace: &Dir) -> Result<ErrandOutcome, Errno> {
    let broken = [
        (history::FILE, history::read(workspace).is_err()),
        (memory::FILE, memory::Memory::read(workspace, "").is_err()),
    ];
    let mut aside = Vec::new();
    for (name, _) in broken.into_iter().filter(|(_, broken)| *broken) {
        let new = format!("{name}.broken-{}", random_name()?);
        let name = name.as_bytes();
        // A link or pipe holds nothing to keep, and a jail does not let one be moved.
        let now = if sys::stat(workspace.fd(), name)? == Kind::Other {
            sys::unlink(workspace.fd(), name)?;
            String::new()
        } else {
            sys::rename(workspace.fd(), name, workspace.fd(), new.as_bytes())?;
            new
        };
        aside.push((String::from_utf8_lossy(name).into_owned(), now));
    }
    sys::sync_dir(workspace.fd())?;
    Ok(ErrandOutcome::Repaired { aside })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    fn on(path: &Path, errand: Errand) -> ErrandOutcome {
        let workspace = path.as_os_str().as_encoded_bytes();
        let places = Places { workspace, channel: b"/none", broker: b"/none" };
        let reply = run(errand, &places).expect("the errand is done");
        ErrandOutcome::parse(errand, &reply.text).expect("an outcome")
    }

    #[test]
    fn a_workspace_is_counted_without_following_links() {
        let temp = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("large"), vec![0; 100_000]).unwrap();
        fs::create_dir_all(temp.path().join("a/b")).unwrap();
        fs::write(temp.path().join("a/b/file"), "12345").unwrap();
        symlink(outside.path(), temp.path().join("link")).unwrap();
        let measured = on(temp.path(), Errand::Measure);
        assert_eq!(measured, ErrandOutcome::Measured { entries: 4, bytes: 5, cut: false });
    }

    #[test]
    fn a_chain_deeper_than_the_walk_is_said_to_be_cut() {
        let temp = tempfile::tempdir().unwrap();
        let deep = (0..80).fold(temp.path().to_owned(), |path, _| path.join("d"));
        fs::create_dir_all(deep).unwrap();
        let measured = on(temp.path(), Errand::Measure);
        assert!(matches!(measured, ErrandOutcome::Measured { cut: true, .. }), "{measured:?}");
    }

    #[test]
    fn everything_is_removed_and_nothing_outside() {
        let temp = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("kept"), "x").unwrap();
        let deep = (0..300).fold(temp.path().join("deep"), |path, _| path.join("d"));
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("file"), "x").unwrap();
        symlink(outside.path(), temp.path().join("link")).unwrap();
        symlink(outside.path(), deep.join("link")).unwrap();
        fs::write(temp.path().join("\n\u{1b}[31m"), "x").unwrap();
        let cleared = on(temp.path(), Errand::Clear);
        assert_eq!(cleared, ErrandOutcome::Cleared { removed: 305, left: 0 });
        assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0);
        assert!(outside.path().join("kept").exists());
    }

    #[test]
    fn directories_that_are_closed_to_their_owner_are_removed() {
        use std::os::unix::fs::PermissionsExt as _;
        let temp = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        let inner = temp.path().join("closed/inner");
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("file"), "x").unwrap();
        symlink(outside.path(), temp.path().join("link")).unwrap();
        let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
        mode(outside.path(), 0o500).unwrap();
        mode(&inner, 0o000).unwrap();
        mode(&temp.path().join("closed"), 0).unwrap();
        mode(temp.path(), 0).unwrap();
        let cleared = on(temp.path(), Errand::Clear);
        assert_eq!(cleared, ErrandOutcome::Cleared { removed: 4, left: 0 });
        let kept = fs::metadata(outside.path()).unwrap().permissions().mode();
        assert_eq!(kept & 0o777, 0o500, "what a link leads to stays as it is");
    }

    #[test]
    fn what_cannot_be_removed_is_counted_and_ends_the_errand() {
        let temp = tempfile::tempdir().unwrap();
        // /proc/self/task has an entry that nobody can remove, root included.
        let proc = Path::new("/proc/self/task");
        assert!(matches!(on(proc, Errand::Clear), ErrandOutcome::Cleared { left: 1.., .. }));
        assert_eq!(on(temp.path(), Errand::Clear), ErrandOutcome::Cleared { removed: 0, left: 0 });
    }

    #[test]
    fn only_what_is_broken_is_put_aside() {
        let temp = tempfile::tempdir().unwrap();
        fs::write(temp.path().join("history.json"), "[]").unwrap();
        fs::write(temp.path().join("memory.json"), "{").unwrap();
        let ErrandOutcome::Repaired { aside } = on(temp.path(), Errand::Repair) else { panic!() };
        let [(name, now)] = &aside[..] else { panic!("{aside:?}") };
        assert_eq!(name, "memory.json");
        assert_eq!(fs::read_to_string(temp.path().join(now)).unwrap(), "{");
        assert!(!temp.path().join("memory.json").exists());
        assert_eq!(on(temp.path(), Errand::Repair), ErrandOutcome::Repaired { aside: vec![] });
    }
}
