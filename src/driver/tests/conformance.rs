//! The suite passes a driver that does everything right, and finds every fault in one that does not.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio_util::sync::CancellationToken;
use turnjail_driver::conformance::{Setting, cases};
use turnjail_driver::{
    ContainerDriver, ContainerSpec, DriverError, ExitReason, ImageProtocol, Outcome, Progress,
    Receipt, Timing, Usage,
};
use turnjail_protocol::{Reply, Turn};

const IMAGE: &str = "worker:1";

/// What is wrong with a driver, and the demand that finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Defect {
    None,
    TellsAnOldProtocol,
    RefusesItsImage,
    NeverTellsThatItStarted,
    NamesAnotherDriver,
    LeavesAFileBeside,
    KeepsNothing,
    ChecksNothing,
    TakesAnyImage,
    ForgetsTheWorkspace,
    MixesChannels,
    HidesAFailure,
    LosesTheCode,
    CutsTheTurn,
    CutsTheReply,
    MixesRuns,
    IgnoresAnEarlyCancel,
    EndsSlowly,
    LeavesACancelledWorker,
    LeavesADroppedWorker,
    BlocksItsNames,
}

const DEFECTS: [(Defect, &str, &str); 20] = [
    (
        Defect::TellsAnOldProtocol,
        "the_image_is_verified_and_its_protocol_told",
        "told Ok(Version(1))",
    ),
    (Defect::RefusesItsImage, "the_image_is_verified_and_its_protocol_told", "verify refuses"),
    (
        Defect::NeverTellsThatItStarted,
        "a_turn_is_answered_with_a_receipt",
        "started was told 0 times",
    ),
    (Defect::NamesAnotherDriver, "a_turn_is_answered_with_a_receipt", "the receipt names docker"),
    (Defect::LeavesAFileBeside, "nothing_is_left_beside_the_workspace", "container.pid"),
    (Defect::KeepsNothing, "nothing_is_left_beside_the_workspace", "and no history"),
    (
        Defect::ChecksNothing,
        "a_bad_specification_is_refused_and_nothing_started",
        "a name in capitals",
    ),
    (
        Defect::TakesAnyImage,
        "an_unknown_image_is_refused_and_nothing_started",
        "an absent image must be refused",
    ),
    (Defect::ForgetsTheWorkspace, "the_workspace_is_kept_between_turns", "does not know the first"),
    (
        Defect::MixesChannels,
        "the_channel_directory_is_the_channels_own",
        "knows another channel's history",
    ),
    (Defect::HidesAFailure, "a_workers_failure_is_told_with_its_code", "the reply \"\""),
    (Defect::LosesTheCode, "a_refused_model_call_is_the_workers_failure", "its code is None"),
    (
        Defect::CutsTheTurn,
        "the_largest_turn_arrives_whole",
        "a turn of 262144 bytes: worker_failed",
    ),
    (Defect::CutsTheReply, "the_longest_reply_comes_back_whole", "65536 came back"),
    (Defect::MixesRuns, "runs_at_once_do_not_mix", "to its question"),
    (
        Defect::IgnoresAnEarlyCancel,
        "a_run_cancelled_before_it_starts_starts_nothing",
        "a run cancelled beforehand: the reply",
    ),
    (Defect::EndsSlowly, "a_cancelled_run_ends_promptly_and_leaves_no_worker", "to end"),
    (
        Defect::LeavesACancelledWorker,
        "a_cancelled_run_ends_promptly_and_leaves_no_worker",
        "the worker's end after its run",
    ),
    (Defect::LeavesADroppedWorker, "a_dropped_run_leaves_no_worker", "after its run was dropped"),
    (
        Defect::BlocksItsNames,
        "directories_are_usable_again_after_a_cancelled_run",
        "a name that is taken",
    ),
];

/// A driver whose worker is a task of this process, with one defect.
struct InProcess {
    defect: Defect,
    last_reply: tokio::sync::Mutex<Option<String>>,
    names: std::sync::Mutex<Vec<String>>,
}

impl InProcess {
    fn new(defect: Defect) -> Arc<Self> {
        Arc::new(Self {
            defect,
            last_reply: tokio::sync::Mutex::default(),
            names: std::sync::Mutex::default(),
        })
    }

    fn has(&self, defect: Defect) -> bool {
        self.defect == defect
    }
}

