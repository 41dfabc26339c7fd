//! Root filesystems made of this machine's own programs: the program, the libraries that it loads, and
//! the mount points of a jail. Nothing is changed in what is copied.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A root filesystem that is being made.
#[derive(Debug)]
pub struct Root {
    dir: PathBuf,
}

impl Root {
    /// An empty root with the mount points, in a directory that does not exist yet.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn new(dir: &Path) -> io::Result<Self> {
        for name in ["broker", "channel", "dev", "proc", "tmp", "workspace"] {
            fs::create_dir_all(dir.join(name))?;
        }
        Ok(Self { dir: dir.to_owned() })
    }

    /// As [`new`](Self::new) with everything that another root has, by hard links.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn like(other: &Path, dir: &Path) -> io::Result<Self> {
        fn link(from: &Path, to: &Path) -> io::Result<()> {
            fs::create_dir_all(to)?;
            for entry in fs::read_dir(from)? {
                let entry = entry?;
                let to = to.join(entry.file_name());
                if entry.file_type()?.is_dir() {
                    link(&entry.path(), &to)?;
                } else {
                    fs::hard_link(entry.path(), to)?;
                }
            }
            Ok(())
        }
        link(other, dir)?;
        Self::new(dir)
    }

    /// Writes a file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, to: &str, text: &str) -> io::Result<()> {
        let to = self.at(to);
        fs::create_dir_all(to.parent().unwrap_or(&self.dir))?;
        fs::write(to, text)
    }

    /// Copies a program to `to` in the root, with every library that it is linked to.
    ///
    /// # Errors
    /// When one cannot be copied.
    pub fn program(&self, from: &Path, to: &str) -> io::Result<()> {
        self.file(from, to)?;
        self.libraries(from)
    }

    /// Copies the libraries that a program or library is linked to, to where they are here.
    ///
    /// # Errors
    /// When one cannot be copied.
    pub fn libraries(&self, of: &Path) -> io::Result<()> {
        for library in libraries(of)? {
            let to = library.to_string_lossy();
            if !self.at(&to).exists() {
                self.file(&library, &to)?;
            }
        }
        Ok(())
    }

    /// Copies a file, following links here.
    ///
    /// # Errors
    /// When it cannot be copied.
    pub fn file(&self, from: &Path, to: &str) -> io::Result<()> {
        let to = self.at(to);
        fs::create_dir_all(to.parent().unwrap_or(&self.dir))?;
        let _ = fs::remove_file(&to);
        fs::copy(from, &to)?;
        let executable = fs::metadata(from)?.mode() & 0o111 != 0;
        fs::set_permissions(&to, Permissions::from_mode(if executable { 0o755 } else { 0o644 }))
    }

    /// Copies a directory to the same place, but for entries with one of these names, and the libraries
    /// that shared objects in it need.
    ///
    /// # Errors
    /// When something cannot be copied.
    pub fn tree(&self, from: &Path, without: &[&str]) -> io::Result<()> {
        for entry in fs::read_dir(from)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if without.iter().any(|skipped| name.starts_with(skipped)) {
                continue;
            }
            // Where links lead to, and none that leads nowhere.
            let Ok(found) = fs::metadata(&path) else { continue };
            if found.is_dir() {
                self.tree(&path, without)?;
            } else if found.is_file() {
                self.file(&path, &path.to_string_lossy())?;
                if path.extension().is_some_and(|extension| extension == "so") {
                    self.libraries(&path)?;
                }
            }
        }
        Ok(())
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn link(&self, target: &str, at: &str) -> io::Result<()> {
        let at = self.at(at);
        fs::create_dir_all(at.parent().unwrap_or(&self.dir))?;
        symlink(target, at)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir.join(path.trim_start_matches('/'))
    }
}

/// What the dynamic linker would load for a program, itself included; nothing for a static one.
fn libraries(program: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let output = Command::new("ldd").arg(program).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let paths = text.split_whitespace().filter(|word| word.starts_with('/'));
    // The program's own name stands before a colon.
    Ok(paths.filter(|path| !path.ends_with(':')).map(PathBuf::from).collect())
}
