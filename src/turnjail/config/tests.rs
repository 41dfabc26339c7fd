//! What a configuration may say, and how a wrong one is reported.

use std::path::{Path, PathBuf};
use std::time::Duration;

use turnjail_protocol::Files;

use super::mcp::Transport;
use super::tools::{Text, ToolKind};

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
fn a_secret_in_the_file_is_refused_and_not_repeated() {
    let text = LEAST.replace("{ env = \"KEY\" }", "\"sk-very-secret\"");
    let findings = findings(&text);
    assert_eq!(findings.len(), 1);
    assert!(findings[0].remedy.starts_with("a secret never stands in the file itself"));
    assert!(!format!("{findings:?}").contains("very-secret"));
}

#[test]
fn a_secret_among_the_headers_is_refused_and_not_repeated() {
    let text =
        format!("{LEAST}[model.extra_headers]\nX-Api-Key = \"sk-very-secret\"\nx-app = \"a\"\n");
    let findings = findings(&text);
    assert_eq!(findings.len(), 1);
    assert!(!format!("{findings:?}").contains("very-secret"));
}

#[test]
fn secrets_come_from_four_kinds_of_source_and_are_shown_hidden() {
    for (said, source, shown) in [
        ("\"none\"", SecretSource::None, "none"),
        (
            "{ env = \"A_B\" }",
            SecretSource::Environment("A_B".into()),
            "(hidden, from the environment variable A_B)",
        ),
        (
            "{ file = \"key\" }",
            SecretSource::File("/etc/bot/key".into()),
            "(hidden, from the file /etc/bot/key)",
        ),
        (
            "{ command = [\"pass\", \"show\", \"x\"] }",
            SecretSource::Command(["pass", "show", "x"].map(String::from).to_vec()),
            "(hidden, from the command pass)",
        ),
    ] {
        let text = LEAST.replace("{ env = \"KEY\" }", said);
        let (settings, list) = read(&text, Overlay::default()).unwrap();
        assert_eq!(settings.model.api_key, source);
        assert_eq!(effective(&list, "model.api_key").value, shown);
    }
    for said in
        ["{ env = \"1A\" }", "{ env = \"\" }", "{ command = [] }", "{ file = \"\" }", "{}", "7"]
    {
        let text = LEAST.replace("{ env = \"KEY\" }", said);
        assert_eq!(findings(&text)[0].cause, "model.api_key names no source of a secret", "{said}");
    }
}

