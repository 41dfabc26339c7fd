//! Start-up: options, roots, images, and settings under which every turn would fail.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value};
use turnjail_broker::{HostTool, ToolContext, ToolError};
use turnjail_driver::{
    ContainerDriver, ContainerSpec, DriverError, ImageProtocol, Outcome, Progress,
};
use turnjail_protocol::{Budgets, Files, ToolSpec};
use turnjail_runtime::{SandboxOptions, SandboxRuntime, SetupError, WorkspaceMode};

use crate::common::{Place, Scripted, broker, paused, request, tests};

tests![
    options_out_of_range_are_refused_by_name,
    options_at_the_ends_of_their_ranges_are_taken,
    roots_are_made_private,
    roots_that_others_may_enter_are_refused,
    roots_inside_each_other_are_refused,
    a_root_that_is_a_link_is_refused_and_one_below_a_link_is_resolved,
    a_run_root_too_long_for_a_socket_is_refused,
    a_prompt_over_its_budget_stops_start_up,
    a_prompt_without_a_budget_is_the_workers_to_cut,
    too_large_tool_descriptions_stop_start_up,
    too_many_functions_stop_start_up,
    a_prompt_that_fills_the_turn_stops_start_up,
    broker_settings_are_checked_at_start,
    images_are_verified,
    an_older_worker_is_refused_for_each_option_that_needs_a_newer_one,
    an_empty_budget_needs_no_newer_worker,
    a_driver_that_cannot_tell_is_refused,
];

fn start(options: SandboxOptions) -> Result<SandboxRuntime, SetupError> {
    start_with(options, Scripted::new())
}

fn start_with(
    options: SandboxOptions,
    driver: Arc<dyn ContainerDriver>,
) -> Result<SandboxRuntime, SetupError> {
    let mut result = None;
    paused(async {
        result = Some(SandboxRuntime::new(options, driver).await);
    });
    result.unwrap()
}

fn refusal(options: SandboxOptions) -> String {
    let error = start(options).expect_err("refused");
    let text = error.to_string();
    assert!(!text.contains('\n'), "one line: {text}");
    text
}

fn options_out_of_range_are_refused_by_name() {
    let place = Place::new();
    let base = || place.options();
    let seconds = Duration::from_secs;
    let files = |max_file_bytes, max_total_bytes| Files { max_file_bytes, max_total_bytes };
    let tool_result = |bytes| Budgets { tool_result_bytes: Some(bytes), ..Budgets::default() };
    for (options, says) in [
        (base().memory_mb(63), "memory_mb must be at least 64, but is 63"),
        (base().cpus(0.0), "cpus must be a number over 0, but is 0"),
        (base().cpus(-1.0), "cpus must be"),
        (base().cpus(f64::NAN), "cpus must be"),
        (base().cpus(f64::INFINITY), "cpus must be"),
        (base().pids(7), "pids must be at least 8, but is 7"),
        (
            base().turn_timeout(Duration::from_millis(999)),
            "turn_timeout must be 1 s to 600 s, but is 0.999 s",
        ),
        (base().turn_timeout(seconds(601)), "turn_timeout must be 1 s to 600 s"),
        (base().max_waiting(101), "max_waiting must be 0 to 100, but is 101"),
        (base().max_wait(Duration::ZERO), "max_wait must be"),
        (base().max_wait(seconds(3601)), "max_wait must be"),
        (base().time_zone("Mars/Olympus"), "time_zone must be"),
        (base().files(files(0, 10)), "files.max_file_bytes must be 1 to"),
        (base().files(files(10, 0)), "files.max_total_bytes must be 1 to"),
        (base().files(files(11, 10)), "files.max_file_bytes must be at most files.max_total_bytes"),
        (base().budgets(tool_result(511)), "budgets.tool_result_bytes must be 512 to 65536"),
        (
            base().budgets(tool_result(4_095)).files(Files::default()),
            "budgets.tool_result_bytes must be at least 4096 when skills or files are on",
        ),
        (base().skills(["/does/not/exist"]), "skills: \"/does/not/exist\""),
        (
            SandboxOptions::new(" ", place.run_root(), place.workspace_root(), broker()),
            "image must not be empty",
        ),
        (
            SandboxOptions::new("--privileged", place.run_root(), place.workspace_root(), broker()),
            "image must be a reference",
        ),
        (
            SandboxOptions::new("worker", "run", place.workspace_root(), broker()),
            "run_root must be the absolute path",
        ),
        (
            SandboxOptions::new("worker", place.run_root(), "/", broker()),
            "workspace_root must be the absolute path",
        ),
    ] {
        let text = refusal(options);
        assert!(text.starts_with(says), "expected {says:?}, got {text:?}");
    }
}