/// A worker that asks the model once and keeps a history.
async fn worker(
    run: PathBuf,
    workspace: PathBuf,
    channel: PathBuf,
    turn: Vec<u8>,
) -> Result<String, &'static str> {
    let turn = Turn::parse(&turn).map_err(|_| "invalid_turn")?;
    let directory = if turn.channel_history { channel } else { workspace };
    let file = directory.join("history.json");
    let history = tokio::fs::read(&file).await.unwrap_or_else(|_| b"[]".to_vec());
    let mut messages: Vec<Value> =
        serde_json::from_slice(&history).map_err(|_| "invalid_history")?;
    messages.push(json!({"role": "user", "content": turn.text}));
    let answer = ask(&run.join("broker.sock"), &json!({"messages": messages})).await;
    let text = answer.ok_or("model_refused")?;
    messages.push(json!({"role": "assistant", "content": text}));
    tokio::fs::write(file, serde_json::to_vec(&messages).unwrap()).await.map_err(|_| "io")?;
    Ok(text)
}

async fn ask(socket: &Path, body: &Value) -> Option<String> {
    let mut stream = UnixStream::connect(socket).await.ok()?;
    let body = serde_json::to_vec(body).unwrap();
    let head =
        format!("POST /model HTTP/1.1\r\nhost: broker\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).await.ok()?;
    stream.write_all(&body).await.ok()?;
    let mut answer = Vec::new();
    // Until the head and the announced length are there; the server keeps the connection.
    loop {
        if stream.read_buf(&mut answer).await.ok()? == 0 {
            return None;
        }
        let text = String::from_utf8_lossy(&answer);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length: usize =
            head.lines().find_map(|line| line.strip_prefix("content-length: "))?.parse().ok()?;
        if body.len() >= length {
            let value: Value = serde_json::from_str(body).ok()?;
            return Some(value["choices"][0]["message"]["content"].as_str()?.to_owned());
        }
    }
}

#[async_trait]
impl ContainerDriver for InProcess {
    fn name(&self) -> &'static str {
        "in-process"
    }

    async fn verify(&self, image: &str) -> Result<(), DriverError> {
        if self.has(Defect::RefusesItsImage) || image != IMAGE {
            return Err(absent(image));
        }
        Ok(())
    }

    async fn image_protocol(&self, _: &str) -> Result<ImageProtocol, DriverError> {
        let version = if self.has(Defect::TellsAnOldProtocol) { 1 } else { 2 };
        Ok(ImageProtocol::Version(version))
    }

    async fn run(
        &self,
        spec: &ContainerSpec,
        turn: &[u8],
        cancel: &CancellationToken,
        progress: &dyn Progress,
    ) -> Result<Outcome, DriverError> {
        if !self.has(Defect::ChecksNothing) {
            spec.check()?;
        }
        if spec.image != IMAGE && !self.has(Defect::TakesAnyImage) {
            return Err(absent(&spec.image));
        }
        if cancel.is_cancelled() && !self.has(Defect::IgnoresAnEarlyCancel) {
            return Err(DriverError::Cancelled);
        }
        if self.has(Defect::BlocksItsNames) {
            let mut names = self.names.lock().unwrap();
            if names.contains(&spec.name) {
                return Err(absent("a name that is taken"));
            }
            names.push(spec.name.clone());
        }
        if !self.has(Defect::NeverTellsThatItStarted) {
            progress.started();
        }
        if self.has(Defect::LeavesAFileBeside) {
            std::fs::write(spec.run_dir.join("container.pid"), "1").unwrap();
        }
        let turn =
            if self.has(Defect::CutsTheTurn) { &turn[..turn.len().min(65_536)] } else { turn };
        let lost = spec.run_dir.parent().unwrap().join("lost");
        let workspace = match self.defect {
            Defect::ForgetsTheWorkspace | Defect::KeepsNothing => {
                let place = lost.join(&spec.name);
                std::fs::create_dir_all(&place).unwrap();
                place
            }
            _ => spec.workspace_dir.clone(),
        };
        let channel = match &spec.channel_dir {
            Some(channel) if !self.has(Defect::MixesChannels) => channel.clone(),
            _ => workspace.clone(),
        };
        let worker = tokio::spawn(worker(spec.run_dir.clone(), workspace, channel, turn.to_vec()));
        let stop = worker.abort_handle();
        let leaves_dropped = self.has(Defect::LeavesADroppedWorker);
        let _dropped = scopeguard(move || {
            if !leaves_dropped {
                stop.abort();
            }
        });
        let early = self.has(Defect::IgnoresAnEarlyCancel);
        let result = tokio::select! {
            result = worker => result.unwrap(),
            () = cancel.cancelled(), if !early => {
                if self.has(Defect::EndsSlowly) {
                    tokio::time::sleep(Duration::from_secs(6)).await;
                }
                if self.has(Defect::LeavesACancelledWorker) {
                    std::mem::forget(_dropped);
                }
                return Err(DriverError::Cancelled);
            }
        };
        self.answer(spec, result).await
    }
}

