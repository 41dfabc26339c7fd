//! Jails for tests: the probe, or any static program, in the place of the worker.

use std::fs::{self, Permissions};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use turnjail_driver::Limits;
use turnjail_jail::client::Client;
use turnjail_jail::{Ended, JailSpec, Mount, Profile, StartError, Target};
use turnjail_warden::wire::Facts;

use crate::ways;

/// A warden, a root filesystem with the probe as its program, and the directories of a turn.
pub struct Bench {
    /// Everything is below this directory, which goes with the value.
    dir: TempDir,
    runtime: Runtime,
    client: Client,
}

impl Bench {
    /// Starts a warden and lays out the directories.
    pub fn new() -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let client = runtime.block_on(Client::start_with(ways::options())).expect("a warden");
        let dir = private_dir();
        for name in ["workspace", "channel", "run"] {
            make_dir(&dir.path().join(name));
        }
        root_with_probe(&dir.path().join("root"));
        Self { dir, runtime, client }
    }

    /// A directory of this bench by its name: `workspace`, `channel`, `run` or `root`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The runtime that the warden's connection lives in.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// The warden.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// A jail with all three directories mounted that runs the probe with `arguments`.
    pub fn spec(&self, profile: Profile, arguments: &[&str]) -> JailSpec {
        let mount = |name: &str, target| Mount { source: self.path(name), target };
        let command = std::iter::once("/worker").chain(arguments.iter().copied());
        JailSpec {
            rootfs: self.path("root"),
            command: command.map(str::to_owned).collect(),
            environment: Vec::new(),
            working_dir: String::new(),
            mounts: vec![
                mount("workspace", Target::Workspace),
                mount("channel", Target::Channel),
                mount("run", Target::Broker),
            ],
            isolation: profile.into(),
            limits: Limits { time_ms: 10_000, ..Limits::default() },
            bounds: None,
            landlock: true,
            attempt: None,
        }
    }

    /// Runs a jail to its end.
    pub fn run(&self, spec: &JailSpec, input: &[u8]) -> Result<Ended, StartError> {
        let never = CancellationToken::new();
        self.runtime.block_on(turnjail_jail::run(&self.client, spec, input, &never, || {}))
    }

    /// Runs the probe with `arguments` in a jail.
    pub fn probe(&self, profile: Profile, arguments: &[&str]) -> Ended {
        self.run(&self.spec(profile, arguments), b"").expect("a jail")
    }
}

impl Default for Bench {
    fn default() -> Self {
        Self::new()
    }
}

/// A new private directory below the system's temporary one, by its real path.
pub fn private_dir() -> TempDir {
    let base = std::env::temp_dir().canonicalize().expect("the temporary directory");
    let dir = tempfile::Builder::new().prefix("turnjail-").tempdir_in(base).expect("a directory");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).expect("chmod");
    dir
}

/// A private directory that may be there already.
pub(crate) fn make_private(path: &Path) {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).expect("a directory");
    let mode = Permissions::from_mode(0o700);
    fs::set_permissions(path, mode).expect("a directory of this user's");
}

fn make_dir(path: &Path) {
    fs::DirBuilder::new().mode(0o700).create(path).expect("a directory");
}

/// The bytes of the static probe.
pub static PROBE: &[u8] = include_bytes!(env!("TURNJAIL_PROBE"));

/// A root filesystem with the probe where the worker would be.
fn root_with_probe(root: &Path) {
    make_dir(root);
    for name in ["broker", "channel", "dev", "proc", "tmp", "workspace"] {
        make_dir(&root.join(name));
    }
    write_program(&root.join("worker"), PROBE);
}

/// Writes a program by a process of its own. A descriptor of ours that is open for writing would be in
/// every process that another test starts at this moment, and for as long nobody could execute the program
/// (ETXTBSY).
pub fn write_program(path: &Path, bytes: &[u8]) {
    use std::io::Write as _;
    let mut writer = std::process::Command::new("sh")
        .args(["-c", "cat >\"$0\" && chmod 0555 \"$0\""])
        .arg(path)
        .stdin(std::process::Stdio::piped())
        .spawn()
        .expect("a shell");
    writer.stdin.take().expect("piped").write_all(bytes).expect("the program");
    assert!(writer.wait().expect("ended").success(), "{} is not written", path.display());
}

/// Starts a warden; what it found out, or why no jail can be made here.
pub(crate) fn facts() -> Result<Facts, String> {
    let runtime = Runtime::new().map_err(|e| e.to_string())?;
    let client = runtime.block_on(Client::start()).map_err(|e| e.to_string())?;
    Ok(client.facts().clone())
}

/// Why jails have no cgroups here; none when they have.
pub(crate) fn no_cgroup() -> Option<String> {
    let runtime = Runtime::new().ok()?;
    match runtime.block_on(Client::start()) {
        Ok(client) => client.limiter().undelegated().map(|why| why.why.clone()),
        Err(error) => Some(error.to_string()),
    }
}
