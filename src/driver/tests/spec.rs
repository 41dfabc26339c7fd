//! The specifications that the reference driver refused are refused, and the others are taken.

use std::path::PathBuf;

use serde_json::Value;
use turnjail_driver::{ContainerSpec, Limits};

/// The recorded specification, or none where its numbers do not even fit the types.
fn spec(recorded: &Value) -> Option<ContainerSpec> {
    let text = |key: &str| recorded[key].as_str().unwrap_or_default().to_owned();
    let id = |key: &str| u32::try_from(recorded[key].as_u64()?).ok();
    let defaults = Limits::default();
    let whole = |key: &str, default: u32| match &recorded[key] {
        Value::Null => Some(default),
        value => u32::try_from(value.as_u64()?).ok(),
    };
    let cpus = match &recorded["cpus"] {
        Value::Null => defaults.cpus,
        Value::String(word) => word.parse().ok()?,
        value => value.as_f64()?,
    };
    Some(ContainerSpec {
        name: text("name"),
        image: text("image"),
        run_dir: PathBuf::from(text("runDir")),
        workspace_dir: PathBuf::from(text("workspaceDir")),
        channel_dir: None,
        uid: id("uid")?,
        gid: id("gid")?,
        limits: Limits {
            memory_mb: whole("memoryMb", defaults.memory_mb)?,
            cpus,
            pids: whole("pids", defaults.pids)?,
            ..defaults
        },
    })
}

#[test]
fn recorded_specifications_are_judged_as_by_the_reference() {
    let cases: Vec<Value> =
        serde_json::from_str(include_str!("../../../tests/vectors/container_args.json")).unwrap();
    assert!(cases.len() > 30, "the vectors are whole");
    for case in cases {
        let refused = spec(&case["spec"]).is_none_or(|spec| spec.check().is_err());
        assert_eq!(refused, case["error"].as_bool().unwrap(), "{}", case["name"]);
    }
}

fn good() -> ContainerSpec {
    ContainerSpec {
        name: "roundtable-sandbox-0123456789abcdef-01234567".to_owned(),
        image: "turnjail-worker".to_owned(),
        run_dir: "/srv/run/turn-abcdef".into(),
        workspace_dir: "/srv/work/guild-x".into(),
        channel_dir: Some("/srv/work/state-x".into()),
        uid: 1000,
        gid: 1000,
        limits: Limits::default(),
    }
}

#[test]
fn channel_directory_is_checked_like_the_others() {
    assert_eq!(good().check(), Ok(()));
    for (bad, names) in [
        ("/srv/work/guild-x", "channel_dir"),
        ("/srv/work/guild-x/inside", "channel_dir"),
        ("/srv/run", "channel_dir"),
        ("state", "absolute"),
        ("/", "root directory"),
        ("/srv/a,b", "comma"),
        ("/srv/a\nb", "control"),
        ("/srv/work/guild-x/../state", "'..'"),
    ] {
        let error = ContainerSpec { channel_dir: Some(bad.into()), ..good() }.check().unwrap_err();
        assert!(error.to_string().contains(names), "{bad}: {error}");
        assert!(!error.to_string().contains('\n'), "one line: {error:?}");
    }
}

#[test]
fn an_overflow_id_is_no_worker() {
    assert!(ContainerSpec { uid: u32::MAX, ..good() }.check().is_err());
}

#[test]
fn errors_name_the_field_and_the_range() {
    let error = |limits| ContainerSpec { limits, ..good() }.check().unwrap_err().to_string();
    assert!(
        error(Limits { memory_mb: 63, ..Limits::default() })
            .contains("memory_mb must be at least 64")
    );
    assert!(error(Limits { pids: 7, ..Limits::default() }).contains("pids must be at least 8"));
    assert!(
        error(Limits { cpus: 0.0, ..Limits::default() }).contains("cpus must be a number over 0")
    );
    assert!(error(Limits { time_ms: 0, ..Limits::default() }).contains("time_ms"));
}