#[test]
fn the_keys_own_variable_is_a_source_and_a_flag_is_refused() {
    let overlay = Overlay {
        flags: Vec::new(),
        environment: vec![("TURNJAIL_MODEL_API_KEY".into(), "sk-very-secret".into())],
    };
    let (settings, list) = read(LEAST, overlay).unwrap();
    assert_eq!(settings.model.api_key, SecretSource::Environment("TURNJAIL_MODEL_API_KEY".into()));
    assert!(!format!("{settings:?}{list:?}").contains("very-secret"));
    let overlay = Overlay {
        flags: vec![(
            "model.api_key".into(),
            "sk-very-secret".into(),
            "--set model.api_key".into(),
        )],
        environment: Vec::new(),
    };
    let findings = read(LEAST, overlay).unwrap_err();
    assert_eq!(findings[0].cause, "model.api_key cannot be set on the command line");
    assert!(!format!("{findings:?}").contains("very-secret"));
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
fn tools_carry_schema_environment_and_command() {
    let text = format!(
        r#"{LEAST}
[[tools]]
name = "weather"
description = "The weather of a town."
parameters = {{ type = "object", properties = {{ town = {{ type = "string" }} }}, required = ["town"] }}
command = ["/usr/bin/weather", "--json"]
environment = {{ LANG = "C", TOKEN = {{ env = "W_TOKEN" }} }}
timeout_s = 5

[[tools]]
name = "now"
description = "The time."
parameters = '{{"type":"object"}}'
command = ["date"]
"#
    );
    let tools = plain(&text).tools;
    assert_eq!(tools[0].name, "weather");
    assert_eq!(tools[0].parameters["required"], serde_json::json!(["town"]));
    assert_eq!(
        tools[0].kind,
        ToolKind::Command {
            argv: ["/usr/bin/weather", "--json"].map(String::from).to_vec(),
            environment: vec![
                ("LANG".to_owned(), Text::Plain("C".into())),
                ("TOKEN".to_owned(), Text::Secret(SecretSource::Environment("W_TOKEN".into()))),
            ],
            timeout: Duration::from_secs(5),
        }
    );
    assert_eq!(
        serde_json::Value::from(tools[1].parameters.clone()),
        serde_json::json!({"type": "object"})
    );
}

#[test]
fn a_tool_may_be_a_url_or_a_socket_but_only_one_thing() {
    let tool =
        |said: &str| format!("{LEAST}\n[[tools]]\nname = \"t\"\ndescription = \"d\"\n{said}\n");
    assert_eq!(
        plain(&tool("url = \"https://h.example/t\"\napi_key = { env = \"K\" }")).tools[0].kind,
        ToolKind::Url {
            url: "https://h.example/t".into(),
            api_key: SecretSource::Environment("K".into())
        }
    );
    assert_eq!(
        plain(&tool("socket = \"~/s\"\npath = \"/t\"")).tools[0].kind,
        ToolKind::Socket {
            socket: "/home/ann/s".into(),
            request: "/t".into(),
            api_key: SecretSource::None
        }
    );
    let none = findings(&tool(""));
    assert_eq!(none[0].cause, "tools[1].command is missing");
    let two = findings(&tool("url = \"https://h.example\"\ncommand = [\"x\"]"));
    assert_eq!(two.len(), 1, "{two:?}");
    assert_eq!(two[0].remedy, "give exactly one of command, url and socket");
    let foreign = findings(&tool("url = \"https://h.example\"\ntimeout_s = 3"));
    assert_eq!(foreign[0].cause, "tools[1] has no setting \"timeout_s\"");
}

#[test]
fn a_wrong_tool_is_reported_within_its_number() {
    let text = format!(
        "{LEAST}\n[[tools]]\nname = \"ok\"\ndescription = \"d\"\ncommand = [\"x\"]\n\
         [[tools]]\nname = \"Not Ok\"\ncommand = \"sh -c x\"\nshell = true\n"
    );
    let causes: Vec<_> = findings(&text).into_iter().map(|finding| finding.cause).collect();
    assert_eq!(
        causes,
        [
            "tools[2].name is a string, which is not allowed",
            "tools[2].description is missing",
            "tools[2].command is a string, which is not allowed",
            "tools[2] has no setting \"shell\"",
        ]
    );
}

#[test]
fn an_mcp_server_names_its_tools_in_three_ways() {
    let text = format!(
        r#"{LEAST}
[[mcp]]
name = "s"
url = "https://s.example/mcp"
scope = "host"
tools = [
  "get-sum",
  {{ name = "total", remote = "Get.Total" }},
  {{ name = "now", description = "The time.", parameters = {{ type = "object" }}, validate = true }},
]
"#
    );
    let server = plain(&text).mcp.remove(0);
    assert!(server.shared);
    assert_eq!(server.transport, Transport::Http("https://s.example/mcp".into()));
    assert_eq!(server.api_key, SecretSource::None);
    let names: Vec<_> =
        server.tools.iter().map(|t| (t.name.as_deref(), t.remote.as_str())).collect();
    assert_eq!(names, [(None, "get-sum"), (Some("total"), "Get.Total"), (Some("now"), "now")]);
    assert_eq!(server.tools[1].declared, None);
    assert_eq!(server.tools[2].declared.as_ref().unwrap().0, "The time.");
    assert!(server.tools[2].validate);
}

#[test]
fn an_mcp_server_is_a_url_or_a_program() {
    let server = |said: &str| format!("{LEAST}\n[[mcp]]\nname = \"s\"\ntools = [\"t\"]\n{said}\n");
    let json = plain(&server("url = \"https://s.example\"\ntransport = \"json\"")).mcp.remove(0);
    assert_eq!(json.transport, Transport::Json("https://s.example".into()));
    let program = plain(&server("command = [\"srv\"]\nenvironment = { A = \"b\" }")).mcp.remove(0);
    let environment = vec![("A".to_owned(), Text::Plain("b".into()))];
    assert_eq!(program.transport, Transport::Command { argv: vec!["srv".into()], environment });
    for said in ["", "url = \"https://s.example\"\ncommand = [\"srv\"]"] {
        assert_eq!(findings(&server(said))[0].remedy, "give exactly one of url and command");
    }
}

#[test]
fn an_mcp_server_without_tools_or_half_of_one_is_wrong() {
    let server = |tools: &str| {
        format!("{LEAST}\n[[mcp]]\nname = \"s\"\nurl = \"https://s.example/mcp\"\n{tools}\n")
    };
    for (tools, cause) in [
        ("", "mcp[1].tools names no tool"),
        ("tools = []", "mcp[1].tools names no tool"),
        ("tools = [\"\"]", "mcp[1].tools[1] is empty"),
        ("tools = [3]", "mcp[1].tools[1] is 3, which is not allowed"),
        ("tools = [{ }]", "mcp[1].tools[1].name is missing"),
        (
            "tools = [{ name = \"a\", description = \"d\" }]",
            "mcp[1].tools[1].description is declared by half",
        ),
    ] {
        assert_eq!(findings(&server(tools))[0].cause, cause);
    }
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

/// The example with every commented setting switched on, but for what excludes another.
fn whole_example() -> String {
    const EXAMPLE: &str = include_str!("../../../turnjail.example.toml");
    let lines = EXAMPLE.lines().map(|line| {
        let setting = line.strip_prefix("# ").filter(|rest| {
            let key = rest.split(" = ").next().unwrap_or_default();
            let named =
                rest.contains(" = ") && key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
            (named && key != "prompt_file") || *rest == "[directories]"
        });
        setting.unwrap_or(line)
    });
    lines.collect::<Vec<_>>().join(
        "
",
    )
}

#[test]
fn the_example_is_valid_as_it_stands_and_with_everything_switched_on() {
    plain(include_str!("../../../turnjail.example.toml"));
    let host = Host { uid: 1000, runtime_dir: Some("/run/user/1000".into()), ..host() };
    let (settings, list) =
        resolve(&whole_example(), Overlay::default(), &host, Path::new("/etc/bot")).unwrap();
    assert!(settings.model.proxy.is_some() && settings.audit.is_some());
    // Every setting that exists is in the example, so that it can be found there.
    let absent: Vec<_> = list
        .iter()
        .filter(|one| one.origin == Origin::Default && !one.key.contains('['))
        .map(|one| one.key.as_str())
        .collect();
    assert_eq!(absent, ["turn.prompt_file"]);
}

#[test]
fn the_defaults_that_the_example_shows_are_the_defaults() {
    let host = Host { uid: 1000, runtime_dir: Some("/run/user/1000".into()), ..host() };
    let read =
        |text: &str| resolve(text, Overlay::default(), &host, Path::new("/etc/bot")).unwrap().1;
    let (example, least) = (read(&whole_example()), read(LEAST));
    let told: Vec<_> =
        least.iter().filter(|one| one.origin == Origin::Default && !one.value.is_null()).collect();
    assert!(told.len() > 20);
    for one in told {
        assert_eq!(effective(&example, &one.key).value, one.value, "{}", one.key);
    }
}
