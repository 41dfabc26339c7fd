//! The driver: a client for each run, and what becomes of its container.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;
use turnjail_driver::{
    ContainerDriver, ContainerSpec, DriverError, ExitReason, ImageProtocol, Outcome, Progress,
    Receipt, Timing,
};
use turnjail_protocol::{Reply, WorkerCode};

use crate::arguments::run_arguments;
use crate::attend::{self, Finished, History, Verdict, attend};
use crate::client::Client;
use crate::engine::{Engine, Kind};
use crate::image::Image;
use crate::remove::{RemoveOnDrop, remove, remove_twice};
use crate::{DockerOptions, fault, receipt};

/// The driver's [name](ContainerDriver::name), with podman as well.
pub const NAME: &str = "docker";

/// What every run's name starts with.
const RUN_NAMES: &str = "roundtable-sandbox-";

/// Runs workers in containers of Docker or podman.
///
/// A worker counts as started when its client is: the client does not tell when the engine has made
/// the container, which takes most of the time of a short turn.
#[derive(Debug)]
pub struct DockerDriver {
    client: Client,
    engine: Engine,
}

impl DockerDriver {
    /// Asks the engine what it is, and refuses one that a turn cannot run in: rootless Docker and
    /// remapped user ids, whose containers cannot enter a turn's private directories.
    pub async fn start(options: DockerOptions) -> Result<Self, DriverError> {
        options.check()?;
        let client = Client::start(options).await?;
        let engine = Engine::ask(&client).await?;
        tracing::info!(engine = engine.shown, "workers run in containers");
        if !engine.seccomp {
            tracing::warn!(engine = engine.shown, "the engine applies no seccomp filter");
        }
        let limits = engine.enforces;
        if !(limits.memory && limits.swap && limits.cpus && limits.pids) {
            tracing::warn!(?limits, "the engine cannot enforce every limit on this kernel");
        }
        Ok(Self { client, engine })
    }

    /// The engine's name and version, for people.
    pub fn engine(&self) -> &str {
        &self.engine.shown
    }

    /// Which engine it is.
    pub fn kind(&self) -> Kind {
        self.engine.kind
    }

    async fn image(&self, reference: &str) -> Result<Image, DriverError> {
        let image = Image::find(&self.client, reference).await?;
        image.check(reference)?;
        Ok(image)
    }

    /// Runs the client to its end. Its container may be left over.
    async fn attended(
        &self,
        spec: &ContainerSpec,
        turn: &[u8],
        cancel: &CancellationToken,
        progress: &dyn Progress,
    ) -> Result<(Finished, Timing), DriverError> {
        let begun = Instant::now();
        let mut command = self.client.command(run_arguments(spec, self.engine.kind));
        let child =
            command.stdin(Stdio::piped()).spawn().map_err(|error| self.client.unable(&error))?;
        progress.started();
        let start_us = micros(begun);
        let running = Instant::now();
        let finished = attend(child, turn, cancel).await.map_err(|error| {
            fault::start(
                "docker-program",
                format!("the docker client is lost: {error}"),
                "try again",
            )
        })?;
        Ok((finished, Timing { start_us, run_us: micros(running), prepared: false }))
    }

    /// What the engine remembers of a container since a time; none when it does not answer.
    async fn history(&self, name: &str, since: SystemTime) -> Option<History> {
        let word = match self.engine.kind {
            Kind::Docker | Kind::Turnjail => "{{.Action}}",
            Kind::Podman | Kind::RootlessPodman => "{{.Status}}",
        };
        // The engine's clock is this one; a time to come would be waited for.
        let (since, until) = (stamp(since), stamp(SystemTime::now()));
        let arguments = [
            "events",
            "--since",
            &since,
            "--until",
            &until,
            "--filter",
            &format!("container={name}"),
            "--format",
            word,
        ];
        let answer = self.client.ask_within(&arguments, Duration::from_secs(5)).await.ok()?;
        let said = String::from_utf8_lossy(&answer.stdout);
        let happened = |event| said.lines().any(|line| line == event);
        answer.ok().then(|| History { started: happened("start"), out_of_memory: happened("oom") })
    }

    /// Whether the worker ran, and how it ended.
    async fn verdict(
        &self,
        finished: &Finished,
        spec: &ContainerSpec,
        since: SystemTime,
    ) -> Result<Verdict, DriverError> {
        let history =
            if finished.needs_history() { self.history(&spec.name, since).await } else { None };
        let remedy = "run the same by hand: the engine's log and `docker run` say more";
        match finished.judge(history) {
            attend::Outcome::Worker(verdict) => Ok(verdict),
            outcome => Err(fault::known(&finished.stderr).unwrap_or_else(|| {
                let said = match outcome {
                    attend::Outcome::Engine => fault::first_line(&finished.stderr),
                    _ => "it does not say why".to_owned(),
                };
                let cause = format!("{} did not run the worker: {said}", self.engine.shown);
                fault::start("docker-run", cause, remedy)
            })),
        }
    }
}

