//! An ordinary user's directories, and the program in them.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::{Value, json};
use tempfile::TempDir;
use turnjail_tests::jails::{PROBE, private_dir};
use turnjail_tests::{archive, ordinary};

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// An image with the probe, which takes its acts from standard input.
pub const PROBES: &str = "turnjail-test-probe:1";

/// Puts the program by its other name where an ordinary user can reach it.
pub fn install() -> TempDir {
    let directory = tempfile::Builder::new().prefix("turnjail-bin-").tempdir_in("/tmp").unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let turnjail = directory.path().join("turnjail");
    fs::copy(env!("CARGO_BIN_EXE_turnjail"), &turnjail).unwrap();
    fs::set_permissions(&turnjail, fs::Permissions::from_mode(0o755)).unwrap();
    let path = directory.path().join("turnjail-docker");
    std::os::unix::fs::symlink("turnjail", &path).unwrap();
    PROGRAM.set(path).unwrap();
    directory
}

pub fn program() -> &'static Path {
    PROGRAM.get().unwrap()
}

/// What a finished command left.
#[derive(Debug)]
pub struct Run {
    /// The exit code, or 128 plus the signal that ended it.
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Run {
    pub fn of(output: &Output) -> Self {
        let signal = || output.status.signal().map(|signal| 128 + signal);
        Self {
            code: output.status.code().or_else(signal).unwrap(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Private directories: a home, one for what runs, and those of a turn.
pub struct Account {
    directory: TempDir,
}

impl Account {
    pub fn new() -> Self {
        let directory = private_dir();
        for name in ["home", "runtime", "run", "work"] {
            let path = directory.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
        }
        Self { directory }
    }

    /// With the probe's image in the store.
    pub fn with_probes() -> Self {
        let account = Self::new();
        let mut configuration = archive::configuration();
        configuration["config"] = json!({"Entrypoint": ["/worker", "-"]});
        let loaded = account.run(&["load"], &archive::image(PROBES, PROBE, configuration));
        assert_eq!(loaded.out, format!("Loaded image: {PROBES}\n"), "{loaded:?}");
        account
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The command with next to no environment, as drivers start it.
    pub fn command(&self, arguments: &[impl AsRef<str>]) -> Command {
        self.command_of(program(), arguments)
    }

    /// The same of another program.
    pub fn command_of(&self, program: &Path, arguments: &[impl AsRef<str>]) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments.iter().map(AsRef::as_ref))
            .env_clear()
            .env("HOME", self.path("home"))
            .env("XDG_RUNTIME_DIR", self.path("runtime"))
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub fn run(&self, arguments: &[impl AsRef<str>], input: &[u8]) -> Run {
        let mut child = self.command(arguments).spawn().unwrap();
        feed(&mut child, input);
        Run::of(&child.wait_with_output().unwrap())
    }

    /// The recorded arguments of a run with this account's directories, a name and an image.
    pub fn arguments(&self, name: &str, image: &str) -> Vec<String> {
        let cases: Value =
            serde_json::from_str(include_str!("../../../../tests/vectors/container_args.json"))
                .unwrap();
        let recorded = cases[0]["args"].as_array().unwrap().iter();
        let (uid, gid) = ordinary();
        let shown = |name: &str| self.path(name).display().to_string();
        let replaced = recorded.map(|word| match word.as_str().unwrap() {
            "sandbox-1" => name.to_owned(),
            "sandbox:1.0" => image.to_owned(),
            "1000:1000" => format!("{uid}:{gid}"),
            word => word
                .replace("/srv/run/turn-1", &shown("run"))
                .replace("/srv/work/abc", &shown("work")),
        });
        replaced.collect()
    }

    /// A jail of the probe that does these acts, as a process.
    pub fn start(&self, name: &str, acts: &Value) -> Child {
        let mut child = self.command(&self.arguments(name, PROBES)).spawn().unwrap();
        feed(&mut child, acts.to_string().as_bytes());
        child
    }
}

/// Writes standard input and closes it; one that refuses its arguments reads nothing.
pub fn feed(child: &mut Child, input: &[u8]) {
    let mut stdin = child.stdin.take().unwrap();
    let _ = stdin.write_all(input);
}

/// Waits for something to become true.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let started = std::time::Instant::now();
    while !holds() {
        assert!(started.elapsed() < std::time::Duration::from_secs(30), "never: {what}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}
