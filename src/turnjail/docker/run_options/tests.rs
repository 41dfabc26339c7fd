//! What `run` takes and what it refuses.

use std::path::PathBuf;

use proptest::prelude::*;
use serde_json::Value;

use super::*;

const IDS: (u32, u32) = (1000, 1000);

fn recorded() -> Vec<Value> {
    serde_json::from_str(include_str!("../../../../tests/vectors/container_args.json")).unwrap()
}

fn words(list: &Value) -> Option<Vec<String>> {
    let words = list.as_array()?.iter().skip(1);
    Some(words.map(|word| word.as_str().unwrap().to_owned()).collect())
}

/// The arguments of the first recorded run, without `run`.
fn usual() -> Vec<String> {
    words(&recorded()[0]["args"]).unwrap()
}

/// The usual arguments with one more before the image.
fn with(more: &[&str]) -> Vec<String> {
    let mut arguments = usual();
    let image = arguments.pop().unwrap();
    arguments.extend(more.iter().map(|word| (*word).to_owned()));
    arguments.push(image);
    arguments
}

/// The usual arguments with a value replaced.
fn replaced(flag: &str, value: &str) -> Vec<String> {
    let mut arguments = usual();
    let at = arguments.iter().position(|word| word == flag).unwrap();
    value.clone_into(&mut arguments[at + 1]);
    arguments
}

fn without(flag: &str, words: usize) -> Vec<String> {
    let mut arguments = usual();
    let at = arguments.iter().position(|word| word == flag).unwrap();
    arguments.drain(at..at + words);
    arguments
}

fn read(arguments: &[String]) -> Result<RunOptions, Failure> {
    RunOptions::parse(arguments, IDS, "turnjail-1")
}

#[test]
fn every_recorded_run_is_read_back_as_what_it_was_made_of() {
    let mut read_back = 0;
    for case in recorded() {
        let Some(arguments) = words(&case["args"]) else { continue };
        let spec = &case["spec"];
        let ids = (spec["uid"].as_u64().unwrap() as u32, spec["gid"].as_u64().unwrap() as u32);
        let run = RunOptions::parse(&arguments, ids, "x").expect("a recorded run");
        assert!(run.interactive);
        let text = |key: &str| spec[key].as_str().unwrap().to_owned();
        assert_eq!(run.spec.name, text("name"));
        assert_eq!(run.spec.image, text("image"));
        assert_eq!(run.spec.run_dir, PathBuf::from(text("runDir")));
        assert_eq!(run.spec.workspace_dir, PathBuf::from(text("workspaceDir")));
        assert_eq!(u64::from(run.spec.limits.memory_mb), spec["memoryMb"].as_u64().unwrap_or(512));
        assert_eq!(u64::from(run.spec.limits.pids), spec["pids"].as_u64().unwrap_or(64));
        assert!((run.spec.limits.cpus - spec["cpus"].as_f64().unwrap_or(1.0)).abs() < f64::EPSILON);
        assert_eq!(run.spec.check(), Ok(()));
        read_back += 1;
    }
    assert!(read_back > 10);
}