fn options_at_the_ends_of_their_ranges_are_taken() {
    let place = Place::new();
    for options in [
        place.options().memory_mb(64).cpus(0.01).pids(8).max_waiting(0),
        place.options().turn_timeout(Duration::from_secs(1)).max_waiting(100),
        place.options().turn_timeout(Duration::from_secs(600)).max_wait(Duration::from_millis(1)),
        place.options().time_zone("+05:30").files(Files { max_file_bytes: 1, max_total_bytes: 1 }),
    ] {
        start(options).unwrap();
    }
}

fn roots_are_made_private() {
    let place = Place::new();
    let (run, work) = (place.path().join("a/b/run"), place.path().join("a/work"));
    start(SandboxOptions::new("worker", &run, &work, broker())).unwrap();
    for root in [run, work] {
        assert_eq!(mode(&root), 0o700);
    }
}

fn roots_that_others_may_enter_are_refused() {
    let place = Place::new();
    for (run, work, names) in [(0o750, 0o700, "run_root"), (0o700, 0o701, "workspace_root")] {
        for (root, mode) in [(place.run_root(), run), (place.workspace_root(), work)] {
            let _ = std::fs::create_dir(&root);
            std::fs::set_permissions(&root, PermissionsExt::from_mode(mode)).unwrap();
        }
        let error = start(place.options()).unwrap_err();
        assert!(error.to_string().starts_with(names), "{error}");
        assert!(error.to_string().contains("lets others in"), "{error}");
        assert!(error.remedy().unwrap().starts_with("chmod 700"), "{error}");
        assert_eq!(error.code(), "root");
    }
    // Nobody but root can make a directory of another user, but every system has some.
    let error = refusal(SandboxOptions::new("worker", "/usr", place.path().join("w"), broker()));
    assert!(error.contains("belongs to user 0"), "{error}");
}

fn roots_inside_each_other_are_refused() {
    let place = Place::new();
    let inside = place.run_root().join("work");
    for (run, work) in [
        (place.run_root(), place.run_root()),
        (place.run_root(), inside.clone()),
        (inside, place.run_root()),
    ] {
        let error = refusal(SandboxOptions::new("worker", run, work, broker()));
        assert!(error.contains("must be separate"), "{error}");
    }
    // A common beginning of the names is no containment.
    start(SandboxOptions::new("worker", place.path().join("a"), place.path().join("ab"), broker()))
        .unwrap();
}

fn a_root_that_is_a_link_is_refused_and_one_below_a_link_is_resolved() {
    let place = Place::new();
    start(place.options()).unwrap();
    let link = place.path().join("link");
    symlink(place.workspace_root(), &link).unwrap();
    let error = refusal(SandboxOptions::new("worker", place.run_root(), &link, broker()));
    assert!(error.contains("is a symbolic link"), "{error}");
    std::fs::remove_file(&link).unwrap();
    symlink(place.path(), &link).unwrap();
    let same = link.join("work");
    let error = refusal(SandboxOptions::new("worker", place.workspace_root(), same, broker()));
    assert!(error.contains("must be separate"), "the link is seen through: {error}");
}

fn a_run_root_too_long_for_a_socket_is_refused() {
    let place = Place::new();
    let tail = "/turn-XXXXXX/broker.sock".len();
    let base = place.path().canonicalize().unwrap();
    let room = 100 - tail - base.as_os_str().len() - 1;
    let run = |length: usize| base.join("r".repeat(length));
    start(SandboxOptions::new("worker", run(room), place.workspace_root(), broker())).unwrap();
    let error =
        start(SandboxOptions::new("worker", run(room + 1), place.workspace_root(), broker()))
            .unwrap_err();
    assert!(error.to_string().contains("101 bytes, and at most 100"), "{error}");
    assert!(error.remedy().unwrap().contains("at most 76 bytes"), "{error}");
}

