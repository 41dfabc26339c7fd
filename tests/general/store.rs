//! General images as images of the store, run by the driver as a turn's worker.

use std::fs;
use std::path::PathBuf;

use serde_json::json;
use tokio_util::sync::CancellationToken;
use turnjail_driver::{
    ContainerDriver as _, ContainerSpec, DriverError, Limits, Outcome, WallState,
};
use turnjail_images::{ImageConfig, ImageStore, ImportOptions, Source};
use turnjail_jail::{ImageSettings, JailDriver, JailOptions, Profile};
use turnjail_tests::archive;
use turnjail_tests::general::{self, General};
use turnjail_tests::jails::Bench;
use turnjail_tests::script::{Broker, Response};

const SHELL: &str = include_str!("programs/worker.sh");
pub const PYTHON: &str = include_str!("programs/worker.py");
pub const JAVASCRIPT: &str = include_str!("programs/worker.mjs");

/// What a driver is asked for a turn in the directories of a bench.
pub fn spec(bench: &Bench, image: &str) -> ContainerSpec {
    ContainerSpec {
        name: "roundtable-sandbox-0123456789abcdef-01234567".to_owned(),
        image: image.to_owned(),
        run_dir: bench.path("run"),
        workspace_dir: bench.path("workspace"),
        channel_dir: None,
        uid: nix::unistd::geteuid().as_raw(),
        gid: nix::unistd::getegid().as_raw(),
        limits: Limits::default(),
    }
}

fn turn() -> Vec<u8> {
    let turn = json!({
        "text": "hello", "speaker": {"id": "ann", "name": "Ann"}, "model": "m", "prompt": "p",
        "timeZone": "UTC", "tools": [], "mcp": [],
    });
    turn.to_string().into_bytes()
}

/// One turn through a driver with these options, and a broker that answers one call with `hi`.
pub fn run(bench: &Bench, options: JailOptions, image: &str) -> Result<Outcome, DriverError> {
    let broker = Broker::listen(&bench.path("run").join("broker.sock"), vec![Response::text("hi")]);
    let never = CancellationToken::new();
    let outcome = bench.runtime().block_on(async {
        let driver = JailDriver::start(options).await?;
        driver.verify(image).await?;
        driver.run(&spec(bench, image), &turn(), &never, &()).await
    });
    broker.stop();
    outcome
}

/// An image whose entry point is `program` with a script of ours in /app.
pub fn worker(image: General, script: &str, text: &str) -> (PathBuf, String) {
    let entrypoint = match image {
        General::Busybox | General::Coreutils => "sh",
        General::Python => "python3",
        other => other.name(),
    };
    let config = ImageConfig {
        entrypoint: vec![entrypoint.to_owned()],
        cmd: vec![script.to_owned()],
        env: vec!["GREETING=hello".to_owned()],
        working_dir: "/app".to_owned(),
        ..ImageConfig::default()
    };
    let files = [(format!("/app/{script}"), text.to_owned())];
    general::imported(&image.root_with(&files), config)
}

fn answers(image: General, script: &str, text: &str) {
    let bench = Bench::new();
    let (store, reference) = worker(image, script, text);
    let outcome = run(&bench, JailOptions::new(store), &reference);
    let outcome = outcome.unwrap_or_else(|error| panic!("{}: {error:?}", image.name()));
    assert!(outcome.reply.ok);
    assert_eq!(outcome.reply.text, "hello hi");
    assert_eq!((outcome.receipt.profile, outcome.receipt.loopback), (Some("general"), Some(false)));
    let made = outcome.receipt.walls.iter().find(|wall| wall.name == "executable memory");
    assert_eq!(made.expect("a wall").state, WallState::Absent, "said as it is");
    let said = fs::read_to_string(bench.path("workspace").join("said")).expect("a file");
    assert_eq!(said, "hi");
}

pub fn busybox() {
    answers(General::Busybox, "worker.sh", SHELL);
}

pub fn coreutils() {
    // sed is no part of coreutils.
    answers(
        General::Coreutils,
        "worker.sh",
        &SHELL.replace(
            r#"text=$(sed 's/.*"text":"\([^"]*\)".*/\1/')"#,
            r#"read -r turn || true; turn=${turn#*\"text\":\"}; text=${turn%%\"*}"#,
        ),
    );
}

pub fn python() {
    answers(General::Python, "worker.py", PYTHON);
}

pub fn node() {
    answers(General::Node, "worker.mjs", JAVASCRIPT);
}

pub fn bun() {
    answers(General::Bun, "worker.mjs", JAVASCRIPT);
}

/// The real worker under other names: what its label says decides, unless the operator says otherwise.
pub fn labels() {
    let bench = Bench::new();
    let store = bench.path("store");
    let images = ImageStore::open(&store).expect("a store");
    let mut unlabelled = archive::configuration();
    unlabelled["config"]["Labels"] = json!({});
    let mut strange = archive::configuration();
    strange["config"]["Labels"] = json!({"roundtable.sandbox.profile": "vault"});
    for (name, configuration) in
        [("labelled", archive::configuration()), ("unlabelled", unlabelled), ("strange", strange)]
    {
        let program = fs::read(turnjail_tests::program()).expect("the worker");
        let bytes = archive::image(name, &program, configuration);
        let source = Source::Stream(Box::new(std::io::Cursor::new(bytes)));
        let reference = name.parse().expect("a reference");
        images.import(source, &reference, &ImportOptions::default()).expect("an image");
    }
    let profile_of = |image: &str, settings: ImageSettings| {
        let mut options = JailOptions::new(store.clone());
        options.images.set(image, settings);
        run(&bench, options, image).map(|outcome| outcome.receipt.profile.expect("a profile"))
    };
    let none = ImageSettings::default();
    let set = |profile| ImageSettings { profile: Some(profile), ..none };
    for (image, settings, profile) in [
        ("labelled", none, "sealed"),
        ("unlabelled", none, "general"),
        ("labelled", set(Profile::General), "general"),
        ("unlabelled", set(Profile::Sealed), "sealed"),
        ("strange", set(Profile::Sealed), "sealed"),
    ] {
        let found = profile_of(image, settings).unwrap_or_else(|e| panic!("{image}: {e:?}"));
        assert_eq!(found, profile, "{image} {settings:?}");
    }
    let error = profile_of("strange", none).expect_err("a profile that there is not");
    assert!(error.to_string().contains("vault"), "{error}");
}
