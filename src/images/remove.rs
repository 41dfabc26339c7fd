//! Removing trees of the store, whatever permissions an image gave its directories.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::ImageError;

/// Removes a tree. A link that stands at `root` is removed itself.
///
/// What somebody else has removed meanwhile is as good as removed here.
pub(crate) fn tree(root: &Path) -> Result<(), ImageError> {
    match remove(root) {
        Err(ImageError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

fn remove(root: &Path) -> Result<(), ImageError> {
    let found = fs::symlink_metadata(root).map_err(ImageError::io("remove", root))?;
    if !found.is_dir() {
        return fs::remove_file(root).map_err(ImageError::io("remove", root));
    }
    match fs::remove_dir_all(root) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            widen(root);
            fs::remove_dir_all(root).map_err(ImageError::io("remove", root))
        }
        result => result.map_err(ImageError::io("remove", root)),
    }
}

/// Gives the owner every permission on every directory. Best effort: what fails here fails again, and
/// then is told.
fn widen(directory: &Path) {
    let _ = fs::set_permissions(directory, Permissions::from_mode(0o700));
    let Ok(entries) = fs::read_dir(directory) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir()) {
            widen(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_removed_and_not_what_it_leads_to() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let outside = dir.path().join("outside");
        fs::create_dir_all(outside.join("sub")).expect("a directory");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&outside, &link).expect("a link");
        tree(&link).expect("removed");
        assert!(fs::symlink_metadata(&link).is_err() && outside.join("sub").is_dir());
    }

    #[test]
    fn directories_without_permissions_go_too() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let root = dir.path().join("root");
        fs::create_dir_all(root.join("a/b/c")).expect("directories");
        for name in ["a/b/c", "a/b", "a"] {
            fs::set_permissions(root.join(name), Permissions::from_mode(0o000)).expect("chmod");
        }
        tree(&root).expect("removed");
        assert!(!root.exists());
    }
}
