//! How runs in containers end, and that nothing is left of them.

use turnjail_driver::{DriverError, ExitReason, Limits};
use turnjail_tests::archive;
use turnjail_tests::engine::docker;
use turnjail_tests::jails::{PROBE, private_dir};

use crate::docker::{PROBES, block_on, containers, probes, run, spec};

/// How a run of the probe with these acts ends, with what limits.
fn ending(acts: &str, limits: Limits) -> (ExitReason, String) {
    block_on(async {
        let driver = probes().await;
        let place = private_dir();
        let spec = turnjail_driver::ContainerSpec { limits, ..spec(place.path(), PROBES) };
        let error = run(&driver, &spec, acts).await.expect_err("no reply");
        assert_eq!(containers(&spec.name), "", "nothing is left");
        let DriverError::Worker { reason, cause, receipt, .. } = error else {
            panic!("the worker's own failure, but: {error}");
        };
        assert_eq!(receipt.exit, reason);
        (reason, cause)
    })
}

pub fn memory() {
    let limits = Limits { memory_mb: 64, ..Limits::default() };
    let (reason, cause) = ending(r#"[["touch", 256]]"#, limits);
    assert_eq!(reason, ExitReason::Memory, "{cause}");
}

pub fn output() {
    for descriptor in [1, 2] {
        let acts = format!("[[\"flood\", {descriptor}, 4000000], [\"sleep\", 60000]]");
        let (reason, cause) = ending(&acts, Limits::default());
        assert_eq!(reason, ExitReason::Output, "{cause}");
    }
}

pub fn codes() {
    for (acts, reason, says) in [
        (r#"[["exit", 3]]"#, ExitReason::WorkerFailed, "exit code 3"),
        (r#"[["exit", 0]]"#, ExitReason::WorkerFailed, "ended well but"),
        // A fault that nobody handles: the first process of a container dies of it.
        (r#"[["crash"]]"#, ExitReason::WorkerFailed, "exit code 139"),
    ] {
        let (found, cause) = ending(acts, Limits::default());
        assert_eq!(found, reason, "{acts}: {cause}");
        assert!(cause.contains(says), "{acts}: {cause}");
    }
}

/// The engine's exit code and its words, from a worker: neither gets into the error.
pub fn pretending() {
    for code in [125, 126, 127] {
        let acts = format!(
            "[[\"flood\", 2, 3], [\"print\", \"docker: Error response from daemon: x.\"], [\"exit\", {code}]]"
        );
        let (reason, cause) = ending(&acts, Limits::default());
        assert_eq!(reason, ExitReason::WorkerFailed);
        assert_eq!(cause, format!("the worker ended with exit code {code}"));
    }
}

pub fn not_found() {
    block_on(async {
        let mut configuration = archive::configuration();
        configuration["config"]["Entrypoint"] = serde_json::json!(["/nothing"]);
        let image = "turnjail-test-nothing:1";
        docker(&["load"], &archive::image(image, PROBE, configuration));
        let driver = probes().await;
        let place = private_dir();
        let spec = spec(place.path(), image);
        let error = run(&driver, &spec, "").await.expect_err("no program");
        assert_eq!(error.code(), "docker-run", "{error}");
        assert!(error.to_string().contains("/nothing"), "the engine's own words: {error}");
        assert_eq!(containers(&spec.name), "");
    });
}

/// What has the name of a run is nobody's any more: names are drawn at random.
pub fn name_in_use() {
    block_on(async {
        let driver = probes().await;
        let place = private_dir();
        let spec = spec(place.path(), PROBES);
        docker(&["create", "--name", &spec.name, "--network", "none", PROBES], b"");
        let error = run(&driver, &spec, "[]").await.expect_err("the name is taken");
        assert_eq!(error.code(), "docker-run", "{error}");
        assert_eq!(containers(&spec.name), "");
    });
}
