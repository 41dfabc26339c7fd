//! Which jails run under which names: a private directory with a locked file for each.
//!
//! The command that runs a jail holds a lock on its file for as long as it lives, so a file without a lock
//! is what a killed one has left. A file is never used again: another run under the same name makes a
//! new one.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use turnjail_driver::ContainerSpec;

use super::failure::Failure;
use super::process::Identity;

/// What other commands have to know of a running jail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// 64 hexadecimal digits, as Docker's.
    pub id: String,
    /// The name.
    pub name: String,
    /// The image as asked for.
    pub image: String,
    /// The host's directories that are mounted.
    pub mounts: Vec<PathBuf>,
    /// Seconds since 1970 when it was made.
    pub created: u64,
    /// The command that runs it.
    pub host: Identity,
    /// What ends last of it.
    pub keeper: Identity,
}

/// The directory.
#[derive(Debug)]
pub struct Registry {
    directory: PathBuf,
}

/// A name that is taken until this is dropped.
#[derive(Debug)]
pub struct Entry {
    path: PathBuf,
    file: File,
}

/// What was found under a name.
#[derive(Debug)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// A jail whose command lives.
    Alive(Running),
    /// What a killed command has left; its jail may be just ending.
    Left(Running, Entry),
}

impl Registry {
    /// The registry of this user, made when it is not there. It is the same for a program with a bare
    /// environment as for the user's shell.
    pub fn open() -> Result<Self, Failure> {
        let uid = rustix::process::geteuid().as_raw();
        let named = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let usual = PathBuf::from(format!("/run/user/{uid}"));
        let base = named.filter(|path| path.is_absolute());
        let base = base.or_else(|| Some(usual).filter(|path| belongs_to(path, uid)));
        let directory = match base {
            Some(base) => base.join("turnjail-docker"),
            None => PathBuf::from(format!("/tmp/turnjail-docker-{uid}")),
        };
        Self::at(directory)
    }

    fn at(directory: PathBuf) -> Result<Self, Failure> {
        let shown = directory.display().to_string();
        let failed = |error: io::Error| {
            Failure::engine(format!(
                "the registry of running jails {shown} cannot be used: {error}"
            ))
        };
        match DirBuilder::new().mode(0o700).create(&directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed(error));
            }
            _ => {}
        }
        let found = fs::symlink_metadata(&directory).map_err(failed)?;
        let ours = found.uid() == rustix::process::geteuid().as_raw();
        if !found.is_dir() || !ours || found.mode() & 0o077 != 0 {
            return Err(Failure::engine(format!(
                "the registry of running jails {shown} is not a private directory of this user\n\
                 remove it, or point XDG_RUNTIME_DIR to a private directory"
            )));
        }
        Ok(Self { directory })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Takes a name for a jail that is about to run; none when it is taken.
    pub fn claim(
        &self,
        spec: &ContainerSpec,
        created: u64,
        keeper: Identity,
    ) -> io::Result<Option<(Running, Entry)>> {
        let host = Identity::of(std::process::id() as i32);
        let host = host.ok_or_else(|| io::Error::other("/proc cannot be read"))?;
        let directories = [&spec.run_dir, &spec.workspace_dir].into_iter().chain(&spec.channel_dir);
        let running = Running {
            id: identifier()?,
            name: spec.name.clone(),
            image: spec.image.clone(),
            mounts: directories.cloned().collect(),
            created,
            host,
            keeper,
        };
        let Some(mut entry) = self.make(&spec.name)? else { return Ok(None) };
        entry.file.write_all(&serde_json::to_vec(&running)?)?;
        Ok(Some((running, entry)))
    }

    /// A new locked file under a name; none when the name is taken by somebody who lives.
    fn make(&self, name: &str) -> io::Result<Option<Entry>> {
        let path = self.path(name);
        loop {
            let new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
            match new {
                Ok(file) => {
                    // Somebody may just take it for a dead one's, and then removes it.
                    flock(&file, FlockOperation::LockExclusive)?;
                    if is_at(&file, &path) {
                        return Ok(Some(Entry { path, file }));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    match Self::open_entry(&path)? {
                        // Dropping it removes it.
                        Locked::Ours(entry) => drop(entry),
                        Locked::Theirs(_) => return Ok(None),
                        Locked::Absent => {}
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// What is there under a name. Names are checked before: they are single parts of a path.
    pub fn find(&self, name: &str) -> io::Result<Found> {
        const ATTEMPTS: u32 = 100;
        for _ in 0..ATTEMPTS {
            let (mut file, entry) = match Self::open_entry(&self.path(name))? {
                Locked::Absent => return Ok(Found::Nothing),
                Locked::Ours(entry) => (entry.file.try_clone()?, Some(entry)),
                Locked::Theirs(file) => (file, None),
            };
            let mut text = String::new();
            file.read_to_string(&mut text)?;
            match (serde_json::from_str(&text), entry) {
                (Ok(running), Some(entry)) => return Ok(Found::Left(running, entry)),
                (Ok(running), None) => return Ok(Found::Alive(running)),
                // Never written: its command was killed before anything ran.
                (Err(_), Some(_entry)) => return Ok(Found::Nothing),
                // About to be written.
                (Err(_), None) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        Err(io::Error::other(format!("the entry of {name} is not readable")))
    }

    /// Every jail whose command lives, by name.
    pub fn list(&self) -> io::Result<Vec<Running>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            names.extend(entry?.file_name().into_string());
        }
        names.sort();
        let mut list = Vec::new();
        for name in names {
            if let Found::Alive(running) = self.find(&name)? {
                list.push(running);
            }
        }
        Ok(list)
    }

    fn open_entry(path: &Path) -> io::Result<Locked> {
        let file = match OpenOptions::new().read(true).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Locked::Absent),
            Err(error) => return Err(error),
        };
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) if is_at(&file, path) => Ok(Locked::Ours(Entry { path: path.to_owned(), file })),
            // It was removed while we waited for it.
            Ok(()) => Ok(Locked::Absent),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(Locked::Theirs(file)),
            Err(errno) => Err(errno.into()),
        }
    }
}

enum Locked {
    Absent,
    Ours(Entry),
    Theirs(File),
}

impl Drop for Entry {
    fn drop(&mut self) {
        // Whoever holds the lock is the only one who removes the file.
        let _ = fs::remove_file(&self.path);
    }
}

fn belongs_to(path: &Path, uid: u32) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir() && found.uid() == uid)
}