fn a_prompt_over_its_budget_stops_start_up() {
    let place = Place::new();
    let budgets = Budgets { prompt_bytes: Some(1_024), ..Budgets::default() };
    // Quotes count: 1,022 characters are 1,024 bytes of JSON.
    start(place.options().budgets(budgets).prompt("x".repeat(1_022))).unwrap();
    let error = start(place.options().budgets(budgets).prompt("x".repeat(1_023))).unwrap_err();
    assert_eq!(
        error.to_string(),
        "prompt has 1025 bytes, over budgets.prompt_bytes, which is 1024"
    );
    assert_eq!(error.remedy(), Some("shorten it, or raise budgets.prompt_bytes"));
}

fn a_prompt_without_a_budget_is_the_workers_to_cut() {
    let place = Place::new();
    start(place.options().prompt("x".repeat(20_000))).unwrap();
}

/// A host tool that is never called.
struct Declared(ToolSpec);

#[async_trait]
impl HostTool for Declared {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _: Map<String, Value>, _: &ToolContext) -> Result<String, ToolError> {
        Err(ToolError::failed("never called"))
    }
}

fn with_tools(place: &Place, tools: impl IntoIterator<Item = ToolSpec>) -> SandboxOptions {
    let mut broker = broker();
    broker.tools = tools.into_iter().map(|spec| Arc::new(Declared(spec)).into()).collect();
    SandboxOptions::new("worker", place.run_root(), place.workspace_root(), broker)
}

fn tool(name: &str, description: &str) -> ToolSpec {
    let Value::Object(parameters) = serde_json::json!({"type": "object"}) else { unreachable!() };
    ToolSpec::new(name, description, parameters)
}

fn too_large_tool_descriptions_stop_start_up() {
    let place = Place::new();
    start(with_tools(&place, [tool("a", &"x".repeat(20_000))])).unwrap();
    let error = start(with_tools(&place, [tool("a", &"x".repeat(32_768))])).unwrap_err();
    assert!(error.to_string().contains("tool descriptions have"), "{error}");
    assert!(error.to_string().contains("32768"), "{error}");
    assert!(error.remedy().unwrap().contains("fewer tools"), "{error}");
    assert_eq!(error.code(), "every-turn");
}

fn too_many_functions_stop_start_up() {
    let place = Place::new();
    let tools = |count: usize| (0..count).map(|index| tool(&format!("t{index}"), ""));
    // The worker adds four of its own, and four for files.
    start(with_tools(&place, tools(124))).unwrap();
    let error = refusal(with_tools(&place, tools(125)));
    assert!(error.contains("129 functions are declared, over 128"), "{error}");
    let error = refusal(with_tools(&place, tools(121)).files(Files::default()));
    assert!(error.contains("129 functions"), "{error}");
}

fn a_prompt_that_fills_the_turn_stops_start_up() {
    let place = Place::new();
    let error = refusal(place.options().prompt("x".repeat(262_144)));
    assert!(error.contains("without its text has"), "{error}");
    // Over the size only with the longest text: a warning, and that text is refused.
    let driver = Scripted::new();
    let options = place.options().prompt("x".repeat(100_000));
    paused(async {
        let runtime = crate::common::start(options, &driver).await;
        let error = runtime.run_turn(request("a:1", &"\u{1}".repeat(32_000))).await.unwrap_err();
        assert_eq!(error.code(), "too-large");
        assert!(runtime.run_turn(request("a:1", "auto:Ok")).await.is_ok());
    });
    assert_eq!(driver.texts(), ["auto:Ok"], "nothing was started for the other");
}

fn broker_settings_are_checked_at_start() {
    let place = Place::new();
    let options = |change: fn(&mut turnjail_broker::BrokerSettings)| {
        let mut broker = broker();
        change(&mut broker);
        SandboxOptions::new("worker", place.run_root(), place.workspace_root(), broker)
    };
    for (options, names) in [
        (options(|broker| broker.max_calls = 0), "max_calls"),
        (options(|broker| broker.max_calls = 1_001), "max_calls"),
        (options(|broker| broker.max_output_tokens = 0), "max_output_tokens"),
        (options(|broker| broker.max_output_tokens = 32_769), "max_output_tokens"),
        (options(|broker| broker.model.clear()), "model"),
        (options(|broker| broker.allow_http = false), "model_url"),
    ] {
        let error = refusal(options);
        assert!(error.starts_with(names), "expected {names}: {error}");
    }
}

