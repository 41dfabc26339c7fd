//! A driver whose workers do what the test says.

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use turnjail_driver::{
    ContainerDriver, ContainerSpec, DriverError, ExitReason, ImageProtocol, Outcome, Progress,
    Receipt, Timing, Usage,
};
use turnjail_protocol::{Reply, Turn};

/// How a scripted worker ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// A reply with `ok`.
    Ok,
    /// A reply without.
    NotOk,
    /// The worker fails.
    Fail,
    /// The sealed place cannot be made.
    Start,
    /// The driver has a defect.
    Panic,
    /// Something of the run is left.
    Cleanup,
    /// The worker was over its memory.
    Memory,
}

impl Verdict {
    /// What a turn's text must be for a worker that ends so at once.
    pub fn text(self) -> String {
        format!("auto:{self:?}")
    }

    fn of_text(text: &str) -> Option<Self> {
        [Self::Ok, Self::NotOk, Self::Fail, Self::Start, Self::Panic, Self::Cleanup, Self::Memory]
            .into_iter()
            .find(|verdict| verdict.text() == text)
    }
}

/// One run as the driver saw it.
#[derive(Debug, Clone)]
pub struct Run {
    pub spec: ContainerSpec,
    pub turn: Turn,
    pub json: String,
}

/// A driver whose workers do what their turn's text says: `auto:<verdict>` ends at once, `deaf` never
/// ends and ignores that it is cancelled, `late` answers when it is cancelled, and any other text waits
/// for [`Scripted::finish`].
#[derive(Debug)]
pub struct Scripted {
    pub protocol: ImageProtocol,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    runs: Vec<Run>,
    held: HashMap<String, oneshot::Sender<Verdict>>,
    directories: HashSet<PathBuf>,
    violations: Vec<String>,
}

impl Scripted {
    pub fn new() -> Arc<Self> {
        Self::of_protocol(ImageProtocol::Version(2))
    }

    pub fn of_protocol(protocol: ImageProtocol) -> Arc<Self> {
        Arc::new(Self { protocol, state: Mutex::default() })
    }

    /// Every run so far, in order of start.
    pub fn runs(&self) -> Vec<Run> {
        self.state.lock().unwrap().runs.clone()
    }

    /// The texts of every run so far, in order of start.
    pub fn texts(&self) -> Vec<String> {
        self.runs().into_iter().map(|run| run.turn.text).collect()
    }

    /// How many workers run now.
    pub fn running(&self) -> usize {
        self.state.lock().unwrap().directories.len()
    }

    /// Has the worker of the turn with this text end. False when it does not run.
    pub fn finish(&self, text: &str, verdict: Verdict) -> bool {
        let held = self.state.lock().unwrap().held.remove(text);
        held.is_some_and(|held| held.send(verdict).is_ok())
    }

    /// Fails if two workers ever had one directory at once, or a worker found something amiss.
    pub fn assert_orderly(&self) {
        let violations = self.state.lock().unwrap().violations.clone();
        assert!(violations.is_empty(), "{violations:#?}");
    }

    fn begin(&self, spec: &ContainerSpec, json: &[u8]) -> (Turn, Running<'_>) {
        let mut problems = Vec::new();
        if let Err(error) = spec.check() {
            problems.push(format!("bad specification: {error}"));
        }
        let socket = spec.run_dir.join("broker.sock");
        match std::fs::symlink_metadata(&socket) {
            Ok(found)
                if found.file_type().is_socket() && found.permissions().mode() & 0o777 == 0o600 => {
            }
            found => problems.push(format!("the broker's socket: {found:?}")),
        }
        let turn = Turn::parse(json).expect("a valid turn");
        let directories: Vec<PathBuf> =
            std::iter::once(&spec.workspace_dir).chain(&spec.channel_dir).cloned().collect();
        for directory in &directories {
            let private = std::fs::metadata(directory)
                .is_ok_and(|found| found.is_dir() && found.permissions().mode() & 0o777 == 0o700);
            if !private {
                problems.push(format!("{directory:?} is no private directory"));
            }
        }
        let mut state = self.state.lock().unwrap();
        // One entry for a run: its workspace.
        if !state.directories.insert(spec.workspace_dir.clone()) {
            problems.push(format!("two runs in {:?}", spec.workspace_dir));
        }
        state.violations.extend(problems);
        let json = String::from_utf8(json.to_vec()).unwrap();
        state.runs.push(Run { spec: spec.clone(), turn: turn.clone(), json });
        (turn, Running { driver: self, workspace: spec.workspace_dir.clone() })
    }

