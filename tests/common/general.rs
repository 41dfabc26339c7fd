//! General images made of programs that others wrote and that this machine has.
//!
//! They are made once and kept below the build's target directory (or, where an ordinary user cannot
//! reach that, the system's temporary one), by a name that changes with the programs.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use turnjail_images::{Format, ImageConfig, ImageStore, ImportOptions, Source};

use crate::roots::Root;

/// A general image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum General {
    /// A static busybox as every command.
    Busybox,
    /// GNU coreutils with dash and bash.
    Coreutils,
    /// CPython with its library.
    Python,
    /// Node.js.
    Node,
    /// Bun.
    Bun,
    /// esbuild, a static program in Go.
    Esbuild,
}

impl General {
    /// The name of the image.
    pub fn name(self) -> &'static str {
        match self {
            Self::Busybox => "busybox",
            Self::Coreutils => "coreutils",
            Self::Python => "python",
            Self::Node => "node",
            Self::Bun => "bun",
            Self::Esbuild => "esbuild",
        }
    }

    /// Its main program on this machine; none when it is not there.
    pub fn program(self) -> Option<PathBuf> {
        let search = |name: &str| {
            let path = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&path).map(|dir| dir.join(name)).find(|path| path.is_file())
        };
        let machine = if cfg!(target_arch = "x86_64") { "x64" } else { "arm64" };
        let path = match self {
            Self::Busybox => search("busybox")?,
            Self::Coreutils => PathBuf::from("/bin/dash"),
            Self::Python => PathBuf::from("/usr/bin/python3"),
            Self::Node => search("node")?,
            Self::Bun => {
                let machine = if machine == "x64" { "x64" } else { "aarch64" };
                installed(&format!("@oven/bun-linux-{machine}/bin/bun"))
            }
            Self::Esbuild => installed(&format!("@esbuild/linux-{machine}/bin/esbuild")),
        };
        path.canonicalize().ok().filter(|path| path.is_file())
    }

    /// Why this machine does not have it; none when it does.
    pub(crate) fn missing(self) -> Option<String> {
        if self.program().is_some() {
            return None;
        }
        let how = match self {
            Self::Busybox => "Debian's busybox-static",
            Self::Coreutils => "Debian's dash and coreutils",
            Self::Python => "Debian's python3",
            Self::Node => "Debian's nodejs",
            Self::Bun | Self::Esbuild => "tests/general/install",
        };
        Some(format!("there is no {} ({how} brings it)", self.name()))
    }

    /// The root filesystem of the image, made when it is not there yet.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn root(self) -> PathBuf {
        let program = self.program().unwrap_or_else(|| panic!("no {}", self.name()));
        let name = format!("{}-{:016x}", self.name(), fingerprint(&program));
        cached(&name, |dir| self.make(&program, dir))
    }

    /// The root of an image made from this one, with a few files more.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn root_with(self, files: &[(String, String)]) -> PathBuf {
        let from = self.root();
        let mut hasher = DefaultHasher::new();
        (&from, files).hash(&mut hasher);
        let name = format!("{}-with-{:016x}", self.name(), hasher.finish());
        cached(&name, |dir| {
            let root = Root::like(&from, dir)?;
            files.iter().try_for_each(|(path, text)| root.write(path, text))
        })
    }

    fn make(self, program: &Path, dir: &Path) -> io::Result<()> {
        let root = Root::new(dir)?;
        match self {
            Self::Busybox => busybox(&root, program),
            Self::Coreutils => coreutils(&root),
            Self::Python => python(&root, program),
            Self::Node | Self::Bun | Self::Esbuild => {
                root.program(program, &format!("/usr/bin/{}", self.name()))
            }
        }
    }
}

/// A store with an image of this root and configuration, and the image's reference. It is imported when
/// it is not there yet.
///
/// # Panics
/// When it cannot be imported.
pub fn imported(root: &Path, config: ImageConfig) -> (PathBuf, String) {
    let mut hasher = DefaultHasher::new();
    (root, format!("{config:?}")).hash(&mut hasher);
    let reference = format!("general:{:016x}", hasher.finish());
    let dir = cache().join("store");
    let store = ImageStore::open(&dir).expect("a store");
    if store.resolve(&reference).is_err() {
        let archive = tempfile::NamedTempFile::new_in(cache()).expect("a file");
        let mut tar = tar::Builder::new(archive.as_file());
        tar.follow_symlinks(false);
        tar.append_dir_all("", root).and_then(|()| tar.into_inner()).expect("an archive");
        let options = ImportOptions {
            format: Format::Rootfs,
            config: Some(config),
            ..ImportOptions::default()
        };
        let name = reference.parse().expect("a reference");
        store.import(Source::Path(archive.path().into()), &name, &options).expect("an image");
    }
    (dir, reference)
}

