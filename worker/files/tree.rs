//! Walking below `files/`: one part at a time, following nothing.

use std::collections::BinaryHeap;
use std::os::fd::{AsFd, OwnedFd};

use turnjail_protocol::json;
use turnjail_protocol::limits::FILE_PATH_LEVELS;
use turnjail_protocol::measure::{char_bytes, json_bytes};

use super::Refusal;
use super::path::FilePath;
use crate::store::Dir;
use crate::sys::{self, Errno, Kind};

/// The directory of all files, in the workspace.
pub const TOP: &str = "files";

/// The names that a listing keeps while it reads a directory; a result has room for fewer.
const LISTED: usize = 4096;

/// Opens `files/`; none if there is none yet.
pub fn open_top(workspace: &Dir) -> Result<Option<OwnedFd>, Refusal> {
    match sys::open_dir(workspace.fd(), TOP.as_bytes()) {
        Ok(top) => Ok(Some(top)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(Refusal::of(errno, "files/")),
    }
}

/// Opens the directory that `path` names an entry of, and returns it with that entry's name.
pub fn open_parent<'p>(workspace: &Dir, path: &'p FilePath) -> Result<(OwnedFd, &'p str), Refusal> {
    let missing = || Refusal::of(Errno::NOENT, &path.to_string());
    let mut dir = open_top(workspace)?.ok_or_else(missing)?;
    let (dirs, name) = path.split();
    for part in dirs {
        dir = open_below(&dir, part).map_err(|errno| Refusal::of(errno, &path.to_string()))?;
    }
    Ok((dir, name))
}

/// Opens a directory in a directory. What is something else is never opened.
pub fn open_below(dir: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    sys::open_dir(dir.as_fd(), name.as_bytes())
}

/// `files_list`: the entries of a directory by name, as many as fit into `bytes`.
pub fn list(workspace: &Dir, path: Option<&FilePath>, bytes: usize) -> Result<String, Refusal> {
    let what = path.map_or_else(|| "files/".to_owned(), FilePath::to_string);
    let failed = |errno| Refusal::of(errno, &what);
    let Some(mut dir) = open_top(workspace)? else {
        return match path {
            None => Ok(Listing::new(0, bytes).finish()),
            Some(_) => Err(failed(Errno::NOENT)),
        };
    };
    for part in path.into_iter().flat_map(FilePath::parts) {
        if let Ok(Kind::File(_)) = sys::stat(dir.as_fd(), part.as_bytes()) {
            return Err(Refusal::new(format!("{what} is a file, not a directory")));
        }
        dir = open_below(&dir, part).map_err(failed)?;
    }
    let (total, names) = names(&dir).map_err(failed)?;
    let mut listing = Listing::new(total, bytes);
    for name in names {
        match sys::stat(dir.as_fd(), &name) {
            Ok(kind) if !listing.push(&name, kind) => break,
            Ok(_) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(failed(errno)),
        }
    }
    Ok(listing.finish())
}

/// How many entries a directory has, and the first of them in order.
fn names(dir: &OwnedFd) -> Result<(usize, Vec<Vec<u8>>), Errno> {
    let mut total = 0;
    let mut first = BinaryHeap::new();
    sys::list(dir.as_fd(), |name| {
        total += 1;
        if first.len() < LISTED {
            first.push(name.to_vec());
        } else if let Some(mut last) = first.peek_mut()
            && name < last.as_slice()
        {
            *last = name.to_vec();
        }
    })?;
    Ok((total, first.into_sorted_vec()))
}

/// A listing while it is made.
struct Listing {
    /// The entries as JSON, without the brackets.
    entries: String,
    shown: usize,
    total: usize,
    /// What is left for entries: JSON bytes of a string that holds them.
    room: usize,
}

impl Listing {
    fn new(total: usize, bytes: usize) -> Self {
        // The largest frame: cut, and as many shown as there are.
        let frame = json_bytes(&frame("", total, Some(total)));
        Self { entries: String::new(), shown: 0, total, room: bytes.saturating_sub(frame) }
    }

    /// Adds an entry, if it still fits.
    fn push(&mut self, name: &[u8], kind: Kind) -> bool {
        let mut entry = Vec::new();
        if self.shown > 0 {
            entry.push(b',');
        }
        entry.extend_from_slice(b"{\"name\":");
        json::push_string(&mut entry, &String::from_utf8_lossy(name));
        entry.extend_from_slice(match kind {
            Kind::File(_) => &b",\"kind\":\"file\""[..],
            Kind::Directory => b",\"kind\":\"directory\"",
            Kind::Other => b",\"kind\":\"other\"",
        });
        if let Kind::File(size) = kind {
            entry.extend_from_slice(format!(",\"size\":{size}").as_bytes());
        }
        entry.push(b'}');
        let entry = String::from_utf8(entry).expect("JSON is written as UTF-8");
        let cost: usize = entry.chars().map(char_bytes).sum();
        if cost > self.room {
            return false;
        }
        self.room -= cost;
        self.entries.push_str(&entry);
        self.shown += 1;
        true
    }

    fn finish(self) -> String {
        let shown = (self.shown < self.total).then_some(self.shown);
        frame(&self.entries, self.total, shown)
    }
}

/// The listing as JSON; with a number, as one that was cut after so many.
fn frame(entries: &str, total: usize, cut: Option<usize>) -> String {
    let marker = cut.map_or_else(String::new, |shown| {
        format!(
            ",\"cut\":\"the first {shown} of {total} entries; list a subdirectory or delete some\""
        )
    });
    format!("{{\"entries\":[{entries}],\"total\":{total}{marker}}}")
}

/// The bytes of all files together.
pub fn total_bytes(workspace: &Dir) -> Result<u64, Refusal> {
    let total = open_top(workspace)?.map_or(Ok(0), |top| bytes_below(&top, FILE_PATH_LEVELS));
    total.map_err(|errno| Refusal::of(errno, "files/"))
}

/// What is deeper than any path can be is not the tools' and not counted.
fn bytes_below(dir: &OwnedFd, levels: usize) -> Result<u64, Errno> {
    let mut dirs = Vec::new();
    let mut total = 0;
    let mut failed = None;
    sys::list(dir.as_fd(), |name| match sys::stat(dir.as_fd(), name) {
        Ok(Kind::File(size)) => total += size,
        Ok(Kind::Directory) => dirs.push(name.to_vec()),
        Ok(Kind::Other) | Err(Errno::NOENT) => {}
        Err(errno) => failed = Some(errno),
    })?;
    if let Some(errno) = failed {
        return Err(errno);
    }
    if levels > 1 {
        for name in dirs {
            total += bytes_below(&sys::open_dir(dir.as_fd(), &name)?, levels - 1)?;
        }
    }
    Ok(total)
}
