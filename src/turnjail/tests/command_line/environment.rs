//! A user's account in a directory: a home, a configuration, and the program run in it.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use nix::unistd::geteuid;
use serde_json::Value;
use tempfile::TempDir;

/// The key that every configuration of these tests uses; no output may ever hold it.
pub const KEY: &str = "sk-test-4f0c2a9be1d75386";

/// What a test needs of the machine.
#[derive(Debug, Clone, Copy)]
pub enum Fact {
    /// Jails can be made.
    Jail,
    /// The tests run as root.
    Root,
    /// The programs unshare and setpriv (util-linux), and leave to make namespaces by them.
    Unshare,
    /// The program bwrap, and leave to make its namespaces.
    Bubblewrap,
}

impl Fact {
    /// The word for it in `TURNJAIL_REQUIRE`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Jail => "jail",
            Self::Root => "root",
            Self::Unshare => "unshare",
            Self::Bubblewrap => "bubblewrap",
        }
    }

    /// Whether a skip for it is a failure.
    pub fn required(self) -> bool {
        std::env::var("TURNJAIL_REQUIRE")
            .is_ok_and(|list| list.split(',').any(|word| word.trim() == self.name()))
    }

    /// Why the machine does not have it; none when it does.
    pub fn missing(self) -> Option<String> {
        static JAIL: OnceLock<Option<String>> = OnceLock::new();
        match self {
            Self::Root => (!geteuid().is_root()).then(|| "the tests do not run as root".to_owned()),
            Self::Jail => JAIL
                .get_or_init(|| {
                    let run = Account::new().run(&["doctor"]);
                    (run.code != 0).then(|| format!("turnjail doctor says: {}{}", run.out, run.err))
                })
                .clone(),
            Self::Unshare => {
                failing("unshare", &["--user", "--map-current-user", "setpriv", "true"])
            }
            Self::Bubblewrap => {
                failing("bwrap", &["--unshare-all", "--ro-bind", "/", "/", "/bin/true"])
            }
        }
    }
}

/// Why a program cannot do this for an ordinary user; none when it can.
fn failing(program: &str, arguments: &[&str]) -> Option<String> {
    let account = Account::new();
    match account.command_of_user(Path::new(program), arguments).output() {
        Err(error) => Some(format!("{program} cannot be started: {error}")),
        Ok(output) if !output.status.success() => {
            Some(format!("{program} fails: {}", String::from_utf8_lossy(&output.stderr).trim()))
        }
        Ok(_) => None,
    }
}

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Puts the program at a place that an ordinary user can reach, for as long as the answer lives. Built
/// under a private directory it would not be; that it works from one even so is a test of its own.
pub fn install() -> TempDir {
    let directory = tempfile::Builder::new().prefix("turnjail-bin-").tempdir_in("/tmp").unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let path = directory.path().join("turnjail");
    fs::copy(env!("CARGO_BIN_EXE_turnjail"), &path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    PROGRAM.set(path).unwrap();
    directory
}

/// Where the program is.
pub fn program() -> &'static Path {
    PROGRAM.get().unwrap()
}

/// The ids that commands run with: this user's, or those of an ordinary one when this is root.
pub fn ids() -> (u32, u32) {
    if geteuid().is_root() {
        return (1000, 1000);
    }
    (geteuid().as_raw(), nix::unistd::getegid().as_raw())
}

/// Where a program runs and what it is told by its environment.
pub struct Account {
    home: TempDir,
}

/// What a finished program left.
#[derive(Debug)]
pub struct Run {
    /// The exit code, or 128 plus the signal that ended it.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Account {
    /// A home with nothing in it.
    pub fn new() -> Self {
        let home = tempfile::Builder::new().prefix("turnjail-cli-").tempdir_in("/tmp").unwrap();
        let account = Self { home };
        for directory in ["", "run", "tmp", ".config", ".config/turnjail"] {
            Self::own(&account.path(directory), directory);
        }
        account
    }

