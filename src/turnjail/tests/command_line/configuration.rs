//! `turnjail config check`, and what a wrong configuration does to a turn.

use super::Test;
use super::environment::{Account, KEY, finish};
use crate::tests;

pub const TESTS: &[Test] = tests![&[];
    what_is_in_effect_is_shown_with_its_origin,
    every_mistake_is_reported_at_once,
    a_broken_configuration_starts_nothing,
    what_a_start_would_refuse_is_refused_by_the_check,
    the_example_passes_the_check,
    variables_alone_can_be_a_configuration,
    what_a_start_would_refuse_is_said_by_its_name_and_line,
    places_that_cannot_be_used_are_found_without_making_any,
    a_path_with_a_line_break_stays_one_line,
];

const URL: &str = "http://127.0.0.1:9/v1/chat/completions";

fn what_is_in_effect_is_shown_with_its_origin() {
    let account = Account::new();
    account.ask(URL, "[limits]\npids = 32\n");
    let arguments = ["config", "check", "--json", "--set", "limits.memory_mb=256"];
    let mut command = account.command(&arguments);
    command.env("TURNJAIL_TURN_TIMEOUT_S", "30");
    let run = finish(command);
    assert_eq!(run.code, 0, "{run:?}");
    let json = run.json();
    let settings = json["settings"].as_array().unwrap();
    let of = |key: &str| {
        let setting = settings.iter().find(|one| one["key"] == key).unwrap();
        (setting["value"].clone(), setting["from"].as_str().unwrap())
    };
    assert_eq!(of("limits.memory_mb"), (256.into(), "flag"));
    assert_eq!(of("turn.timeout_s"), (30.into(), "environment"));
    assert_eq!(of("limits.pids"), (32.into(), "file"));
    assert_eq!(of("limits.cpus"), (1.0.into(), "default"));
    assert_eq!(of("model.api_key").0, "(hidden, from the environment variable TEST_KEY)");
    let text = account.run(&["config", "check"]).out;
    assert!(text.contains("limits.pids") && text.contains("32  # line"), "{text}");
    assert!(!text.contains('\x1b'), "no colours into a pipe");
}

fn every_mistake_is_reported_at_once() {
    let account = Account::new();
    account.ask(URL, "[limits]\npids = 1\nswap = 2\n[turn]\ntimeout_s = \"long\"\n");
    let run = account.run(&["config", "check"]);
    assert_eq!(run.code, 2);
    let causes: Vec<_> = run.err.lines().filter(|line| line.starts_with("error: ")).collect();
    let remedies = run.err.lines().filter(|line| line.starts_with("remedy: ")).count();
    assert_eq!((causes.len(), remedies), (3, 3), "{run:?}");
    assert!(causes[0].contains("turnjail.toml:8: limits.pids is 1"), "{run:?}");
    assert!(causes[2].contains("turnjail.toml:11: turn.timeout_s"), "{run:?}");
    assert!(run.err.contains("from 8 to 32768") && run.err.contains("from 1 to 600"));
}

fn a_broken_configuration_starts_nothing() {
    let account = Account::new();
    account.configure("[model\nname = 1");
    account.run(&["turn", "hi"]).assert_refused(2, "turnjail.toml:1: this is not TOML");
    account.configure(&format!("[model]\nname = \"m\"\nurl = \"{URL}\"\napi_key = \"{KEY}\"\n"));
    account
        .run(&["turn", "hi"])
        .assert_refused(2, "turnjail.toml:4: model.api_key names no source");
    assert!(!account.path("run/turnjail").exists());
    assert!(!account.path(".local").exists());
}

fn what_a_start_would_refuse_is_refused_by_the_check() {
    let account = Account::new();
    let long = format!("[directories]\nrun = \"/tmp/{}\"\n", "x".repeat(80));
    for (url, more, cause) in [
        ("https://user:pass@example.org/", "", "model.url"),
        ("ftp://example.org/", "", "model.url"),
        (URL, "[model.extra_fields]\nstream = true\n", "extra_fields"),
        (URL, "[turn]\ntime_zone = \"Mars/Olympus\"\n", "time_zone"),
        (URL, "[budgets]\nprompt_bytes = 65536\nrequest_bytes = 95744\n", "budgets.request_bytes"),
        (URL, "proxy = \"http://user:pass@proxy:3128\"\n", "proxy must be"),
        (URL, "ca_file = \"none.pem\"\n", "none.pem"),
        (URL, &long, "is too long"),
        (URL, "[files]\n[budgets]\ntool_result_bytes = 512\n", "budgets.tool_result_bytes"),
    ] {
        account.ask(url, more);
        let run = account.run(&["config", "check"]);
        run.assert_refused(2, cause);
        assert!(!run.err.contains("user:pass"), "{run:?}");
    }
    assert!(!account.path("run/turnjail").exists(), "a check makes nothing");
}

