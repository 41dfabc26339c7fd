//! The driver: a specification in, `bwrap` arguments out, and one reply back.

use std::ffi::OsString;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;
use turnjail_driver::{
    ContainerDriver, ContainerSpec, DriverError, ExitReason, ImageProtocol, Limit, Outcome,
    Progress, Receipt, Timing, Usage, Wall, WallState,
};
use turnjail_images::{Image, ImageError, ImageStore};
use turnjail_protocol::limits::{STDERR_BYTES, STDOUT_BYTES};
use turnjail_protocol::{BROKER_DIR, CHANNEL_PATH, Reply, WORKSPACE_PATH, WorkerCode};

/// Runs workers with `bwrap`.
#[derive(Debug)]
pub struct BubblewrapDriver {
    images: ImageStore,
}

impl BubblewrapDriver {
    /// A driver for the images in a store.
    pub fn new(images: &Path) -> Result<Self, ImageError> {
        Ok(Self { images: ImageStore::open(images)? })
    }

    fn image(&self, reference: &str) -> Result<Image, DriverError> {
        self.images.resolve(reference).map_err(|error| DriverError::Image {
            remedy: error.remedy(),
            cause: error.to_string(),
        })
    }
}

#[async_trait]
impl ContainerDriver for BubblewrapDriver {
    fn name(&self) -> &'static str {
        "bubblewrap"
    }

    async fn run(
        &self,
        spec: &ContainerSpec,
        turn: &[u8],
        cancel: &CancellationToken,
        progress: &dyn Progress,
    ) -> Result<Outcome, DriverError> {
        // The same checks in every driver, before anything is started.
        spec.check()?;
        let image = self.image(&spec.image)?;
        if cancel.is_cancelled() {
            return Err(DriverError::Cancelled);
        }
        let begun = Instant::now();
        let mut child = start(spec, &image)?;
        progress.started();
        let start = begun.elapsed();
        let ended = tokio::select! {
            ended = Ended::of(&mut child, turn) => ended,
            () = cancel.cancelled() => {
                // The namespaces' first process goes with bwrap, and everything in them with that.
                let _ = child.kill().await;
                return Err(DriverError::Cancelled);
            }
        };
        let ended =
            ended.map_err(|error| not_started(&format!("bwrap cannot be served: {error}")))?;
        ended.outcome(self.name(), spec, &image, [start, begun.elapsed().saturating_sub(start)])
    }

    async fn image_protocol(&self, image: &str) -> Result<ImageProtocol, DriverError> {
        let version = self.image(image)?.config.protocol();
        Ok(version.map_or(ImageProtocol::Unlabelled, ImageProtocol::Version))
    }

    async fn verify(&self, image: &str) -> Result<(), DriverError> {
        self.image(image).map(drop)
    }
}

fn start(spec: &ContainerSpec, image: &Image) -> Result<Child, DriverError> {
    Command::new("bwrap")
        .args(arguments(spec, image))
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Dropping the run kills it as cancelling does.
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| not_started(&format!("bwrap cannot be started: {error}")))
}

fn arguments(spec: &ContainerSpec, image: &Image) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = Vec::new();
    let mut add = |words: &[&dyn AsRef<std::ffi::OsStr>]| {
        arguments.extend(words.iter().map(|word| word.as_ref().to_owned()));
    };
    add(&[&"--unshare-all", &"--die-with-parent", &"--new-session", &"--cap-drop", &"ALL"]);
    add(&[&"--uid", &spec.uid.to_string(), &"--gid", &spec.gid.to_string()]);
    add(&[&"--hostname", &"sandbox", &"--clearenv", &"--setenv", &"HOME", &"/tmp/home"]);
    add(&[&"--ro-bind", &image.rootfs, &"/", &"--tmpfs", &"/tmp", &"--dir", &"/tmp/home"]);
    add(&[&"--ro-bind", &spec.run_dir, &BROKER_DIR]);
    add(&[&"--bind", &spec.workspace_dir, &WORKSPACE_PATH]);
    if let Some(channel) = &spec.channel_dir {
        add(&[&"--bind", channel, &CHANNEL_PATH]);
    }
    add(&[&"--chdir", &"/", &"--"]);
    arguments.extend(image.config.entrypoint.iter().chain(&image.config.cmd).map(Into::into));
    arguments
}

