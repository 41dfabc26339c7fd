//! `turnjail turn` with the Docker driver in its configuration.

use serde_json::Value;
use turnjail_tests::model::{Answer, Model, last_message};
use turnjail_tests::{archive, engine};

use crate::account::{Account, Run, program};

/// One turn by a configuration that ends with `docker`.
fn turn(docker: &str) -> Run {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let model = runtime.block_on(Model::start(|request| {
        Answer::Says(format!("You said: {}", last_message(request)))
    }));
    let account = Account::new();
    let directory = account.path("home/.config/turnjail");
    std::fs::create_dir_all(&directory).unwrap();
    let text = format!(
        "[model]\nname = \"m\"\nurl = \"{}\"\napi_key = \"none\"\nallow_http = true\n\
         [turn]\ndriver = \"docker\"\n[docker]\n{docker}\n",
        model.url()
    );
    std::fs::write(directory.join("turnjail.toml"), text).unwrap();
    let turnjail = program().with_file_name("turnjail");
    let mut command = account.command_of(&turnjail, &["turn", "--json", "Hello!"]);
    command.env("PATH", "/usr/local/bin:/usr/bin:/bin");
    Run::of(&command.output().unwrap())
}

fn check(run: &Run) {
    assert_eq!(run.code, 0, "{run:?}");
    let answer: Value = serde_json::from_str(&run.out).expect("JSON");
    assert_eq!(answer["text"], "You said: Hello!");
    assert!(run.out.contains("\"docker\""), "the receipt names the driver: {run:?}");
}

pub fn by_itself() {
    check(&turn(&format!("program = \"{}\"", program().display())));
    let absent = turn("program = \"/nonexistent/docker\"");
    assert_eq!(absent.code, 1, "{absent:?}");
    assert!(absent.err.contains("docker.program"), "{absent:?}");
}

pub fn by_docker() {
    let host = engine::options().host.expect("a host");
    engine::docker(&["load"], &archive::worker("turnjail-worker:latest"));
    check(&turn(&format!("host = \"{host}\"")));
}