/// The root of this name, made when it is not there yet.
fn cached(name: &str, make: impl FnOnce(&Path) -> io::Result<()>) -> PathBuf {
    let place = cache().join(name);
    if place.is_dir() {
        return place;
    }
    let staging = tempfile::tempdir_in(cache()).expect("a directory beside it");
    let root = staging.path().join("root");
    make(&root).unwrap_or_else(|e| panic!("{name}: {e}"));
    // Another process may have been faster.
    let _ = fs::rename(&root, &place);
    assert!(place.is_dir(), "{} was not made", place.display());
    place
}

/// Whether a busybox has a command is its own business: each name leads to it.
fn busybox(root: &Root, program: &Path) -> io::Result<()> {
    root.program(program, "/bin/busybox")?;
    let list = std::process::Command::new(program).arg("--list").output()?;
    let names = String::from_utf8_lossy(&list.stdout).into_owned();
    for name in names.lines().filter(|name| *name != "busybox") {
        root.link("busybox", &format!("/bin/{name}"))?;
    }
    Ok(())
}

fn coreutils(root: &Root) -> io::Result<()> {
    const NAMES: [&str; 32] = [
        "bash",
        "basename",
        "cat",
        "chmod",
        "cp",
        "cut",
        "date",
        "dd",
        "dirname",
        "echo",
        "env",
        "expr",
        "head",
        "id",
        "ln",
        "ls",
        "mkdir",
        "mktemp",
        "mv",
        "pwd",
        "readlink",
        "rm",
        "rmdir",
        "sha256sum",
        "sleep",
        "sort",
        "split",
        "stat",
        "tail",
        "touch",
        "tr",
        "wc",
    ];
    for name in NAMES {
        let program = ["/bin", "/usr/bin"].map(|dir| Path::new(dir).join(name));
        let program = program.iter().find(|path| path.is_file());
        let program = program.ok_or_else(|| io::Error::other(format!("no {name}")))?;
        root.program(program, &format!("/bin/{name}"))?;
    }
    root.program(Path::new("/bin/dash"), "/bin/sh")
}

fn python(root: &Root, program: &Path) -> io::Result<()> {
    root.program(program, "/usr/bin/python3")?;
    let output = std::process::Command::new(program)
        .args(["-Ic", "import sysconfig; print(sysconfig.get_path('stdlib'))"])
        .output()?;
    let library = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let without = ["__pycache__", "test", "idlelib", "lib2to3", "ensurepip", "tkinter", "config-"];
    root.tree(Path::new(&library), &[&without[..], &["dist-packages", "site-packages"]].concat())
}

/// A program of tests/general/install's.
fn installed(path: &str) -> PathBuf {
    let directory = std::env::var_os("TURNJAIL_PROGRAMS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/programs"),
        PathBuf::from,
    );
    directory.join("node_modules").join(path)
}

/// Another program, or another version of these recipes, is another image.
fn fingerprint(program: &Path) -> u64 {
    const RECIPES: u32 = 1;
    let mut hasher = DefaultHasher::new();
    let found = fs::metadata(program).map(|found| (found.size(), found.mtime())).ok();
    (RECIPES, program, found).hash(&mut hasher);
    hasher.finish()
}

/// Where images are kept between runs.
fn cache() -> &'static Path {
    static CACHE: OnceLock<PathBuf> = OnceLock::new();
    CACHE.get_or_init(|| {
        let uid = nix::unistd::geteuid().as_raw();
        let usable =
            |dir: &PathBuf| fs::create_dir_all(dir).is_ok() && tempfile::tempdir_in(dir).is_ok();
        let cache = kept(uid)
            .filter(usable)
            .unwrap_or_else(|| std::env::temp_dir().join(format!("turnjail-test-general-{uid}")));
        crate::jails::make_private(&cache);
        cache.canonicalize().expect("the cache")
    })
}

/// The directory below the build's own. Root makes it for the ordinary user before it becomes one.
fn kept(uid: u32) -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    Some(program.ancestors().nth(3)?.join("general-images").join(uid.to_string()))
}

/// Called as root.
pub(crate) fn give_cache(uid: u32, gid: u32) {
    let Some(dir) = kept(uid) else { return };
    if fs::create_dir_all(&dir).is_ok() {
        // Where it does not work the temporary directory serves.
        let _ = std::os::unix::fs::chown(&dir, Some(uid), Some(gid));
    }
}
