//! The contenders: the bare floor, turnjail's jail, and bubblewrap where it is installed.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use turnjail_driver::{ExitReason, Limits};
use turnjail_jail::client::{Client, ClientOptions};
use turnjail_jail::{Attempt, Isolation, JailSpec, Mount, Target, run};

use crate::Contender;

static FLOOR: &[u8] = include_bytes!(env!("TURNJAIL_FLOOR"));
static NOOP: &[u8] = include_bytes!(env!("TURNJAIL_NOOP"));

/// A program that says `hi` and ends, static, of one C library or another. Its start is part of what is
/// measured: glibc asks the processor for its features with an instruction that a virtual machine has to
/// answer, 68 times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Noop {
    /// With the system's static C library, as the floor is defined.
    System,
    /// With the C library of turnjail's static programs.
    Musl,
}

impl Noop {
    /// Those that could be built here.
    pub fn all() -> Vec<Self> {
        [Self::System, Self::Musl].into_iter().filter(|noop| !noop.program().is_empty()).collect()
    }

    /// Its name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::System => "static no-op of the system's C library",
            Self::Musl => "static no-op of musl",
        }
    }

    fn program(self) -> &'static [u8] {
        match self {
            Self::System => NOOP,
            Self::Musl => FLOOR,
        }
    }
}

/// The directories that every contender mounts, and the program that it starts.
#[derive(Debug, Clone)]
pub struct Place {
    directory: PathBuf,
}

impl Place {
    /// Lays out the directories below `directory`, with `noop` to be started.
    pub fn new(directory: &Path, noop: Noop) -> Self {
        make_dir(directory);
        for name in ["root", "workspace", "run"] {
            make_dir(&directory.join(name));
        }
        let root = directory.join("root");
        for name in ["broker", "channel", "dev", "proc", "tmp", "workspace"] {
            make_dir(&root.join(name));
        }
        make_program(&root.join("worker"), noop.program());
        make_program(&root.join("measure"), FLOOR);
        make_program(&directory.join("measure"), FLOOR);
        Self { directory: directory.to_owned() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

fn make_program(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).expect("a program");
    fs::set_permissions(path, fs::Permissions::from_mode(0o555)).expect("chmod");
}

fn make_dir(path: &Path) {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).expect("a directory");
}

/// The floor: what the kernel alone asks for, measured by a small static program.
pub struct Floor {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Floor {
    /// Starts the measuring program.
    pub fn new(place: &Place) -> Self {
        let program = place.path("root/worker");
        let mut child = Command::new(place.path("measure"))
            .arg(&program)
            .arg(place.path("floor"))
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the floor");
        let requests = child.stdin.take().expect("its input");
        let answers = BufReader::new(child.stdout.take().expect("its output"));
        Self { child, requests, answers }
    }
}

impl Contender for Floor {
    fn name(&self) -> &'static str {
        "floor"
    }

    fn start(&mut self) -> Duration {
        self.requests.write_all(b"\n").expect("a request");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("an answer");
        Duration::from_nanos(answer.trim().parse().expect("nanoseconds"))
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What is measured of a jail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// From the request until nothing of it is left, as the host sees it.
    Reaped,
    /// From the request until the instant at which the program would be executed: the jail, complete, tells
    /// the time in its place.
    Exec,
    /// From the request until the host knows that the program has been executed.
    Executed,
    /// From the cancellation of a program that would run for ever until nothing of it is left.
    Cancelled,
}

/// A sealed jail.
pub struct Jail {
    name: &'static str,
    runtime: Runtime,
    client: Client,
    spec: JailSpec,
    until: Until,
    starts: u32,
    prepared: u32,
}

impl Jail {
    /// Starts a warden that keeps `pool` jails prepared.
    pub fn new(name: &'static str, place: &Place, pool: u16, until: Until) -> Self {
        // One thread: with more, half of what is measured is one waking another.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let client = runtime
            .block_on(Client::start_with(ClientOptions { pool, ..ClientOptions::default() }));
        let client = client.expect("a warden");
        let (program, word) = match until {
            Until::Cancelled => ("/measure", "spin"),
            Until::Reaped | Until::Exec | Until::Executed => ("/worker", "noop"),
        };
        let spec = JailSpec {
            rootfs: place.path("root"),
            command: vec![program.to_owned(), word.to_owned()],
            environment: Vec::new(),
            working_dir: String::new(),
            mounts: vec![
                Mount { source: place.path("workspace"), target: Target::Workspace },
                Mount { source: place.path("run"), target: Target::Broker },
            ],
            isolation: Isolation::SEALED,
            limits: Limits::default(),
            bounds: None,
            landlock: true,
            attempt: (until == Until::Exec).then_some(Attempt::Clock),
        };
        Self { name, runtime, client, spec, until, starts: 0, prepared: 0 }
    }
}

impl Contender for Jail {
    fn remark(&self) -> Option<String> {
        Some(format!("{}: {} of {} from the pool", self.name, self.prepared, self.starts))
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn start(&mut self) -> Duration {
        let cancel = CancellationToken::new();
        let (start, clock) = (Instant::now(), monotonic());
        let mut executed = Duration::ZERO;
        let started = || {
            executed = start.elapsed();
            if self.until == Until::Cancelled {
                cancel.cancel();
            }
        };
        let ended = self.runtime.block_on(run(&self.client, &self.spec, b"", &cancel, started));
        let reaped = start.elapsed();
        let ended = ended.expect("a jail");
        let reason = match self.until {
            Until::Cancelled => ExitReason::Cancelled,
            Until::Reaped | Until::Exec | Until::Executed => ExitReason::Ok,
        };
        assert_eq!(ended.reason, reason);
        self.starts += 1;
        self.prepared += u32::from(ended.timing.prepared);
        let stdout = &ended.stdout[..];
        if self.until == Until::Exec {
            let told = u64::from_ne_bytes(stdout.try_into().expect("8 bytes"));
            return Duration::from_nanos(told).saturating_sub(clock);
        }
        let said = if self.until == Until::Cancelled { &b""[..] } else { b"hi\n" };
        assert_eq!(stdout, said);
        match self.until {
            Until::Reaped => reaped,
            Until::Exec | Until::Executed => executed,
            Until::Cancelled => reaped.saturating_sub(executed),
        }
    }
}

/// The clock by which a jail tells the time.
fn monotonic() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Bubblewrap doing the same mounts, without filters.
pub struct Bubblewrap {
    place: Place,
}

impl Bubblewrap {
    /// None where it is not installed.
    pub fn new(place: &Place) -> Option<Self> {
        let works =
            Command::new("bwrap").arg("--version").output().is_ok_and(|o| o.status.success());
        works.then(|| Self { place: place.clone() })
    }
}

impl Contender for Bubblewrap {
    fn name(&self) -> &'static str {
        "bubblewrap"
    }

    fn start(&mut self) -> Duration {
        let start = Instant::now();
        let output = Command::new("bwrap")
            .args(["--unshare-all", "--die-with-parent", "--ro-bind"])
            .arg(self.place.path("root"))
            .arg("/")
            .arg("--bind")
            .arg(self.place.path("workspace"))
            .arg("/workspace")
            .arg("--ro-bind")
            .arg(self.place.path("run"))
            .args(["/broker", "--tmpfs", "/tmp", "/worker", "noop"])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .output()
            .expect("bubblewrap");
        let time = start.elapsed();
        assert_eq!(output.stdout, b"hi\n", "{}", String::from_utf8_lossy(&output.stderr));
        time
    }
}