/// Whether the file is the one at the path.
fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(here), Ok(there)) = (file.metadata(), fs::symlink_metadata(path)) else { return false };
    (here.dev(), here.ino()) == (there.dev(), there.ino())
}

fn identifier() -> io::Result<String> {
    let mut bytes = [0_u8; 32];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
    Ok(bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect())
}

#[cfg(test)]
mod tests {
    use turnjail_driver::Limits;

    use super::*;

    fn registry() -> (tempfile::TempDir, Registry) {
        let directory = tempfile::tempdir().unwrap();
        let registry = Registry::at(directory.path().join("r")).unwrap();
        (directory, registry)
    }

    fn spec(name: &str) -> ContainerSpec {
        ContainerSpec {
            name: name.to_owned(),
            image: "x".to_owned(),
            run_dir: "/srv/run".into(),
            workspace_dir: "/srv/work".into(),
            channel_dir: None,
            uid: 1000,
            gid: 1000,
            limits: Limits::default(),
        }
    }

    fn claim(registry: &Registry, name: &str) -> Option<(Running, Entry)> {
        let keeper = Identity::of(std::process::id() as i32).unwrap();
        registry.claim(&spec(name), 7, keeper).unwrap()
    }

    #[test]
    fn a_name_is_taken_once_and_free_again_afterwards() {
        let (_directory, registry) = registry();
        let (running, entry) = claim(&registry, "one").unwrap();
        assert!(claim(&registry, "one").is_none());
        assert!(matches!(registry.find("one").unwrap(), Found::Alive(found) if found == running));
        assert_eq!(registry.list().unwrap(), [running]);
        drop(entry);
        assert!(matches!(registry.find("one").unwrap(), Found::Nothing));
        assert!(claim(&registry, "one").is_some());
    }

    #[test]
    fn what_a_killed_command_left_is_found_once_and_its_name_free() {
        let (_directory, registry) = registry();
        let leave = || {
            let (running, entry) = claim(&registry, "one").unwrap();
            let bytes = fs::read(&entry.path).unwrap();
            drop(entry);
            fs::write(registry.path("one"), bytes).unwrap();
            running
        };
        let running = leave();
        assert_eq!(registry.list().unwrap(), [], "a dead one is not listed");
        leave();
        let Found::Left(found, entry) = registry.find("one").unwrap() else { panic!() };
        assert_eq!(found.name, running.name);
        drop(entry);
        assert!(matches!(registry.find("one").unwrap(), Found::Nothing));
        leave();
        assert!(claim(&registry, "one").is_some());
        fs::write(registry.path("half"), "{\"id\":").unwrap();
        assert!(matches!(registry.find("half").unwrap(), Found::Nothing));
        assert!(!registry.path("half").exists());
    }

    #[test]
    fn a_directory_of_others_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let (directory, _) = registry();
        let open = directory.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(Registry::at(open).is_err());
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(directory.path().join("r"), &link).unwrap();
        assert!(Registry::at(link).is_err());
    }

    #[test]
    fn many_who_want_one_name_never_both_have_it() {
        let (_directory, registry) = registry();
        let held = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        if let Some((_, entry)) = claim(&registry, "one") {
                            let before = held.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                            assert_eq!(before, 0);
                            held.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                            drop(entry);
                        }
                    }
                });
            }
        });
    }
}