/// A worker that ran to its end by itself.
struct Ended {
    status: ExitStatus,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Ended {
    /// Feeds and reads it at the same time, so that no pipe blocks another.
    async fn of(child: &mut Child, turn: &[u8]) -> std::io::Result<Self> {
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let feed = async {
            if let Some(mut stdin) = stdin {
                // A worker may end without reading everything.
                let _ = stdin.write_all(turn).await;
            }
        };
        let ((), stdout, stderr) =
            tokio::join!(feed, bounded(stdout, STDOUT_BYTES), bounded(stderr, STDERR_BYTES));
        let (stdout, stderr) = (stdout?, stderr?);
        if is_over(&stdout, &stderr) {
            child.start_kill()?;
        }
        Ok(Self { status: child.wait().await?, stdout, stderr })
    }

    fn outcome(
        self,
        driver: &'static str,
        spec: &ContainerSpec,
        image: &Image,
        [start, run]: [Duration; 2],
    ) -> Result<Outcome, DriverError> {
        let over = is_over(&self.stdout, &self.stderr);
        let (reason, cause) = match Reply::parse(&self.stdout) {
            _ if over => (ExitReason::Output, "the worker wrote more than is read".to_owned()),
            _ if !self.status.success() => {
                (ExitReason::WorkerFailed, format!("the worker ended with {}", self.status))
            }
            Ok(reply) => {
                let receipt = receipt(driver, spec, image, ExitReason::Ok, [start, run]);
                return Ok(Outcome { reply, receipt });
            }
            Err(invalid) => {
                (ExitReason::WorkerFailed, format!("the worker ended well but {invalid}"))
            }
        };
        let code = WorkerCode::from_stderr(&self.stderr).map(|code| code.as_str().to_owned());
        let receipt = Box::new(receipt(driver, spec, image, reason, [start, run]));
        Err(DriverError::Worker { reason, cause, worker_code: code, receipt })
    }
}

fn is_over(stdout: &[u8], stderr: &[u8]) -> bool {
    stdout.len() > STDOUT_BYTES || stderr.len() > STDERR_BYTES
}

/// At most `limit` bytes and one more, which tells that there were more.
async fn bounded(stream: Option<impl AsyncRead + Unpin>, limit: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        stream.take(limit as u64 + 1).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

/// What was in force. A receipt says what is missing too: bubblewrap sets no filters and no limits.
fn receipt(
    driver: &'static str,
    spec: &ContainerSpec,
    image: &Image,
    exit: ExitReason,
    [start, run]: [Duration; 2],
) -> Receipt {
    let enforced = |name, by: &str| Wall { name, state: WallState::Enforced, by: by.to_owned() };
    let absent = |name| Wall { name, state: WallState::Absent, by: String::new() };
    let unlimited = |name, asked| Limit { name, asked, by: None };
    Receipt {
        driver,
        image: spec.image.clone(),
        image_digest: Some(image.digest.clone()),
        profile: None,
        loopback: None,
        walls: vec![
            enforced("users", "user namespace"),
            enforced("files", "mount namespace, read-only root"),
            enforced("network", "empty network namespace"),
            enforced("processes", "process namespace"),
            absent("system calls"),
        ],
        limits: vec![
            unlimited("memory", format!("{} MiB", spec.limits.memory_mb)),
            unlimited("cpus", spec.limits.cpus.to_string()),
            unlimited("processes", spec.limits.pids.to_string()),
        ],
        exit,
        timing: Timing { start_us: micros(start), run_us: micros(run), prepared: false },
        usage: Usage::default(),
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn not_started(cause: &str) -> DriverError {
    DriverError::Start {
        code: "bubblewrap",
        cause: cause.to_owned(),
        remedy: Some("install bubblewrap".to_owned()),
    }
}