#[test]
fn options_that_isolate_are_never_passed_over() {
    for (arguments, says) in [
        (with(&["--privileged"]), "unknown flag: --privileged"),
        (with(&["--cap-add", "SYS_ADMIN"]), "unknown flag: --cap-add"),
        (with(&["--device", "/dev/kvm"]), "unknown flag: --device"),
        (with(&["--pid", "host"]), "unknown flag: --pid"),
        (with(&["--volume", "/:/host"]), "unknown flag: --volume"),
        (with(&["--entrypoint", "sh"]), "unknown flag: --entrypoint"),
        (with(&["--userns=host"]), "unknown flag: --userns"),
        (with(&["--detach"]), "unknown flag: --detach"),
        (with(&["--tty"]), "unknown flag: --tty"),
        (with(&["--network", "host"]), "no network"),
        (replaced("--network", "bridge"), "no network"),
        (without("--network", 2), "--network none"),
        (without("--read-only", 1), "--read-only"),
        (with(&["--read-only=false"]), "--read-only"),
        (without("--rm", 1), "--rm"),
        (with(&["--security-opt", "seccomp=unconfined"]), "filters"),
        (with(&["--security-opt", "no-new-privileges:false"]), "no_new_privs"),
        (with(&["--security-opt", "apparmor=x"]), "filters"),
        (replaced("--user", "0:0"), "1000:1000"),
        (replaced("--user", "1000:0"), "1000:1000"),
        (replaced("--user", "root"), "1000:1000"),
        (with(&["--ulimit", "nofile=1024:1024"]), "256"),
        (with(&["--ulimit", "core=0"]), "256"),
        (with(&["--tmpfs", "/run"]), "/tmp"),
        (with(&["--mount", "type=bind,src=/,dst=/host"]), "/host"),
        (with(&["--env", "LD_PRELOAD=/x"]), "environment"),
        (replaced("--memory-swap", "1g"), "swaps"),
        (replaced("--memory-swap", "-1"), "swaps"),
        (replaced("--memory", "256m"), "swaps"),
        (replaced("--memory", "lots"), "invalid size"),
        (replaced("--cpus", "0"), "over 0"),
        (replaced("--cpus", "NaN"), "over 0"),
        (replaced("--cpus", "many"), "number"),
        (replaced("--pids-limit", "-1"), "from 8"),
        (replaced("--pids-limit", "7"), "at least 8"),
        (replaced("--pull", "always"), "never"),
        (replaced("--log-driver", "json-file"), "none"),
    ] {
        let failure = format!("{:?}", read(&arguments).expect_err(says));
        assert!(failure.contains(says), "{says}: {failure}");
    }
    let mut small = without("--memory-swap", 2);
    let at = small.iter().position(|word| word == "--memory").unwrap();
    "63m".clone_into(&mut small[at + 1]);
    assert!(format!("{:?}", read(&small).unwrap_err()).contains("at least 64"));
    let mut command = usual();
    command.push("sh".to_owned());
    assert!(format!("{:?}", read(&command).unwrap_err()).contains("Entrypoint"));
    let image = usual().len() - 1;
    assert!(format!("{:?}", read(&usual()[..image]).unwrap_err()).contains("requires at least 1"));
}

#[test]
fn what_a_jail_has_anyway_may_be_left_out() {
    for arguments in [
        without("--cap-drop", 2),
        without("--security-opt", 2),
        without("--ulimit", 2),
        without("--tmpfs", 2),
        without("--env", 2),
        without("--user", 2),
        without("--pull", 2),
        without("--log-driver", 2),
        without("--sig-proxy=false", 1),
        without("--memory-swap", 2),
    ] {
        assert_eq!(read(&arguments), read(&usual()));
    }
    assert_eq!(read(&without("--name", 2)).unwrap().spec.name, "turnjail-1");
    assert!(!read(&without("--interactive", 1)).unwrap().interactive);
}

proptest! {
    /// Whatever is typed among the usual arguments: an error, or a run with nothing looser than usual.
    #[test]
    fn nothing_that_is_typed_opens_a_jail(
        more in proptest::collection::vec(
            prop_oneof![
                "--[a-z-]{1,12}(=[a-z0-9:/,=]{0,10})?",
                "-[a-z]{1,3}",
                "(none|host|ALL|0:0|1000:1000|/:/x|true|false|64m|[a-z0-9=,/:.-]{0,24})",
                "type=(bind|tmpfs),src=/[a-z]{0,3},dst=/(workspace|channel|broker|x)(,ro|,readonly=false)?",
            ],
            0..6,
        ),
        at in 0usize..40,
    ) {
        let mut arguments = usual();
        let at = at.min(arguments.len());
        arguments.splice(at..at, more);
        if let Ok(run) = read(&arguments)
            && run.spec.check().is_ok()
        {
            prop_assert_eq!((run.spec.uid, run.spec.gid), IDS);
            prop_assert!(run.spec.limits.check().is_ok());
            let text = arguments.join(" ");
            for word in ["--privileged", "--cap-add", "--device", "--network host", "--network=host"] {
                prop_assert!(!text.contains(word) || run.spec.image.contains(word), "{}", text);
            }
        }
    }
}
