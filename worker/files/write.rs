//! `files_write` and `files_delete`.
//!
//! New content is staged under a random name in `.turnjail/`, synced and renamed into place: a kill
//! at any moment leaves the old or the new content. The staging directory is outside `files/`, so that
//! no name there is special.

use std::os::fd::{AsFd, OwnedFd};

use super::path::FilePath;
use super::tree::{self, TOP};
use super::{Files, Refusal, page};
use crate::store::random_name;
use crate::sys::{self, Errno, Kind};

/// Where new content is staged, at the top of the workspace.
const STAGING: &[u8] = b".turnjail";
/// How staged files are named, before the random part.
const STAGED: &str = "staged-";

/// Writes `text` to `path`, making its directories, and returns the file's size.
pub fn write(
    files: &mut Files<'_>,
    path: &FilePath,
    text: &[u8],
    append: bool,
) -> Result<u64, Refusal> {
    let (old_size, old) = present(files, path, append)?;
    let new_size = old.len() as u64 + text.len() as u64;
    let total = admit(files, path, old_size, new_size)?;
    let (dir, name) = make_parent(files, path)?;
    stage(files, path, &[&old, text], &dir, name)?;
    files.total = Some(total);
    Ok(new_size)
}

/// Deletes a file or an empty directory.
pub fn delete(files: &mut Files<'_>, path: &FilePath) -> Result<(), Refusal> {
    let (dir, name) = tree::open_parent(files.workspace, path)?;
    let failed = |errno| Refusal::of(errno, &path.to_string());
    let freed = match sys::stat(dir.as_fd(), name.as_bytes()).map_err(failed)? {
        Kind::File(size) => sys::unlink(dir.as_fd(), name.as_bytes()).map(|()| size),
        Kind::Directory => sys::remove_dir(dir.as_fd(), name.as_bytes()).map(|()| 0),
        Kind::Other => return Err(page::not_a_file(path)),
    };
    let freed = freed.map_err(failed)?;
    files.total = files.total.map(|total| total.saturating_sub(freed));
    sys::sync_dir(dir.as_fd()).map_err(failed)
}

/// The size of the file that is there, and what of it is to be kept.
fn present(files: &Files<'_>, path: &FilePath, keep: bool) -> Result<(u64, Vec<u8>), Refusal> {
    let nothing = (0, Vec::new());
    let Some(mut dir) = tree::open_top(files.workspace)? else { return Ok(nothing) };
    let failed = |errno| Refusal::of(errno, &path.to_string());
    let (dirs, name) = path.split();
    for part in dirs {
        dir = match tree::open_below(&dir, part) {
            Err(Errno::NOENT) => return Ok(nothing),
            opened => opened.map_err(failed)?,
        };
    }
    match sys::stat(dir.as_fd(), name.as_bytes()) {
        Ok(Kind::File(size)) if keep && size <= files.limits.max_file_bytes => {
            Ok((size, page::content(files.workspace, path, files.limits.max_file_bytes)?))
        }
        Ok(Kind::File(size)) if keep => {
            let limit = files.limits.max_file_bytes;
            Err(Refusal::new(format!("{path} has {size} bytes already; the limit is {limit}")))
        }
        Ok(Kind::File(size)) => Ok((size, Vec::new())),
        Ok(Kind::Directory) => Err(failed(Errno::ISDIR)),
        Ok(Kind::Other) => Err(page::not_a_file(path)),
        Err(Errno::NOENT) => Ok(nothing),
        Err(errno) => Err(failed(errno)),
    }
}

/// Checks both limits and returns the bytes of all files after the write.
fn admit(files: &mut Files<'_>, path: &FilePath, old: u64, new: u64) -> Result<u64, Refusal> {
    let limit = files.limits.max_file_bytes;
    if new > limit {
        return Err(Refusal::new(format!("{path} would be {new} bytes; the limit is {limit}")));
    }
    let before = match files.total {
        Some(total) => total,
        None => *files.total.insert(tree::total_bytes(files.workspace)?),
    };
    let total = before.saturating_sub(old) + new;
    let limit = files.limits.max_total_bytes;
    // What makes the whole smaller is always welcome.
    if total > limit && new > old {
        return Err(Refusal::new(format!(
            "all files together would be {total} bytes; the limit is {limit}; delete some first"
        )));
    }
    Ok(total)
}

/// Opens the directory of `path`, making what is missing.
fn make_parent<'p>(files: &Files<'_>, path: &'p FilePath) -> Result<(OwnedFd, &'p str), Refusal> {
    let failed = |errno| Refusal::of(errno, &path.to_string());
    let (dirs, name) = path.split();
    let mut dir = make_dir(files.workspace.fd(), TOP.as_bytes()).map_err(failed)?;
    for part in dirs {
        dir = make_dir(dir.as_fd(), part.as_bytes()).map_err(failed)?;
    }
    Ok((dir, name))
}

/// Opens a directory, making it if there is nothing under its name.
fn make_dir(parent: std::os::fd::BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    match sys::open_dir(parent, name) {
        Err(Errno::NOENT) => {
            sys::make_dir(parent, name)?;
            sys::sync_dir(parent)?;
            sys::open_dir(parent, name)
        }
        opened => opened,
    }
}

/// Writes the parts to a staged file and moves it to `name` in `dir`.
fn stage(
    files: &mut Files<'_>,
    path: &FilePath,
    parts: &[&[u8]],
    dir: &OwnedFd,
    name: &str,
) -> Result<(), Refusal> {
    let failed = |errno| Refusal::of(errno, &path.to_string());
    let staging = open_staging(files).map_err(|errno| Refusal::of(errno, ".turnjail/"))?;
    let staged = random_name().map(|random| format!("{STAGED}{random}")).map_err(failed)?;
    let file = sys::create_file(staging.as_fd(), staged.as_bytes()).map_err(failed)?;
    let moved = parts
        .iter()
        .try_for_each(|part| sys::write_all(file.as_fd(), part))
        .and_then(|()| sys::sync(file.as_fd()))
        .and_then(|()| {
            sys::rename(staging.as_fd(), staged.as_bytes(), dir.as_fd(), name.as_bytes())
        });
    if let Err(errno) = moved {
        // The refusal counts; a leftover is removed by the next turn that writes.
        let _ = sys::unlink(staging.as_fd(), staged.as_bytes());
        return Err(failed(errno));
    }
    sys::sync_dir(dir.as_fd()).map_err(failed)
}

/// Opens the staging directory, replacing what is no directory and removing leftovers once a turn.
fn open_staging(files: &mut Files<'_>) -> Result<OwnedFd, Errno> {
    let workspace = files.workspace.fd();
    let staging = match make_dir(workspace, STAGING) {
        Err(Errno::NOTDIR | Errno::LOOP) => {
            sys::unlink(workspace, STAGING)?;
            make_dir(workspace, STAGING)?
        }
        opened => opened?,
    };
    if !std::mem::replace(&mut files.cleaned, true) {
        remove_leftovers(&staging)?;
    }
    Ok(staging)
}

fn remove_leftovers(staging: &OwnedFd) -> Result<(), Errno> {
    let mut leftovers = Vec::new();
    sys::list(staging.as_fd(), |name| {
        if name.starts_with(STAGED.as_bytes()) && leftovers.len() < 1024 {
            leftovers.push(name.to_vec());
        }
    })?;
    for name in leftovers {
        // A directory of that name is not ours and is left alone.
        let _ = sys::unlink(staging.as_fd(), &name);
    }
    Ok(())
}