fn verify(options: SandboxOptions, driver: Arc<dyn ContainerDriver>) -> Result<(), SetupError> {
    let mut result = None;
    paused(async {
        let runtime = SandboxRuntime::new(options, driver).await.unwrap();
        result = Some(runtime.verify_image().await);
    });
    result.unwrap()
}

fn images_are_verified() {
    let place = Place::new();
    verify(place.options(), Scripted::new()).unwrap();
    let absent = SandboxOptions::new("absent", place.run_root(), place.workspace_root(), broker());
    let error = verify(absent, Scripted::new()).unwrap_err();
    assert_eq!(error.to_string(), "image absent is not in the store");
    assert_eq!((error.code(), error.remedy()), ("image", Some("import it")));
}

/// Every option that needs protocol 2, as the error names it.
fn protocol_2(place: &Place) -> Vec<(SandboxOptions, &'static str)> {
    let skills = place.path().join("skills");
    std::fs::create_dir_all(skills.join("pdf")).unwrap();
    std::fs::write(skills.join("pdf/SKILL.md"), "---\nname: pdf\ndescription: a\n---\n").unwrap();
    let budgets = Budgets { prompt_bytes: Some(2_048), ..Budgets::default() };
    vec![
        (place.options().workspace(WorkspaceMode::Server), "workspace = \"server\""),
        (place.options().budgets(budgets), "budgets"),
        (place.options().files(Files::default()), "files"),
        (place.options().skills([&skills]), "skills"),
        (
            place
                .options()
                .workspace(WorkspaceMode::Server)
                .budgets(budgets)
                .files(Files::default())
                .skills([&skills]),
            "workspace = \"server\", budgets, files, skills",
        ),
    ]
}

fn an_older_worker_is_refused_for_each_option_that_needs_a_newer_one() {
    let place = Place::new();
    for (options, names) in protocol_2(&place) {
        verify(options.clone(), Scripted::new()).unwrap();
        for (protocol, says) in [
            (ImageProtocol::Version(1), "has a worker of protocol 1"),
            (ImageProtocol::Unlabelled, "an older worker"),
            (ImageProtocol::Unknown, "driver scripted cannot tell"),
        ] {
            let error = verify(options.clone(), Scripted::of_protocol(protocol)).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(says) && text.contains("worker:1"), "{text}");
            assert!(text.ends_with(&format!(", but {names} needs protocol 2")), "{text}");
            assert!(error.remedy().unwrap().contains(names), "{error:?}");
            assert_eq!(error.code(), "image-protocol");
        }
    }
}

fn an_empty_budget_needs_no_newer_worker() {
    let place = Place::new();
    let driver = Scripted::of_protocol(ImageProtocol::Unlabelled);
    verify(place.options().budgets(Budgets::default()), driver.clone()).unwrap();
    paused(async {
        let options = place.options().budgets(Budgets::default());
        let runtime = crate::common::start(options, &driver).await;
        runtime.run_turn(request("a:1", "auto:Ok")).await.unwrap();
    });
    let json = &driver.runs()[0].json;
    for field in ["budgets", "historyDir", "files"] {
        assert!(!json.contains(field), "{json}");
    }
}

/// A driver that implements nothing but what it must.
struct Plain;

#[async_trait]
impl ContainerDriver for Plain {
    fn name(&self) -> &'static str {
        "plain"
    }

    async fn run(
        &self,
        _: &ContainerSpec,
        _: &[u8],
        _: &tokio_util::sync::CancellationToken,
        _: &dyn Progress,
    ) -> Result<Outcome, DriverError> {
        Err(DriverError::Cancelled)
    }
}

fn a_driver_that_cannot_tell_is_refused() {
    let place = Place::new();
    verify(place.options(), Arc::new(Plain)).unwrap();
    let error = verify(place.options().files(Files::default()), Arc::new(Plain)).unwrap_err();
    assert!(error.to_string().starts_with("driver plain cannot tell"), "{error}");
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}
