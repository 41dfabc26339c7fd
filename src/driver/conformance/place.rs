//! The directories of one case, and runs in them.

use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use turnjail_protocol::{Speaker, Turn};

use super::model::{Answer, Model};
use super::{Fault, Setting};
use crate::{ContainerDriver, ContainerSpec, DriverError, Limits, Outcome, Progress};

/// How long a run may take that should end at once; generous, for slow machines.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a run may take to end once it was told.
pub(super) const PROMPT: Duration = Duration::from_secs(5);

/// One case's own directory.
pub(super) struct Place {
    directory: TempDir,
    image: String,
    ids: (u32, u32),
    made: AtomicUsize,
}

impl Place {
    pub fn new(setting: &Setting) -> Result<Self, Fault> {
        let failed =
            |error| Fault::new(format!("the suite cannot use {:?}: {error}", setting.directory));
        let directory =
            tempfile::Builder::new().prefix("c-").tempdir_in(&setting.directory).map_err(failed)?;
        let owner = std::fs::metadata(directory.path()).map_err(failed)?;
        Ok(Self {
            directory,
            image: setting.image.clone(),
            ids: setting.ids.unwrap_or((owner.uid(), owner.gid())),
            made: AtomicUsize::new(0),
        })
    }

    /// A fresh private directory.
    pub fn directory(&self) -> Result<PathBuf, Fault> {
        let path = self.directory.path().join(self.next().to_string());
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(|error| Fault::new(format!("the suite cannot make {path:?}: {error}")))?;
        Ok(path)
    }

    /// A specification with directories of its own.
    pub fn spec(&self) -> Result<ContainerSpec, Fault> {
        // Unique in the process, as a host's are: what cleans up after a dropped run goes by the name.
        static NAMES: AtomicUsize = AtomicUsize::new(0);
        let number = NAMES.fetch_add(1, Ordering::Relaxed);
        Ok(ContainerSpec {
            name: format!("roundtable-sandbox-c0f0{:012x}-{number:08x}", std::process::id()),
            image: self.image.clone(),
            run_dir: self.directory()?,
            workspace_dir: self.directory()?,
            channel_dir: None,
            uid: self.ids.0,
            gid: self.ids.1,
            limits: Limits::default(),
        })
    }

    fn next(&self) -> usize {
        self.made.fetch_add(1, Ordering::Relaxed)
    }
}

/// A turn that says this.
pub(super) fn turn(text: &str) -> Turn {
    Turn {
        text: text.to_owned(),
        speaker: Speaker::new("ann", "Ann"),
        model: "model".to_owned(),
        prompt: "Answer.".to_owned(),
        time_zone: "UTC".to_owned(),
        reset: false,
        tools: Vec::new(),
        mcp: Vec::new(),
        budgets: None,
        channel_history: false,
        files: None,
    }
}

/// The model of a specification's run.
pub(super) fn model(spec: &ContainerSpec, script: Vec<Answer>) -> Result<Model, Fault> {
    Model::serve(&spec.run_dir.join("broker.sock"), script)
}

pub(super) fn says(text: &str) -> Answer {
    Answer::Says(text.to_owned())
}

/// How often a run said that its worker was started.
#[derive(Debug, Default)]
pub(super) struct Started(AtomicUsize);

impl Started {
    pub fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Progress for Started {
    fn started(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Runs to the end.
pub(super) async fn run(
    driver: &Arc<dyn ContainerDriver>,
    spec: &ContainerSpec,
    json: &str,
) -> Result<Result<Outcome, DriverError>, Fault> {
    let cancel = CancellationToken::new();
    within(PATIENCE, "run", driver.run(spec, json.as_bytes(), &cancel, &())).await
}

/// Runs to the end, which must be an answer.
pub(super) async fn answered(
    driver: &Arc<dyn ContainerDriver>,
    spec: &ContainerSpec,
    turn: &Turn,
) -> Result<Outcome, Fault> {
    run(driver, spec, &turn.to_json())
        .await?
        .map_err(|error| Fault::new(format!("an ordinary turn failed: {error}")))
}

/// Waits for what must happen soon.
pub(super) async fn within<T>(
    limit: Duration,
    what: &str,
    happens: impl Future<Output = T>,
) -> Result<T, Fault> {
    timeout(limit, happens)
        .await
        .map_err(|_| Fault::new(format!("{what}: not within {} s", limit.as_secs())))
}

/// The names in a directory, sorted.
pub(super) fn names(directory: &Path) -> Result<Vec<String>, Fault> {
    let failed = |error| Fault::new(format!("{directory:?} cannot be listed: {error}"));
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        names.push(entry.map_err(failed)?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// A fault unless this holds.
pub(super) fn demand(holds: bool, fault: impl FnOnce() -> String) -> Result<(), Fault> {
    if holds { Ok(()) } else { Err(Fault::new(fault())) }
}

/// Cancels a run whose worker waits for the model. Tells how it ended, and how long that took.
pub(super) async fn cancelled_while_it_asks(
    driver: &Arc<dyn ContainerDriver>,
    spec: &ContainerSpec,
    model: &Model,
) -> Result<(Result<Outcome, DriverError>, Duration), Fault> {
    let cancel = CancellationToken::new();
    let json = turn("Hello?").to_json();
    let mut run = driver.run(spec, json.as_bytes(), &cancel, &());
    until_it_asks(&mut run, model).await?;
    cancel.cancel();
    let since = Instant::now();
    let result = within(PROMPT * 4, "the end of a cancelled run", run).await?;
    Ok((result, since.elapsed()))
}

/// Runs until the worker waits for the model.
pub(super) async fn until_it_asks(
    run: impl Future<Output = Result<Outcome, DriverError>>,
    model: &Model,
) -> Result<(), Fault> {
    tokio::select! {
        result = run => Err(Fault::new(format!("a run ended early: {}", told(&result)))),
        asks = within(PROMPT * 12, "the worker's call", model.until(|seen| seen.open == 1)) => asks,
    }
}

/// What came of a run, in a few words.
pub(super) fn told(result: &Result<Outcome, DriverError>) -> String {
    match result {
        Ok(outcome) => format!("the reply {:.60?}", outcome.reply.text),
        Err(error) => format!("{} ({error})", error.code()),
    }
}