fn the_example_passes_the_check() {
    let account = Account::new();
    let example = include_str!("../../../../turnjail.example.toml");
    std::fs::write(account.path(".config/turnjail/ticket.key"), "k-of-a-ticket").unwrap();
    account.configure(example);
    let mut command = account.command(&["config", "check"]);
    command.env("WEATHER_KEY", KEY).env("OPENAI_API_KEY", KEY);
    let run = finish(command);
    assert_eq!(run.code, 0, "{run:?}");
    // Without its secret a tool would fail later; so it is said now.
    account.run(&["config", "check"]).assert_refused(2, "WEATHER_KEY is not set");
}

fn variables_alone_can_be_a_configuration() {
    let account = Account::new();
    let mut command = account.command(&["config", "check", "--json"]);
    command
        .env("TURNJAIL_MODEL_NAME", "m")
        .env("TURNJAIL_MODEL_URL", "https://example.org/v1/chat/completions")
        .env("TURNJAIL_MODEL_API_KEY", KEY);
    let run = finish(command);
    assert_eq!(run.code, 0, "{run:?}");
    account.run(&["config", "check"]).assert_refused(2, "cannot be read");
}

fn what_a_start_would_refuse_is_said_by_its_name_and_line() {
    let account = Account::new();
    let long = format!("[directories]\nrun = \"/tmp/{}\"\n", "x".repeat(100));
    account.ask(URL, &long);
    for command in [&["config", "check"][..], &["turn", "hi"]] {
        let run = account.run(command);
        run.assert_refused(2, "turnjail.toml:8: directories.run");
        assert!(!run.err.contains("run_root"), "{run:?}");
    }
    account.ask(URL, "[turn]\ntime_zone = \"Mars/Olympus\"\n");
    account.run(&["config", "check"]).assert_refused(2, "turnjail.toml:8: turn.time_zone");
    let set = account.run(&["config", "check", "--set", "turn.time_zone=Moon"]);
    set.assert_refused(2, "--set turn.time_zone: turn.time_zone");
}

fn places_that_cannot_be_used_are_found_without_making_any() {
    let account = Account::new();
    let file = account.path("file");
    std::fs::write(&file, "x").unwrap();
    let file = file.display();
    let new = account.path("new");
    for (more, cause) in [
        (format!("[directories]\nworkspaces = \"{file}\"\n"), "directories.workspaces"),
        (format!("[directories]\nimages = \"{file}/below\"\n"), "is not a directory"),
        ("[directories]\nrun = \"/proc/turnjail\"\n".to_owned(), "directories.run"),
        ("[audit]\nfile = \"/nowhere/audit\"\n".to_owned(), "audit.file"),
        ("[audit]\nfile = \"/tmp\"\n".to_owned(), "is not a regular file"),
        ("[turn]\nimage = \"nobody/has:it\"\n".to_owned(), "turn.image"),
    ] {
        account.ask(URL, &more);
        let run = account.run(&["config", "check"]);
        run.assert_refused(2, cause);
        assert!(run.err.contains("turnjail.toml:8: "), "{run:?}");
    }
    account.ask(
        URL,
        &format!("[directories]\nimages = \"{0}\"\nworkspaces = \"{0}/w\"\n", new.display()),
    );
    assert_eq!(account.run(&["config", "check"]).code, 0);
    assert!(!new.exists(), "a check makes nothing");
}

fn a_path_with_a_line_break_stays_one_line() {
    let account = Account::new();
    let path = account.path("two\nlines.toml");
    let path = path.to_str().unwrap();
    let missing = account.run(&["--config", path, "config", "check"]);
    missing.assert_refused(2, "two\\nlines.toml");
    assert_eq!(missing.err.lines().count(), 2, "{missing:?}");
    std::fs::write(path, "nonsense = true\n").unwrap();
    let wrong = account.run(&["--config", path, "config", "check"]);
    assert!(wrong.err.contains("two\\nlines.toml:1: "), "{wrong:?}");
    assert!(wrong.err.lines().all(|line| line.contains(": ")), "{wrong:?}");
}
