//! In places that are turnjail's own or only a process can bring about: inside one of its jails, as root
//! without one capability, from a program or a host that the kernel lets nobody look at.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value, json};
use turnjail_driver::ExitReason;
use turnjail_jail::client::Client;
use turnjail_jail::{JailSpec, Profile};
use turnjail_tests::jails::Bench;
use turnjail_tests::roots::Root;

use super::environment::{Account, Fact, Run, finish, program};
use super::judge::Around;
use super::{Test, filters};
use crate::tests;

pub const TESTS: &[Test] = tests![&[Fact::Jail];
    inside_a_jail_of_its_own,
    p19_a_host_that_nobody_may_look_at,
    the_older_way_of_mounting_is_a_degradation,
];

pub const ROOT_TESTS: &[Test] = tests![&[Fact::Root, Fact::Unshare];
    p16_root_without_the_capability_to_map_its_id,
    p19_a_program_that_nobody_may_read,
];

/// Words that have this program do something itself.
const IN_A_JAIL: &str = "--in-a-jail";
const START_WARDEN: &str = "--start-a-warden";
const UNSEEN: &str = "--unseen";

/// When this program was started for a test of this file: does its part.
pub fn asked() -> Option<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    match arguments.next()?.as_str() {
        IN_A_JAIL => Some(in_a_jail(&arguments.collect::<Vec<_>>())),
        START_WARDEN => Some(start_warden()),
        UNSEEN => {
            nix::sys::prctl::set_dumpable(false).unwrap();
            Some(run_a_jail())
        }
        _ => None,
    }
}

/// This program as an ordinary user, to do such a part.
fn part(account: &Account, word: &str, arguments: &[&str]) -> Run {
    let mut words = vec![word];
    words.extend(arguments);
    finish(account.command_of_user(filters::helper(), &words))
}

/// The program in the place of a general image's: prints what it said, and ends as it did.
fn in_a_jail(arguments: &[String]) -> ExitCode {
    let [program, rest @ ..] = arguments else { return ExitCode::from(2) };
    let bench = Bench::new();
    let root = Root::new(&bench.path("root")).unwrap();
    root.program(Path::new(program), "/bin/turnjail").unwrap();
    let configuration = "[model]\nname = \"test-model\"\nurl = \"http://127.0.0.1:9/\"\n\
                         api_key = { env = \"TEST_KEY\" }\nallow_http = true\nretries = 0\n\
                         [directories]\nimages = \"/workspace/images\"\n";
    fs::write(bench.path("workspace").join("turnjail.toml"), configuration).unwrap();
    let mut spec: JailSpec = bench.spec(Profile::General, &[]);
    spec.command =
        std::iter::once("/bin/turnjail".to_owned()).chain(rest.iter().cloned()).collect();
    // Of the places that may be written only the workspace allows programs, which an image store and
    // doctor's demonstration need.
    let key = std::env::var("TEST_KEY").unwrap();
    spec.environment = vec![format!("TEST_KEY={key}"), "TMPDIR=/workspace".to_owned()];
    spec.limits.time_ms = 60_000;
    let ended = bench.run(&spec, b"").unwrap();
    print!("{}", String::from_utf8_lossy(&ended.stdout));
    eprint!("{}", String::from_utf8_lossy(&ended.stderr));
    match ended.exit.status {
        turnjail_jail::Status::Code(code) => ExitCode::from(code as u8),
        other @ turnjail_jail::Status::Signal(_) => panic!("{other:?}: {}", ended.cause()),
    }
}

/// Neither can a jail be made in a jail, nor is it said that anything else is the matter.
fn inside_a_jail_of_its_own() {
    let account = Account::new();
    let program = program().to_str().unwrap();
    let configuration = ["--config", "/workspace/turnjail.toml"];
    let said = |command: &[&str]| {
        let run = part(&account, IN_A_JAIL, &[&[program], command, &configuration].concat());
        assert_eq!(run.code, 4, "{run:?}");
        let text = if run.out.trim().is_empty() { run.err.clone() } else { run.out.clone() };
        let start = text.find('{').unwrap_or_else(|| panic!("{run:?}"));
        serde_json::from_str::<Value>(&text[start..]).unwrap_or_else(|e| panic!("{e}: {run:?}"))
    };
    let found = said(&["doctor", "--json"]);
    let checks = found["checks"].as_array().unwrap();
    let surroundings = checks.iter().find(|check| check["name"] == "surroundings").unwrap();
    assert!(surroundings["evidence"].as_str().unwrap().contains("forbids nesting"), "{found:#}");
    let failed: Vec<&Value> = checks.iter().filter(|check| check["state"] == "failed").collect();
    assert!(!failed.is_empty(), "{found:#}");
    for check in failed {
        assert_eq!(check["code"], "nested-turnjail", "{check:#}");
        assert!(check["remedy"].as_str().unwrap().contains("outside of that jail"), "{check:#}");
    }
    let error = said(&["turn", "--json", "hi"]);
    assert_eq!(error["error"]["code"], "nested-turnjail", "{error:#}");
    let problem = &error["error"]["problems"][0];
    assert!(problem["cause"].as_str().unwrap().contains("forbids nesting"), "{error:#}");
}

