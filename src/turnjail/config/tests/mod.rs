//! What a configuration may say, and how a wrong one is reported.

mod example;
mod images;
mod secrets;
mod tools;

use std::path::{Path, PathBuf};
use std::time::Duration;

use turnjail_protocol::Files;

use super::*;

const LEAST: &str = r#"
[model]
name = "m"
url = "http://127.0.0.1:8080/v1/chat/completions"
api_key = { env = "KEY" }
"#;

fn host() -> Host {
    Host {
        uid: 1234,
        home: Some("/home/ann".into()),
        config_home: None,
        data_home: None,
        runtime_dir: Some("/run/user/1234".into()),
    }
}

fn read(text: &str, overlay: Overlay) -> Result<(Settings, Vec<Effective>), Vec<Finding>> {
    resolve(text, overlay, &host(), Path::new("/etc/bot"))
}

fn plain(text: &str) -> Settings {
    read(text, Overlay::default()).unwrap().0
}

fn findings(text: &str) -> Vec<Finding> {
    read(text, Overlay::default()).unwrap_err()
}

fn effective<'e>(effective: &'e [Effective], key: &str) -> &'e Effective {
    effective.iter().find(|one| one.key == key).unwrap_or_else(|| panic!("{key}"))
}

#[test]
fn the_least_configuration_gets_the_documented_defaults() {
    let settings = plain(LEAST);
    assert_eq!(settings.model.api_key, SecretSource::Environment("KEY".into()));
    assert_eq!(settings.model.timeout, Duration::from_secs(60));
    assert_eq!((settings.model.retries, settings.model.max_output_tokens), (2, 4096));
    assert!(!settings.model.allow_http);
    assert_eq!(settings.turn.timeout, Duration::from_secs(120));
    assert_eq!((settings.turn.max_waiting, settings.turn.max_calls), (4, 48));
    assert_eq!((settings.turn.memory_mb, settings.turn.pids), (512, 64));
    assert_eq!(settings.turn.time_zone, "UTC");
    assert_eq!(settings.files, None);
    assert_eq!(settings.directories.run, PathBuf::from("/run/user/1234/turnjail"));
    assert_eq!(
        settings.directories.workspaces,
        PathBuf::from("/home/ann/.local/share/turnjail/workspaces")
    );
    assert!(!settings.jail.limits_required && !settings.jail.landlock_required);
}

#[test]
fn an_empty_file_names_what_is_missing() {
    let causes: Vec<_> = findings("").into_iter().map(|finding| finding.cause).collect();
    assert_eq!(
        causes,
        ["model.name is missing", "model.url is missing", "model.api_key is missing"]
    );
}

#[test]
fn every_problem_is_reported_with_its_line_and_range() {
    let text = format!("{LEAST}\n[limits]\nmemory_mb = 12\npids = \"many\"\nswap = 1\n[lmits]\n");
    let findings = findings(&text);
    let said: Vec<_> = findings.iter().map(|f| (f.origin.clone(), f.cause.as_str())).collect();
    assert_eq!(
        said,
        [
            (Origin::Line(8), "limits.memory_mb is 12, which is not allowed"),
            (Origin::Line(9), "limits.pids is a string, which is not allowed"),
            (Origin::Line(10), "limits has no setting \"swap\""),
            (Origin::Line(11), "the file has no setting \"lmits\""),
        ]
    );
    assert_eq!(findings[0].remedy, "set limits.memory_mb to a whole number from 64 to 1048576");
    assert!(findings[2].remedy.contains("memory_mb, cpus, pids"), "{}", findings[2].remedy);
}

#[test]
fn the_edges_of_ranges_are_allowed_and_nothing_beyond() {
    for (key, low, high) in [
        ("turn.timeout_s", 1, 600),
        ("turn.max_waiting", 0, 100),
        ("turn.max_calls", 1, 1000),
        ("model.max_output_tokens", 1, 32_768),
        ("budgets.prompt_bytes", 1024, 65_536),
        ("budgets.tool_result_bytes", 512, 65_536),
        ("budgets.request_bytes", 95_744, 245_760),
    ] {
        for (value, fits) in [(low - 1, false), (low, true), (high, true), (high + 1, false)] {
            let overlay = Overlay {
                flags: vec![(key.into(), value.to_string(), "--set".into())],
                environment: Vec::new(),
            };
            assert_eq!(read(LEAST, overlay).is_ok(), fits, "{key} = {value}");
        }
    }
}

#[test]
fn flags_win_over_variables_and_these_over_the_file() {
    let text = format!("{LEAST}\n[limits]\nmemory_mb = 100\npids = 10\ncpus = 2\n");
    let overlay = Overlay {
        flags: vec![("limits.memory_mb".into(), "300".into(), "--set limits.memory_mb".into())],
        environment: vec![
            ("TURNJAIL_LIMITS_MEMORY_MB".into(), "200".into()),
            ("TURNJAIL_LIMITS_PIDS".into(), "20".into()),
            ("TURNJAIL_REQUIRE".into(), "jail".into()),
        ],
    };
    let (settings, list) = read(&text, overlay).unwrap();
    assert_eq!((settings.turn.memory_mb, settings.turn.pids), (300, 20));
    assert!((settings.turn.cpus - 2.0).abs() < f64::EPSILON);
    let origin = |key| effective(&list, key).origin.clone();
    assert_eq!(origin("limits.memory_mb"), Origin::Flag("--set limits.memory_mb".into()));
    assert_eq!(origin("limits.pids"), Origin::Environment("TURNJAIL_LIMITS_PIDS".into()));
    assert_eq!(origin("limits.cpus"), Origin::Line(10));
    assert_eq!(origin("turn.timeout_s"), Origin::Default);
}

