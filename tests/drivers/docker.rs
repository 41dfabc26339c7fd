//! The Docker driver with a real engine.

use std::path::Path;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use turnjail_docker::{DockerDriver, DockerOptions, Kind};
use turnjail_driver::conformance::{Setting, cases};
use turnjail_driver::{ContainerDriver, ContainerSpec, DriverError, Limits, Outcome, WallState};
use turnjail_tests::engine::{self, docker};
use turnjail_tests::jails::{PROBE, private_dir};
use turnjail_tests::{archive, ordinary};

/// The worker's image in the engine.
pub const WORKER: &str = "turnjail-worker:latest";
/// An image with the probe, which takes its acts from standard input.
pub const PROBES: &str = "turnjail-test-probe:1";

pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Runtime::new().expect("a runtime").block_on(future)
}

pub async fn driver() -> DockerDriver {
    docker(&["load"], &archive::worker(WORKER));
    DockerDriver::start(engine::options()).await.expect("a driver")
}

/// A driver and an image with the probe.
pub async fn probes() -> DockerDriver {
    let mut configuration = archive::configuration();
    configuration["config"]["Entrypoint"] = serde_json::json!(["/worker", "-"]);
    docker(&["load"], &archive::image(PROBES, PROBE, configuration));
    driver().await
}

/// A specification with directories below `place`.
pub fn spec(place: &Path, image: &str) -> ContainerSpec {
    let (uid, gid) = ordinary();
    let make = |name: &str| {
        let path = place.join(name);
        std::fs::create_dir_all(&path).expect("a directory");
        path
    };
    ContainerSpec {
        name: format!("roundtable-sandbox-{:016x}-00000000", rand()),
        image: image.to_owned(),
        run_dir: make("run"),
        workspace_dir: make("work"),
        channel_dir: None,
        uid,
        gid,
        limits: Limits::default(),
    }
}

fn rand() -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    std::hash::RandomState::new().build_hasher().finish()
}

/// Runs a specification with standard input.
pub async fn run(
    driver: &DockerDriver,
    spec: &ContainerSpec,
    input: &str,
) -> Result<Outcome, DriverError> {
    driver.run(spec, input.as_bytes(), &CancellationToken::new(), &()).await
}

/// Holds a driver to every demand.
pub async fn demand(driver: impl ContainerDriver, image: &str) {
    let driver: Arc<dyn ContainerDriver> = Arc::new(driver);
    let place = private_dir();
    let setting = Setting::new(image, place.path());
    let mut faults = Vec::new();
    for case in cases() {
        if let Err(fault) = case.check(driver.clone(), &setting).await {
            faults.push(format!("{}: {fault}", case.name()));
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

/// The containers of the engine with this name, running or not.
pub fn containers(name: &str) -> String {
    let filter = format!("name={name}");
    docker(&["ps", "--all", "--filter", &filter, "--format", "{{.Names}} {{.State}}"], b"")
}

pub fn demands() {
    block_on(async { demand(driver().await, WORKER).await });
}

pub fn receipt() {
    block_on(async {
        let driver = probes().await;
        assert_eq!(driver.kind(), Kind::Docker);
        let place = private_dir();
        let ended = run(&driver, &spec(place.path(), PROBES), "[[\"exit\", 3]]").await;
        let Err(DriverError::Worker { receipt, .. }) = ended else { panic!("{ended:?}") };
        let id = docker(&["image", "inspect", "--format", "{{.Id}}", PROBES], b"");
        assert_eq!(receipt.image_digest.as_deref(), Some(id.trim()));
        let state =
            |name| receipt.walls.iter().find(|wall| wall.name == name).map(|wall| wall.state);
        assert_eq!(state("network"), Some(WallState::Enforced));
        assert_eq!(state("file access"), Some(WallState::Absent), "no engine uses landlock");
        assert_eq!(state("user"), Some(WallState::Degraded), "there is no user namespace");
        let memory = receipt.limits.iter().find(|limit| limit.name == "memory").expect("memory");
        assert_eq!(memory.asked, "512 MiB");
    });
}

pub fn unreachable() {
    block_on(async {
        let host = Some("unix:///nonexistent/docker.sock".to_owned());
        let options = DockerOptions { host, ..engine::options() };
        let error = DockerDriver::start(options).await.expect_err("nobody answers");
        assert_eq!(error.code(), "docker-unreachable");
        assert!(error.remedy().is_some_and(|remedy| remedy.contains("docker.host")), "{error}");
    });
}

pub fn no_engine() {
    block_on(async {
        for (program, code) in [
            ("/nonexistent/docker", "docker-program"),
            ("/bin/true", "docker-program"),
            ("bin/docker", "docker-policy"),
        ] {
            let options = DockerOptions { program: program.into(), ..engine::options() };
            let error = DockerDriver::start(options).await.expect_err(program);
            assert_eq!(error.code(), code, "{program}: {error}");
        }
        for host in ["tcp://10.0.0.1:2375", "ssh://elsewhere", "unix://relative"] {
            let options = DockerOptions { host: Some(host.to_owned()), ..engine::options() };
            let error = DockerDriver::start(options).await.expect_err(host);
            assert_eq!(error.code(), "docker-policy", "{host}: {error}");
        }
    });
}

/// A client that tells its environment and arguments before it does what it is told.
pub fn environment() {
    block_on(async {
        let place = private_dir();
        let (told, program) = (place.path().join("told"), place.path().join("docker"));
        let script = format!(
            "#!/bin/sh\necho \"$*\" >>{0}\nenv >>{0}\nexec docker \"$@\"\n",
            told.display()
        );
        std::fs::write(&program, script).expect("a script");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(&program, mode).expect("chmod");
        driver().await;
        let options = DockerOptions { program, ..engine::options() };
        let driver = DockerDriver::start(options).await.expect("a driver");
        driver.verify(WORKER).await.expect("the worker's image");
        let told = std::fs::read_to_string(told).expect("what was told");
        let names: std::collections::BTreeSet<_> =
            told.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
        // The shell's own and the few that the client is meant to have.
        let known = ["PATH", "DOCKER_HOST", "DOCKER_CONFIG", "PWD", "SHLVL", "OLDPWD", "_"];
        assert!(names.contains("DOCKER_HOST"), "{told}");
        assert!(names.iter().all(|name| known.contains(name)), "{names:?}");
    });
}

pub fn leftovers() {
    block_on(async {
        let driver = probes().await;
        let (here, elsewhere) = (private_dir(), private_dir());
        let (ours, other) = (spec(here.path(), PROBES), spec(elsewhere.path(), PROBES));
        // As a host would have left them that was killed: running, and nobody waits for them.
        for spec in [&ours, &other] {
            let arguments = turnjail_docker::run_arguments(spec, Kind::Docker);
            let mut arguments: Vec<_> =
                arguments.iter().map(|word| word.to_str().expect("text")).collect();
            arguments[2] = "--detach";
            let last = arguments.len() - 1;
            arguments.insert(last, "--entrypoint=/worker");
            arguments.push("[\"sleep\", 60000]");
            docker(&arguments, b"");
            assert!(containers(&spec.name).contains("running"));
        }
        driver.clear_leftovers(here.path()).await.expect("cleared");
        assert_eq!(containers(&ours.name), "");
        assert!(containers(&other.name).contains("running"), "another root's is not touched");
        driver.clear_leftovers(elsewhere.path()).await.expect("cleared");
        assert_eq!(containers(&other.name), "");
    });
}