/// A warden alone, which root may have as well; prints its failure.
fn start_warden() -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (code, remedy) = match runtime.block_on(Client::start()) {
        Ok(_) => ("none", None),
        Err(error) => (error.code(), error.remedy()),
    };
    println!("{}", json!({"code": code, "remedy": remedy}));
    ExitCode::SUCCESS
}

fn p16_root_without_the_capability_to_map_its_id() {
    let account = Account::new();
    let start = |words: &[&str]| {
        let mut command = account.command_as_is(Path::new("setpriv"), words);
        command.arg("--").arg(filters::helper()).arg(START_WARDEN);
        finish(command).json()
    };
    assert_eq!(start(&[])["code"], "none", "root with everything");
    let found = start(&["--bounding-set=-setfcap", "--inh-caps=-setfcap"]);
    assert_eq!(found["code"], "setfcap", "{found}");
    assert!(found["remedy"].as_str().unwrap().contains("ordinary user"), "{found}");
    // The program itself goes no further as root, whatever it holds, and says what helps here, too.
    let mut command = account.command_as_is(Path::new("setpriv"), &["--bounding-set=-setfcap"]);
    command.args(["--inh-caps=-setfcap", "--"]).arg(program()).arg("doctor");
    let doctor = finish(command);
    doctor.assert_refused(2, "root");
    assert!(doctor.err.contains("ordinary user"), "{doctor:?}");
}

/// Makes a jail and runs a program in it.
fn run_a_jail() -> ExitCode {
    let bench = Bench::new();
    for profile in [Profile::Sealed, Profile::General] {
        let spec = bench.spec_for(profile, &[json!(["write", "/workspace/file", "x"])]);
        let ended = bench.run(&spec, b"").unwrap_or_else(|error| {
            panic!("{profile}: {error}: {} ({})", error.remedy().unwrap_or_default(), error.code())
        });
        assert_eq!(ended.reason, ExitReason::Ok, "{}", ended.cause());
    }
    ExitCode::SUCCESS
}

/// Its entries in /proc are root's then. The warden is another program, of which that is not true.
fn p19_a_host_that_nobody_may_look_at() {
    let account = Account::new();
    let run = part(&account, UNSEEN, &[]);
    assert_eq!(run.code, 0, "{run:?}");
}

fn p19_a_program_that_nobody_may_read() {
    let account = Account::new();
    account.ask("http://127.0.0.1:9/", "");
    let directory = tempfile::Builder::new().prefix("turnjail-unread-").tempdir_in("/tmp").unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let unread: PathBuf = directory.path().join("turnjail");
    fs::copy(program(), &unread).unwrap();
    fs::set_permissions(&unread, fs::Permissions::from_mode(0o711)).unwrap();
    let run = |arguments: &[&str]| finish(account.command_of_user(&unread, arguments));
    let cat = account.command_of_user(Path::new("cat"), &[unread.to_str().unwrap()]);
    assert_ne!(finish_bytes(cat), 0, "the control reads it");
    let doctor = run(&["doctor", "--json"]);
    assert_eq!(doctor.code, 0, "{doctor:?}");
    let turn = run(&["turn", "hi"]);
    turn.assert_refused(1, "model");
}

fn finish_bytes(mut command: std::process::Command) -> i32 {
    command.output().unwrap().status.code().unwrap()
}

/// As on Linux 5.10, in parts, or under a filter that does not know the newer calls.
fn the_older_way_of_mounting_is_a_degradation() {
    for filter in ["mount-calls", "open_tree", "move_mount", "mount_setattr"] {
        let (helper, arguments) = filters::under(filter, Path::new("env"));
        let around = Around::of(&helper, arguments);
        around.must_degrade("mount-calls", "Linux 5.12");
        let found = around.run(&Account::new(), &["doctor", "--json"]).json();
        let checks = found["checks"].as_array().unwrap();
        assert!(checks.iter().all(|check| check["state"] != "failed"), "{filter}: {found:#}");
        let of_blocks: Vec<&Value> =
            checks.iter().filter(|check| check["code"] == "mount-calls").collect();
        assert_eq!(of_blocks.len(), 1, "{filter}: what stands on it is not tried: {found:#}");
        let name = match filter {
            "mount_setattr" => "mount flags",
            "move_mount" => "attached mounts",
            _ => "detached mounts",
        };
        assert_eq!(of_blocks[0]["name"], name, "{filter}");
    }
}
