//! The directories that turns use: what they are on, and how much room is there.

use std::path::{Path, PathBuf};

use nix::sys::statvfs::statvfs;

use super::Check;
use crate::causes::evidence::Evidence;
use crate::causes::{advise, table};

/// The name of the place from which programs are started.
pub const STORE: &str = "images";

/// The name of the place in which programs of general images may leave programs.
pub const WORKSPACES: &str = "workspaces";

/// Less room than this is used up by one turn.
const ENOUGH_BYTES: u64 = 64 << 20;
const ENOUGH_FILES: u64 = 1000;

/// File systems on which locks, sockets, permissions or renames are not those of Linux.
const FOREIGN: [&str; 14] = [
    "nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "drvfs", "vboxsf", "fuse", "lustre", "gpfs",
    "afs", "ceph", "ecryptfs",
];

/// What is wrong with each place, by its name and path. One that does not exist yet is judged by the
/// directory that it would be made in.
pub fn checks(evidence: &Evidence, places: &[(&'static str, PathBuf)]) -> Vec<Check> {
    places.iter().filter_map(|(name, path)| check(evidence, name, path)).collect()
}

fn check(evidence: &Evidence, name: &'static str, path: &Path) -> Option<Check> {
    let path = existing(evidence, path);
    let mount = evidence.mount_of(&path)?;
    let shown = path.display().to_string();
    let place = mount.place.display().to_string();
    let of = |cause, words: &[(&str, &str)]| Some(Check::of(name, advise(cause, evidence, words)));
    let noexec = mount.flags.iter().any(|flag| flag == "noexec");
    match name {
        STORE if noexec => {
            return of(&table::NOEXEC_HERE, &[("path", &shown), ("mount", &place)]);
        }
        WORKSPACES if noexec => {
            return of(&table::NOEXEC_WORKSPACE, &[("path", &shown), ("mount", &place)]);
        }
        _ => {}
    }
    let kind = mount.kind.as_str();
    if FOREIGN.iter().any(|foreign| kind == *foreign || kind.starts_with("fuse.")) {
        return of(&table::FILE_SYSTEM, &[("path", &shown), ("kind", kind)]);
    }
    let room = room(evidence, &path)?;
    of(&table::DISK_SHORT, &[("path", &shown), ("free", &room)])
}

/// The nearest directory that is there.
fn existing(evidence: &Evidence, path: &Path) -> PathBuf {
    let is_there = |path: &&Path| evidence.exists(&path.to_string_lossy());
    path.ancestors().find(is_there).unwrap_or(Path::new("/")).to_owned()
}

/// How little room there is; none where it is enough.
fn room(evidence: &Evidence, path: &Path) -> Option<String> {
    if !evidence.is_here() {
        return None;
    }
    let room = statvfs(path).ok()?;
    let bytes = room.blocks_available() * room.fragment_size();
    // Some file systems make inodes as they are needed, and say that there are none.
    let files = (room.files() > 0).then(|| room.files_available());
    match files {
        _ if bytes < ENOUGH_BYTES => Some(format!("{} MiB", bytes >> 20)),
        Some(files) if files < ENOUGH_FILES => Some(format!("{files} inodes")),
        _ => None,
    }
}