#[test]
fn text_that_looks_like_a_number_stays_text_where_text_is_wanted() {
    let overlay = Overlay {
        flags: Vec::new(),
        environment: vec![("TURNJAIL_MODEL_NAME".into(), "4".into())],
    };
    assert_eq!(read(LEAST, overlay).unwrap().0.model.name, "4");
}

#[test]
fn a_flag_or_variable_that_names_nothing_is_a_finding() {
    let overlay = Overlay {
        flags: vec![("limits.memory".into(), "1".into(), "--set limits.memory".into())],
        environment: vec![("TURNJAIL_LIMITS_MEMORYMB".into(), "1".into())],
    };
    let findings = read(LEAST, overlay).unwrap_err();
    assert_eq!(findings.len(), 2, "{findings:?}");
    assert_eq!(findings[0].origin, Origin::Flag("--set limits.memory".into()));
    assert_eq!(findings[1].origin, Origin::Environment("TURNJAIL_LIMITS_MEMORYMB".into()));
}

#[test]
fn paths_start_at_home_or_beside_the_file_and_never_climb() {
    let at = |said: &str| format!("{LEAST}[directories]\nrun = \"{said}\"\n");
    assert_eq!(plain(&at("~/r")).directories.run, PathBuf::from("/home/ann/r"));
    assert_eq!(plain(&at("r")).directories.run, PathBuf::from("/etc/bot/r"));
    assert_eq!(plain(&at("/r")).directories.run, PathBuf::from("/r"));
    for said in ["", "../r", "/a/../b", "~/.."] {
        assert_eq!(findings(&at(said)).len(), 1, "{said:?}");
    }
}

#[test]
fn without_a_home_directories_must_be_named() {
    let host = Host { home: None, ..host() };
    let findings = resolve(LEAST, Overlay::default(), &host, Path::new("/")).unwrap_err();
    assert_eq!(findings.len(), 2);
    assert!(findings[0].cause.starts_with("directories.workspaces is not set"));
}

#[test]
fn file_tools_are_on_when_the_section_is_there() {
    let on = plain(&format!("{LEAST}[files]\n"));
    assert_eq!(on.files, Some(Files { max_file_bytes: 262_144, max_total_bytes: 33_554_432 }));
    let overlay = Overlay {
        flags: vec![("files.max_file_bytes".into(), "9".into(), "--set".into())],
        environment: Vec::new(),
    };
    assert_eq!(read(LEAST, overlay).unwrap().0.files.unwrap().max_file_bytes, 9);
}

#[test]
fn only_one_prompt_is_taken() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("prompt.txt");
    std::fs::write(&file, "Be kind.").unwrap();
    let text = format!("{LEAST}\n[turn]\nprompt_file = {file:?}\n");
    assert_eq!(plain(&text).turn.prompt.as_deref(), Some("Be kind."));
    let both = format!("{text}prompt = \"x\"\n");
    assert_eq!(findings(&both)[0].cause, "turn.prompt and turn.prompt_file are both set");
    let gone = format!("{LEAST}\n[turn]\nprompt_file = \"/nonexistent/p\"\n");
    assert!(findings(&gone)[0].cause.contains("/nonexistent/p cannot be used"));
}

#[test]
fn the_refusal_names_file_and_line_in_order() {
    let file = Path::new("/etc/bot/turnjail.toml");
    let findings = findings(&format!("[limits]\npids = 1\n{LEAST}x = 1\n"));
    let error = refusal(file, &findings);
    assert_eq!(error.exit, Exit::Usage);
    assert_eq!(
        error.problems[0].cause,
        "/etc/bot/turnjail.toml:2: limits.pids is 1, which is not allowed"
    );
    assert!(error.problems[1].cause.starts_with("/etc/bot/turnjail.toml:8: model has no setting"));
}

#[test]
fn hostile_text_never_panics() {
    for text in
        ["\0", "[", "model = 3", "[model]\nname = [1]", "tools = 1", "[[tools]]", "mcp = [1]"]
    {
        assert!(!findings(text).is_empty(), "{text:?}");
    }
}

#[test]
fn what_is_no_readable_file_is_refused_with_its_name() {
    for path in ["/nonexistent/turnjail.toml", "/dev/zero", "/"] {
        let error = load(Path::new(path), Overlay::default(), &host()).unwrap_err();
        assert!(error.problems[0].cause.contains(path), "{error}");
        assert_eq!(error.exit, Exit::Usage);
    }
}
