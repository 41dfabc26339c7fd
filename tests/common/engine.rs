//! A Docker engine of the tests' own: `dockerd` on a private socket, with private directories, without
//! any network.
//!
//! Only root can start it, so it is started before a test program becomes an ordinary user, who then
//! reaches it through the group of its socket. It ends, and its directories go, with the test program.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use nix::unistd::geteuid;
use turnjail_docker::DockerOptions;

use crate::account;

/// Names the socket of an engine to test with instead, `unix:///...`, which this user may use.
const OWN: &str = "TURNJAIL_TEST_DOCKER_HOST";
const READY_WITHIN: Duration = Duration::from_secs(60);

static ENGINE: OnceLock<Result<Engine, String>> = OnceLock::new();

/// A running engine.
#[derive(Debug)]
struct Engine {
    host: String,
    /// Kept for its standard input: its end is the engine's.
    _keeper: Option<Child>,
}

/// Waits for the end of its standard input, then ends the engine and removes what it had.
const KEEPER: &str = r#"
"$@" </dev/null >"$DIR/log" 2>&1 &
engine=$!
cat >/dev/null
kill "$engine"
wait "$engine"
rm -rf "$DIR"
"#;

/// Starts the engine, once. To be called while this is still root.
pub fn start() {
    ENGINE.get_or_init(|| match std::env::var(OWN) {
        Ok(host) => Ok(Engine { host, _keeper: None }),
        Err(_) => Engine::start(),
    });
}

/// Why there is none; none when there is one.
pub fn missing() -> Option<String> {
    match ENGINE.get() {
        None => Some("this test program starts none".to_owned()),
        Some(started) => started.as_ref().err().cloned(),
    }
}

/// How the engine is reached.
///
/// # Panics
/// When there is none: a test needs [`Fact::Docker`](crate::Fact::Docker) for it.
pub fn options() -> DockerOptions {
    let engine = ENGINE.get().and_then(|started| started.as_ref().ok()).expect("an engine");
    let mut options = DockerOptions::new();
    options.host = Some(engine.host.clone());
    options
}

/// Runs the client of the engine and gives back what it printed.
///
/// # Panics
/// When it fails.
pub fn docker(arguments: &[&str], input: &[u8]) -> String {
    try_docker(arguments, input).unwrap_or_else(|error| panic!("docker {arguments:?}: {error}"))
}

/// The same; what it wrote to standard error when it fails.
///
/// # Errors
/// When it fails.
///
/// # Panics
/// When it cannot be run.
pub fn try_docker(arguments: &[&str], input: &[u8]) -> Result<String, String> {
    let options = options();
    let mut child = Command::new(&options.program)
        .args(arguments)
        .env("DOCKER_HOST", options.host.expect("a host"))
        .env("DOCKER_CONFIG", "/nonexistent")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the client");
    let mut stdin = child.stdin.take().expect("a pipe");
    // One that refuses its arguments reads nothing.
    let _ = std::io::Write::write_all(&mut stdin, input);
    drop(stdin);
    let output = child.wait_with_output().expect("an end");
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(String::from_utf8(output.stdout).expect("text"))
}

impl Engine {
    fn start() -> Result<Self, String> {
        let program = ["/usr/sbin/dockerd", "/usr/bin/dockerd", "/usr/local/bin/dockerd"]
            .into_iter()
            .find(|path| Path::new(path).exists())
            .ok_or("dockerd is not installed")?;
        if !geteuid().is_root() {
            return Err(format!("only root can start dockerd, and {OWN} names no other engine"));
        }
        let directory = private().map_err(|error| format!("no directory for dockerd: {error}"))?;
        let at = |name: &str| directory.join(name).display().to_string();
        let host = format!("unix://{}", at("docker.sock"));
        let (_, group) = account::ordinary();
        let keeper = Command::new("/bin/sh")
            .args(["-c", KEEPER, "keeper", program, "--iptables=false", "--bridge=none"])
            .args(["--host", &host, "--group", &group.to_string()])
            .args(["--data-root", &at("data"), "--exec-root", &at("exec")])
            .args(["--pidfile", &at("pid"), "--config-file", &at("daemon.json")])
            .env("DIR", &directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("no shell: {error}"))?;
        let engine = Self { host, _keeper: Some(keeper) };
        engine.wait(&directory).map(|()| engine)
    }

    /// Waits until it answers.
    fn wait(&self, directory: &Path) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            let answer = Command::new("docker")
                .args(["--host", &self.host, "version"])
                .stdin(Stdio::null())
                .output()
                .map_err(|error| format!("docker cannot be started: {error}"))?;
            if answer.status.success() {
                return Ok(());
            }
            if begun.elapsed() > READY_WITHIN {
                let log = fs::read_to_string(directory.join("log")).unwrap_or_default();
                let last = log.lines().last().unwrap_or("it has logged nothing").to_owned();
                return Err(format!("dockerd does not answer: {last}"));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// A directory that others may pass through, to the socket.
fn private() -> std::io::Result<PathBuf> {
    let directory = tempfile::Builder::new().prefix("turnjail-docker-").tempdir_in("/tmp")?.keep();
    fs::set_permissions(&directory, Permissions::from_mode(0o711))?;
    fs::write(directory.join("daemon.json"), "{}")?;
    Ok(directory)
}
