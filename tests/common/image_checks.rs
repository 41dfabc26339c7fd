//! The checks of images that every driver makes, as one suite: what must be refused before a turn, and
//! what an image's label says.

use std::path::Path;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use turnjail_driver::{ContainerDriver, ContainerSpec, DriverError, ImageProtocol, Limits};
use turnjail_protocol::PROTOCOL_LABEL;

use crate::{archive, jails, ordinary};

/// Holds a driver to the checks. `load` brings an archive of `docker save`'s form to where the driver finds
/// images, or says why it is refused there already, which counts as well for what must be refused.
///
/// # Panics
/// When a check is not made.
pub async fn hold(driver: &dyn ContainerDriver, load: &dyn Fn(&[u8]) -> Result<(), String>) {
    let put = |reference: &str, change: &dyn Fn(&mut Value)| {
        let mut configuration = archive::configuration();
        change(&mut configuration);
        load(&archive::image(reference, jails::PROBE, configuration))
    };
    let place = jails::private_dir();

    // Exists locally, and is never pulled.
    for absent in ["turnjail-test-absent:1", "localhost:1/turnjail-test-absent:1"] {
        refused(driver, absent, place.path(), absent).await;
    }
    // The reference is one.
    for bad in ["", "--privileged", "a b", "UPPER/case:", "x@sha256:short", "x\n"] {
        let error = driver.verify(bad).await.expect_err(bad);
        let told = matches!(error, DriverError::Spec(_) | DriverError::Image { .. });
        assert!(told, "{bad:?} by {}: {} {error}", driver.name(), error.code());
        assert!(driver.image_protocol(bad).await.is_err(), "{bad:?}");
    }
    // Something to start, for this machine.
    let elsewhere =
        if turnjail_driver::image::host_architecture() == "amd64" { "arm64" } else { "amd64" };
    let nothing: &dyn Fn(&mut Value) = &|image| {
        image["config"]["Entrypoint"] = json!([]);
        image["config"]["Cmd"] = json!([]);
    };
    for (name, change) in [
        ("turnjail-test-nothing-to-start:1", nothing),
        ("turnjail-test-other-machine:1", &|image| image["architecture"] = json!(elsewhere)),
        ("turnjail-test-other-system:1", &|image| image["os"] = json!("windows")),
    ] {
        if put(name, change).is_ok() {
            refused(driver, name, place.path(), name).await;
        }
    }
    // The protocol by its label.
    for (number, (label, expected)) in [
        (Some("2"), ImageProtocol::Version(2)),
        (Some("1"), ImageProtocol::Version(1)),
        (Some("0"), ImageProtocol::Unlabelled),
        (Some("two"), ImageProtocol::Unlabelled),
        (Some("-1"), ImageProtocol::Unlabelled),
        (None, ImageProtocol::Unlabelled),
    ]
    .into_iter()
    .enumerate()
    {
        let reference = format!("turnjail-test-label-{number}:1");
        let relabel = |image: &mut Value| {
            image["config"]["Labels"] = match label {
                Some(label) => json!({PROTOCOL_LABEL: label}),
                None => json!({}),
            };
        };
        put(&reference, &relabel).expect("an image is loaded");
        driver.verify(&reference).await.unwrap_or_else(|error| panic!("{reference}: {error}"));
        let found = driver.image_protocol(&reference).await.expect(&reference);
        assert_eq!(found, expected, "label {label:?} by {}", driver.name());
    }
}

/// Before the first turn, and by a turn.
async fn refused(driver: &dyn ContainerDriver, image: &str, place: &Path, names: &str) {
    let error = driver.verify(image).await.expect_err(image);
    assert!(matches!(error, DriverError::Image { .. }), "{image}: {} {error}", error.code());
    assert!(error.to_string().contains(names), "it is named: {error}");
    assert!(error.remedy().is_some(), "{error}");
    let (uid, gid) = ordinary();
    let spec = ContainerSpec {
        name: "roundtable-sandbox-00000000000000aa-00000000".to_owned(),
        image: image.to_owned(),
        run_dir: place.join("run"),
        workspace_dir: place.join("work"),
        channel_dir: None,
        uid,
        gid,
        limits: Limits::default(),
    };
    for directory in [&spec.run_dir, &spec.workspace_dir] {
        std::fs::create_dir_all(directory).expect("a directory");
    }
    let error = driver.run(&spec, b"", &CancellationToken::new(), &()).await.expect_err(image);
    assert!(matches!(error, DriverError::Image { .. }), "{image}: {} {error}", error.code());
}