    fn own(path: &Path, name: &str) {
        if !name.is_empty() {
            fs::create_dir(path).unwrap();
        }
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
        if geteuid().is_root() {
            let (uid, gid) = ids();
            chown(path, Some(uid), Some(gid)).unwrap();
        }
    }

    /// A path in the home.
    pub fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Writes the configuration.
    pub fn configure(&self, text: &str) -> &Self {
        fs::write(self.path(".config/turnjail/turnjail.toml"), text).unwrap();
        fs::set_permissions(
            self.path(".config/turnjail/turnjail.toml"),
            fs::Permissions::from_mode(0o644),
        )
        .unwrap();
        self
    }

    /// Writes a configuration that asks the model at `url`, with more text after it.
    pub fn ask(&self, url: &str, more: &str) -> &Self {
        self.configure(&format!(
            "[model]\nname = \"test-model\"\nurl = \"{url}\"\napi_key = {{ env = \"TEST_KEY\" }}\n\
             allow_http = true\nretries = 0\n{more}"
        ))
    }

    /// The program with arguments, as an ordinary user, told nothing of this process's environment.
    pub fn command(&self, arguments: &[&str]) -> Command {
        self.command_of_user(program(), arguments)
    }

    /// Any program, likewise.
    pub fn command_of_user(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = self.command_as_is(program, arguments);
        if geteuid().is_root() {
            let (uid, gid) = ids();
            command.uid(uid).gid(gid);
        }
        command
    }

    /// The same as whoever runs the tests, from any place.
    pub fn command_as_is(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.home.path())
            .env("XDG_RUNTIME_DIR", self.path("run"))
            .env("TMPDIR", self.path("tmp"))
            .env("TEST_KEY", KEY)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs the program to its end.
    pub fn run(&self, arguments: &[&str]) -> Run {
        finish(self.command(arguments))
    }

    /// What is in the directory of run directories.
    pub fn run_directories(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path("run/turnjail")) else { return Vec::new() };
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("turn-")).collect()
    }
}

/// Runs a command to its end.
pub fn finish(mut command: Command) -> Run {
    Run::of(command.output().unwrap())
}

impl Run {
    /// What is known of a finished process.
    pub fn of(output: Output) -> Self {
        use std::os::unix::process::ExitStatusExt;
        let code =
            output.status.code().or_else(|| output.status.signal().map(|signal| 128 + signal));
        let run = Self {
            code: code.unwrap(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        };
        assert!(!run.out.contains(KEY) && !run.err.contains(KEY), "the key was printed: {run:?}");
        run
    }

    /// Standard output as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Asserts a failure of one problem: the exit code, and in the two last lines a cause and a remedy.
    pub fn assert_refused(&self, code: i32, cause: &str) {
        assert_eq!(self.code, code, "{self:?}");
        let lines: Vec<_> = self.err.lines().collect();
        let [.., error, remedy] = lines[..] else { panic!("{self:?}") };
        assert!(error.starts_with("error: ") && error.contains(cause), "{self:?}");
        assert!(remedy.starts_with("remedy: ") && remedy.len() > "remedy: ".len(), "{self:?}");
    }
}

/// Waits for something to become true.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(20), "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A terminal: the end that reads what is shown, and the end for a program.
pub fn terminal() -> (OwnedFd, OwnedFd) {
    let terminal = nix::pty::openpty(None, None).unwrap();
    (terminal.master, terminal.slave)
}

/// What was shown on a terminal that no program holds any more.
pub fn read_terminal(terminal: &OwnedFd) -> String {
    let mut shown = Vec::new();
    let mut part = [0; 4096];
    // The end of a terminal is an error.
    while let Ok(length @ 1..) = nix::unistd::read(terminal, &mut part) {
        shown.extend_from_slice(&part[..length]);
    }
    String::from_utf8(shown).unwrap().replace('\r', "")
}
