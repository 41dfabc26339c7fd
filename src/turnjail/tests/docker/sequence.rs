//! What a driver calls for a turn, and what it is answered.

use serde_json::{Value, json};
use turnjail_tests::script::{Broker, Response};

use crate::account::Account;

const NAME: &str = "roundtable-sandbox-0123456789abcdef-01234567";

fn turn() -> Value {
    json!({
        "text": "Hello?", "speaker": {"id": "ann", "name": "Ann"}, "model": "m", "prompt": "Answer.",
        "timeZone": "UTC", "reset": false, "tools": [], "mcp": [],
    })
}

/// The recorded arguments, by real directories: the worker in a real jail asks the broker and answers.
pub fn recorded() {
    let account = Account::new();
    let broker =
        Broker::listen(&account.path("run/broker.sock"), vec![Response::text("Hello, Ann.")]);
    let arguments = account.arguments(NAME, "turnjail-worker");
    let run = account.run(&arguments, turn().to_string().as_bytes());
    assert_eq!(
        (run.code, run.out.as_str()),
        (0, "{\"ok\":true,\"text\":\"Hello, Ann.\"}"),
        "{run:?}"
    );
    assert_eq!(broker.stop().len(), 1);
    assert!(account.path("work/history.json").exists(), "what it kept is on the host");
}

/// The calls of the TypeScript driver in their order: the label, the run, the removal.
pub fn whole() {
    let account = Account::new();
    let label = ["image", "inspect", "--format", "{{json .Config.Labels}}", "turnjail-worker"];
    let labels = account.run(&label, b"");
    let labels: Value = serde_json::from_str(&labels.out).expect("labels");
    assert_eq!(labels["roundtable.sandbox.protocol"], "2");
    let index = "{{ index .Config.Labels \"roundtable.sandbox.protocol\" }}";
    let one = account.run(&["image", "inspect", "--format", index, "turnjail-worker"], b"");
    assert_eq!((one.code, one.out.as_str()), (0, "2\n"));
    let whole = account.run(&["image", "inspect", "turnjail-worker"], b"");
    let whole: Value = serde_json::from_str(&whole.out).expect("JSON");
    assert_eq!(whole[0]["Config"]["Entrypoint"], json!(["/worker"]));

    let run = account.run(&account.arguments(NAME, "turnjail-worker"), b"{}");
    assert_eq!(
        (run.code, run.out.as_str()),
        (1, "{\"ok\":false,\"text\":\"The sandbox worker failed.\"}")
    );
    assert!(run.err.contains("{\"error\":\"invalid_turn\"}\n"), "{run:?}");

    let removed = account.run(&["rm", "--force", NAME], b"");
    assert_eq!((removed.code, removed.out.as_str()), (0, ""), "it is gone with its run");
    assert_eq!(removed.err, format!("Error: No such container: {NAME}\n"));
    let absent = account.run(&["image", "inspect", "nothing:1"], b"");
    assert_eq!((absent.code, absent.out.as_str()), (1, "[]\n"));
    assert_eq!(absent.err, "Error: No such image: nothing:1\n");
    let run = account.run(&account.arguments(NAME, "nothing:1"), b"{}");
    assert_eq!(run.code, 125);
    assert!(run.err.starts_with("docker: Error response from daemon: No such image"), "{run:?}");
}

pub fn limits() {
    let account = Account::new();
    let arguments = account.arguments(NAME, "turnjail-worker");
    let told = account.run(&arguments, b"{}").err;
    let line = told.lines().find(|line| line.starts_with("turnjail: limits without a cgroup"));
    let configuration = account.path("home/.config/turnjail");
    std::fs::create_dir_all(&configuration).unwrap();
    std::fs::write(configuration.join("turnjail.toml"), "[jail]\nlimits = \"required\"\n").unwrap();
    let run = account.run(&arguments, b"{}");
    if let Some(line) = line {
        assert!(line.contains("memory by") && line.contains("cpu share"), "{line}");
        assert_eq!((run.code, run.out.as_str()), (125, ""), "{run:?}");
        assert!(run.err.contains("limits"), "{run:?}");
    } else {
        assert_eq!(run.code, 1, "with a cgroup a required limit is met: {run:?}");
    }
    std::fs::write(configuration.join("turnjail.toml"), "[jail]\nlimits = \"perhaps\"\n").unwrap();
    let run = account.run(&arguments, b"{}");
    assert_eq!(run.code, 125);
    assert!(run.err.contains("turnjail.toml:2"), "{run:?}");
}

pub fn unknown() {
    let account = Account::new();
    let mut arguments = account.arguments(NAME, "turnjail-worker");
    arguments.insert(1, "--privileged".to_owned());
    let run = account.run(&arguments, b"{}");
    assert_eq!((run.code, run.out.as_str()), (125, ""));
    assert!(run.err.starts_with("unknown flag: --privileged\n"), "{run:?}");
    for (arguments, code, says) in [
        (&["exec", "x"][..], 1, "is not a docker command"),
        (&["network", "ls"], 1, "is not a docker command"),
        (&["--frob"], 125, "unknown flag"),
        (&["ps", "--frob"], 125, "unknown flag"),
        (&["ps", "--filter", "label=x"], 1, "invalid filter"),
        (&["images", "--format", "{{range .}}"], 1, "template parsing error"),
        (&["rm"], 1, "requires at least 1 argument"),
        (&["info", "--format", "{{.Absent}}"], 1, "Absent"),
    ] {
        let run = account.run(arguments, b"");
        assert_eq!(run.code, code, "{arguments:?}: {run:?}");
        assert!(run.err.contains(says), "{arguments:?}: {run:?}");
    }
    assert!(account.run(&["--version"], b"").out.starts_with("Docker version "));
    let server = account.run(&["version", "--format", "{{.Server.Version}}"], b"");
    assert_eq!(server.out, format!("{}\n", env!("CARGO_PKG_VERSION")));
    let info = account.run(&["info", "--format", "{{json .}}"], b"");
    let info: Value = serde_json::from_str(&info.out).expect("JSON");
    assert_eq!(info["OSType"], "linux");
}