#[async_trait]
impl ContainerDriver for DockerDriver {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn run(
        &self,
        spec: &ContainerSpec,
        turn: &[u8],
        cancel: &CancellationToken,
        progress: &dyn Progress,
    ) -> Result<Outcome, DriverError> {
        spec.check()?;
        let image = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(DriverError::Cancelled),
            image = self.image(&spec.image) => image?,
        };
        let since = SystemTime::now();
        // Declared before the client, so that the client is killed before its container is removed.
        let mut removal = RemoveOnDrop::new(&self.client, &spec.name);
        let attended = self.attended(spec, turn, cancel, progress).await;
        let well = matches!(&attended, Ok((finished, _)) if finished.status.success());
        let removed = if well {
            remove(&self.client, &spec.name).await
        } else {
            remove_twice(&self.client, &spec.name).await
        };
        removal.done();
        let (finished, timing) = attended?;
        let judged = self.verdict(&finished, spec, since).await.map(|verdict| {
            let record = receipt::receipt(spec, &self.engine, image.digest(), &verdict, timing);
            progress.ended(&record);
            (verdict, record)
        });
        // A container that may still run writes to the workspace of the next turn.
        removed?;
        let (verdict, record) = judged?;
        outcome(&finished, verdict, record)
    }

    async fn image_protocol(&self, image: &str) -> Result<ImageProtocol, DriverError> {
        Ok(Image::find(&self.client, image).await?.protocol())
    }

    async fn verify(&self, image: &str) -> Result<(), DriverError> {
        self.image(image).await.map(drop)
    }

    async fn clear_leftovers(&self, run_root: &Path) -> Result<(), DriverError> {
        let filter = format!("name={RUN_NAMES}");
        let format = "{{.Names}}\t{{.Mounts}}";
        let arguments = ["ps", "--all", "--no-trunc", "--filter", &filter, "--format", format];
        let answer = self.client.ask(&arguments).await?;
        if !answer.ok() {
            let said = fault::first_line(&answer.stderr);
            return Err(fault::start(
                "docker-unreachable",
                format!("{} ps fails: {said}", self.client.shown()),
                "look at the engine's log",
            ));
        }
        let list = String::from_utf8_lossy(&answer.stdout);
        for name in list.lines().filter_map(|line| left_over(line, run_root)) {
            tracing::warn!(name, "a container of a host that has died is removed");
            remove(&self.client, name).await?;
        }
        Ok(())
    }
}

/// The name in a line of `name, tab, mounts` when one of the mounts lies in `run_root`. Run directories
/// have no comma in their paths.
fn left_over<'l>(line: &'l str, run_root: &Path) -> Option<&'l str> {
    let (name, mounts) = line.split_once('\t')?;
    let inside = |mount: &str| {
        let path = Path::new(mount);
        path.starts_with(run_root) && path != run_root
    };
    (name.starts_with(RUN_NAMES) && mounts.split(',').any(inside)).then_some(name)
}

/// The reply, or why there is none.
fn outcome(
    finished: &Finished,
    verdict: Verdict,
    mut receipt: Receipt,
) -> Result<Outcome, DriverError> {
    let code = WorkerCode::from_stderr(&finished.stderr);
    let cause = match verdict.reason {
        ExitReason::Cancelled => return Err(DriverError::Cancelled),
        ExitReason::Ok => match Reply::parse(&finished.stdout) {
            Ok(reply) => return Ok(Outcome { reply, receipt }),
            Err(invalid) => {
                receipt.exit = ExitReason::WorkerFailed;
                format!("the worker ended well but {invalid}")
            }
        },
        ExitReason::WorkerFailed => code.map_or(verdict.cause, |code| code.words().to_owned()),
        _ => verdict.cause,
    };
    let worker_code = code.map(|code| code.as_str().to_owned());
    let reason = receipt.exit;
    Err(DriverError::Worker { reason, cause, worker_code, receipt: Box::new(receipt) })
}

fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// Seconds and nanoseconds since 1970, as engines read a time.
fn stamp(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("{}.{:09}", since.as_secs(), since.subsec_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_containers_of_this_root_are_left_over() {
        let root = Path::new("/run/user/1000/turnjail");
        let name = "roundtable-sandbox-0123456789abcdef-01234567";
        for (line, is) in [
            (format!("{name}\t/srv/chat/a,/run/user/1000/turnjail/turn-x"), true),
            (format!("{name}\t/run/user/1000/turnjail/turn-x"), true),
            (format!("{name}\t/run/user/1000/turnjail-other/turn-x,/srv"), false),
            (format!("{name}\t/run/user/1000/turnjail"), false),
            (format!("{name}\t"), false),
            ("other\t/run/user/1000/turnjail/turn-x".to_owned(), false),
            (String::new(), false),
        ] {
            assert_eq!(left_over(&line, root), is.then_some(name), "{line}");
        }
    }
}