impl InProcess {
    async fn answer(
        &self,
        spec: &ContainerSpec,
        result: Result<String, &'static str>,
    ) -> Result<Outcome, DriverError> {
        let name = if self.has(Defect::NamesAnotherDriver) { "docker" } else { "in-process" };
        let receipt = |exit| Receipt {
            driver: name,
            image: spec.image.clone(),
            image_digest: None,
            profile: None,
            loopback: None,
            walls: Vec::new(),
            limits: Vec::new(),
            exit,
            timing: Timing { start_us: 1, run_us: 1, prepared: false },
            usage: Usage::default(),
        };
        let outcome =
            |ok, text| Ok(Outcome { reply: Reply { ok, text }, receipt: receipt(ExitReason::Ok) });
        match result {
            Ok(mut text) => {
                if self.has(Defect::CutsTheReply) {
                    text.truncate(65_536);
                }
                if self.has(Defect::MixesRuns) {
                    let last = self.last_reply.lock().await.replace(text.clone());
                    text = last.unwrap_or(text);
                }
                outcome(true, text)
            }
            Err(_) if self.has(Defect::HidesAFailure) => outcome(false, String::new()),
            Err(code) => Err(DriverError::Worker {
                reason: ExitReason::WorkerFailed,
                cause: format!("the worker failed: {code}"),
                worker_code: (!self.has(Defect::LosesTheCode)).then(|| code.to_owned()),
                receipt: Box::new(receipt(ExitReason::WorkerFailed)),
            }),
        }
    }
}

/// Runs the closure when dropped.
fn scopeguard(run: impl FnOnce() + Send) -> impl Send {
    struct Guard<F: FnOnce()>(Option<F>);
    impl<F: FnOnce()> Drop for Guard<F> {
        fn drop(&mut self) {
            if let Some(run) = self.0.take() {
                run();
            }
        }
    }
    Guard(Some(run))
}

fn absent(image: &str) -> DriverError {
    DriverError::Image {
        cause: format!("there is no image {image}"),
        remedy: "name another".to_owned(),
    }
}

/// The demands that a driver with this defect does not meet, with what is said of it.
async fn faults(defect: Defect, only: impl Fn(&str) -> bool) -> Vec<(&'static str, String)> {
    let directory = tempfile::Builder::new().prefix("tj-").tempdir().unwrap();
    // The workers are tasks of this process, which may be root.
    let setting = Setting::new(IMAGE, directory.path()).ids(1000, 1000);
    let mut faults = Vec::new();
    for case in cases().into_iter().filter(|case| only(case.name())) {
        let driver = InProcess::new(defect);
        if let Err(fault) = case.check(driver, &setting).await {
            faults.push((case.name(), fault.to_string()));
        }
    }
    faults
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_right_driver_passes() {
    assert_eq!(faults(Defect::None, |_| true).await, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_defect_is_found_by_its_demand() {
    let mut runs = tokio::task::JoinSet::new();
    for (defect, found_by, says) in DEFECTS {
        runs.spawn(async move {
            let found = faults(defect, |name| name == found_by).await;
            assert_eq!(found.len(), 1, "{defect:?} is not found by {found_by}");
            assert!(found[0].1.contains(says), "{defect:?}: {}", found[0].1);
        });
    }
    while let Some(run) = runs.join_next().await {
        run.unwrap();
    }
    for case in cases() {
        let found = DEFECTS.iter().any(|(_, found_by, _)| *found_by == case.name());
        assert!(found, "no defect is there for {}", case.name());
    }
}
