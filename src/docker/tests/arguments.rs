//! The client is told what the reference driver told it, argument by argument.

use std::path::PathBuf;

use serde_json::Value;
use turnjail_docker::{Kind, run_arguments};
use turnjail_driver::{ContainerSpec, Limits};

fn spec(recorded: &Value) -> ContainerSpec {
    let text = |key: &str| recorded[key].as_str().unwrap_or_default().to_owned();
    let number = |key: &str| recorded[key].as_u64().and_then(|number| u32::try_from(number).ok());
    let defaults = Limits::default();
    ContainerSpec {
        name: text("name"),
        image: text("image"),
        run_dir: PathBuf::from(text("runDir")),
        workspace_dir: PathBuf::from(text("workspaceDir")),
        channel_dir: None,
        uid: number("uid").unwrap(),
        gid: number("gid").unwrap(),
        limits: Limits {
            memory_mb: number("memoryMb").unwrap_or(defaults.memory_mb),
            cpus: recorded["cpus"].as_f64().unwrap_or(defaults.cpus),
            pids: number("pids").unwrap_or(defaults.pids),
            ..defaults
        },
    }
}

fn recorded() -> Vec<(String, ContainerSpec, Vec<String>)> {
    let cases: Vec<Value> =
        serde_json::from_str(include_str!("../../../tests/vectors/container_args.json")).unwrap();
    let taken = cases.iter().filter_map(|case| {
        let arguments = case["args"].as_array()?;
        let arguments = arguments.iter().map(|word| word.as_str().unwrap().to_owned()).collect();
        Some((case["name"].as_str().unwrap().to_owned(), spec(&case["spec"]), arguments))
    });
    taken.collect()
}

fn words(spec: &ContainerSpec, kind: Kind) -> Vec<String> {
    run_arguments(spec, kind).into_iter().map(|word| word.into_string().unwrap()).collect()
}

#[test]
fn every_recorded_specification_gives_the_recorded_arguments() {
    let cases = recorded();
    assert!(cases.len() > 10, "the vectors are whole");
    for (name, spec, arguments) in cases {
        spec.check().expect(&name);
        assert_eq!(words(&spec, Kind::Docker), arguments, "{name}");
        assert_eq!(words(&spec, Kind::Podman), arguments, "{name}");
    }
}

#[test]
fn a_channel_directory_is_mounted_after_the_workspace() {
    let (_, spec, mut expected) = recorded().swap_remove(0);
    let spec = ContainerSpec { channel_dir: Some("/srv/state/x".into()), ..spec };
    let after = expected.iter().position(|word| word == "--env").unwrap();
    let mount = "type=bind,src=/srv/state/x,dst=/channel,bind-propagation=rprivate";
    expected.splice(after..after, ["--mount".to_owned(), mount.to_owned()]);
    assert_eq!(words(&spec, Kind::Docker), expected);
}

#[test]
fn rootless_podman_keeps_the_users_id() {
    let (_, spec, mut expected) = recorded().swap_remove(0);
    let after = expected.iter().position(|word| word == "--user").unwrap() + 2;
    expected.insert(after, "--userns=keep-id".to_owned());
    assert_eq!(words(&spec, Kind::RootlessPodman), expected);
}