    fn hold(&self, text: &str) -> oneshot::Receiver<Verdict> {
        let (sender, receiver) = oneshot::channel();
        self.state.lock().unwrap().held.insert(text.to_owned(), sender);
        receiver
    }
}

/// A worker that runs; dropping it is its end.
struct Running<'a> {
    driver: &'a Scripted,
    workspace: PathBuf,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.driver.state.lock().unwrap().directories.remove(&self.workspace);
    }
}

#[async_trait]
impl ContainerDriver for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }

    async fn run(
        &self,
        spec: &ContainerSpec,
        turn: &[u8],
        cancel: &CancellationToken,
        progress: &dyn Progress,
    ) -> Result<Outcome, DriverError> {
        let (turn, _running) = self.begin(spec, turn);
        progress.started();
        let text = turn.text.as_str();
        if text == "deaf" {
            std::future::pending::<()>().await;
        }
        let verdict = match Verdict::of_text(text) {
            Some(verdict) => verdict,
            None if text == "late" => {
                cancel.cancelled().await;
                Verdict::Ok
            }
            None => {
                let held = self.hold(text);
                tokio::select! {
                    biased;
                    () = cancel.cancelled() => {
                        progress.ended(&receipt(spec, ExitReason::Cancelled));
                        return Err(DriverError::Cancelled);
                    }
                    verdict = held => verdict.expect("the test says how the worker ends"),
                }
            }
        };
        outcome(spec, text, verdict)
    }

    async fn image_protocol(&self, _image: &str) -> Result<ImageProtocol, DriverError> {
        Ok(self.protocol)
    }

    async fn verify(&self, image: &str) -> Result<(), DriverError> {
        if image == "absent" {
            return Err(DriverError::Image {
                cause: "image absent is not in the store".to_owned(),
                remedy: "import it".to_owned(),
            });
        }
        Ok(())
    }
}

fn outcome(spec: &ContainerSpec, text: &str, verdict: Verdict) -> Result<Outcome, DriverError> {
    let failed = |reason, cause: &str, worker_code: Option<&str>| DriverError::Worker {
        reason,
        cause: cause.to_owned(),
        worker_code: worker_code.map(str::to_owned),
        receipt: Box::new(receipt(spec, reason)),
    };
    match verdict {
        Verdict::Ok | Verdict::NotOk => Ok(Outcome {
            reply: Reply { ok: verdict == Verdict::Ok, text: format!("re: {text}") },
            receipt: receipt(spec, ExitReason::Ok),
        }),
        Verdict::Fail => {
            Err(failed(ExitReason::WorkerFailed, "the worker failed", Some("model_refused")))
        }
        Verdict::Memory => Err(failed(ExitReason::Memory, "the worker was over 512 MiB", None)),
        Verdict::Start => Err(DriverError::Start {
            code: "userns-disabled",
            cause: "user namespaces are off".to_owned(),
            remedy: Some("turn them on".to_owned()),
        }),
        Verdict::Cleanup => Err(DriverError::Cleanup {
            cause: "a cgroup is left".to_owned(),
            remedy: "remove it".to_owned(),
        }),
        Verdict::Panic => panic!("a defect of the driver, on purpose"),
    }
}

fn receipt(spec: &ContainerSpec, exit: ExitReason) -> Receipt {
    Receipt {
        driver: "scripted",
        image: spec.image.clone(),
        image_digest: None,
        profile: None,
        loopback: None,
        walls: Vec::new(),
        limits: Vec::new(),
        exit,
        timing: Timing::default(),
        usage: Usage::default(),
    }
}
