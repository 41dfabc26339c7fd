//! Sizes of protocol 2, and what a request drops.

use serde_json::{Value, json};
use turnjail_protocol::WorkerCode;
use turnjail_protocol::measure::json_bytes;
use turnjail_tests::Test;
use turnjail_tests::script::{Response, Stage};

use crate::{assert_done, assert_failed, run, test, turn_with};

pub fn tests() -> Vec<Test> {
    vec![
        test("budgets_replace_the_default_sizes", sizes),
        test("the_newest_group_is_cut_evenly_with_protocol_2", cut_evenly),
        test("the_newest_group_is_dropped_with_protocol_1", dropped),
        test("older_groups_go_before_the_newest_is_cut", older_first),
        test("history_goes_before_groups_and_stays_saved", history_first),
        test("a_request_that_cannot_fit_fails", too_large),
        test("a_channels_history_is_its_own", channel_history),
        test("an_empty_budgets_object_changes_no_size", empty_budgets),
    ]
}

/// Calls of `echo`.
fn calls(count: usize) -> Response {
    Response::calls(&vec![("host_echo", json!({})); count])
}

fn echoed(text: &str) -> Response {
    Response::new(200, json!({ "text": text }).to_string().as_bytes())
}

fn sizes() {
    let turn = turn_with(json!({
        "prompt": "p".repeat(5000),
        "budgets": {"promptBytes": 1024, "toolResultBytes": 512},
    }));
    let stage = Stage::new();
    let answers = vec![calls(1), echoed(&"r".repeat(3000)), Response::text("Done.")];
    let ended = run(&stage, &turn, answers);
    assert_done(&ended);
    assert_eq!(json_bytes(&ended.results()[0]), 512);
    let request = ended.last_request();
    let system = request["messages"][0]["content"].as_str().expect("text");
    let prompt = &system[..system.find("\nCurrent time: ").expect("the time")];
    assert_eq!(json_bytes(prompt), 1024);
}

fn empty_budgets() {
    let turn = turn_with(json!({"prompt": "p".repeat(9000), "budgets": {}}));
    let ended = run(&Stage::new(), &turn, vec![Response::text("Done.")]);
    assert_done(&ended);
    let request = ended.last_request();
    let system = request["messages"][0]["content"].as_str().expect("text");
    assert_eq!(json_bytes(&system[..system.find("\nCurrent time: ").expect("the time")]), 8192);
}

/// Eight results of which five are so long that a request of 95,744 bytes cannot hold them.
fn long_results() -> Vec<Response> {
    let sizes = [10, 30_000, 30_000, 60_000, 100, 40_000, 2000, 60_000];
    let results = sizes.map(|size| echoed(&"r".repeat(size)));
    [vec![calls(8)], results.into(), vec![Response::text("Done.")]].concat()
}

fn cut_evenly() {
    let budgets = json!({"toolResultBytes": 65_536, "requestBytes": 95_744});
    let ended = run(&Stage::new(), &turn_with(json!({"budgets": budgets})), long_results());
    assert_done(&ended);
    let results = ended.results();
    let sizes: Vec<usize> = results.iter().map(|result| json_bytes(result)).collect();
    let longest = sizes.iter().max().copied().expect("results");
    for (index, size) in sizes.iter().enumerate() {
        match index {
            0 | 4 | 6 => assert!(*size < 2100 && !results[index].contains("[Truncated")),
            // One length for all that are cut; each ends with the marker.
            _ => assert!(*size == longest && results[index].contains("[Truncated"), "{sizes:?}"),
        }
    }
    let body = &ended.calls.last().expect("a call").body;
    assert!(body.len() <= 95_744 && body.len() > 95_744 - 5, "{} bytes", body.len());
    assert_eq!(ended.last_request()["messages"].as_array().map(Vec::len), Some(2 + 9));
}

fn dropped() {
    // Without protocol 2 fields results have 4,096 bytes, so the text beside them must fill up.
    let long = "h".repeat(9000);
    let history: Vec<Value> = (0..20).map(|_| json!({"role": "user", "content": long})).collect();
    let stage = Stage::new();
    std::fs::write(stage.workspace().join("history.json"), json!(history).to_string()).unwrap();
    let turn = turn_with(json!({"text": "t".repeat(32_000), "model": "m".repeat(135_000)}));
    let answers =
        [vec![calls(8)], vec![echoed(&"r".repeat(5000)); 8], vec![Response::text("Done.")]];
    let ended = run(&stage, &turn, answers.concat());
    assert_done(&ended);
    assert_eq!(ended.last_request()["messages"].as_array().map(Vec::len), Some(2));
}

fn older_first() {
    let budgets = json!({"toolResultBytes": 16_384, "requestBytes": 95_744});
    let group = |text: &str| [vec![calls(2)], vec![echoed(&text.repeat(16_000)); 2]].concat();
    let answers = [group("a"), group("b"), group("c"), vec![Response::text("Done.")]].concat();
    let ended = run(&Stage::new(), &turn_with(json!({"budgets": budgets})), answers);
    assert_done(&ended);
    let firsts: Vec<_> = ended.results().iter().map(|r| r.chars().nth(9)).collect();
    assert_eq!(firsts, [Some('b'), Some('b'), Some('c'), Some('c')]);
    assert!(ended.results().iter().all(|result| json_bytes(result) > 16_000), "none was cut again");
}

fn history_first() {
    let history: Vec<Value> = (0..20)
        .map(|n| json!({"role": "user", "content": format!("{n:02}{}", "h".repeat(8000))}))
        .collect();
    let stage = Stage::new();
    std::fs::write(stage.workspace().join("history.json"), json!(history).to_string()).unwrap();
    let turn = turn_with(json!({"budgets": {"requestBytes": 95_744}}));
    let answers = vec![calls(1), echoed("kept"), Response::text("Done.")];
    let ended = run(&stage, &turn, answers);
    assert_done(&ended);
    let request = ended.last_request();
    let messages = request["messages"].as_array().expect("messages");
    let kept = messages.iter().filter(|m| m["content"].as_str().is_some_and(|t| t.len() == 8002));
    let kept: Vec<_> = kept.map(|m| m["content"].as_str().unwrap()[..2].to_owned()).collect();
    assert!(kept.len() < 20 && kept.last().is_some_and(|last| last == "19"), "{kept:?}");
    assert_eq!(ended.results(), ["{\"text\":\"kept\"}"]);
    let saved = std::fs::read_to_string(stage.workspace().join("history.json")).unwrap();
    let saved: Vec<Value> = serde_json::from_str(&saved).unwrap();
    assert_eq!(saved.len(), 20);
    assert!(saved[0]["content"].as_str().is_some_and(|text| text.starts_with("02")));
}

fn too_large() {
    let turn =
        turn_with(json!({"model": "m".repeat(100_000), "budgets": {"requestBytes": 95_744}}));
    let ended = run(&Stage::new(), &turn, vec![]);
    assert_failed(&ended, WorkerCode::RequestBudget);
    assert!(ended.calls.is_empty());
    // With room for nothing but markers the newest group is cut to them, with less the turn fails.
    for (spare, fits) in [(3000, true), (500, false)] {
        let model = "m".repeat(95_744 - 2150 - spare);
        let turn = turn_with(json!({"model": model, "budgets": {"requestBytes": 95_744}}));
        let answers =
            [vec![calls(8)], vec![echoed(&"r".repeat(4000)); 8], vec![Response::text("Done.")]];
        let ended = run(&Stage::new(), &turn, answers.concat());
        if fits {
            assert_done(&ended);
        } else {
            assert_failed(&ended, WorkerCode::RequestBudget);
        }
    }
}

fn channel_history() {
    let stage = Stage::new();
    let entry = |text: &str| json!([{"role": "user", "content": text}]).to_string();
    std::fs::write(stage.workspace().join("history.json"), entry("of the workspace")).unwrap();
    std::fs::write(stage.channel().join("history.json"), entry("of the channel")).unwrap();
    let answers = vec![
        Response::calls(&[("memory_set", json!({"scope": "channel", "key": "k", "text": "t"}))]),
        Response::text("Done."),
    ];
    let ended = run(&stage, &turn_with(json!({"historyDir": "/channel"})), answers);
    assert_done(&ended);
    let request = ended.last_request().to_string();
    assert!(request.contains("of the channel") && !request.contains("of the workspace"));
    let read = |dir: std::path::PathBuf| std::fs::read_to_string(dir.join("history.json")).unwrap();
    assert_eq!(read(stage.workspace()), entry("of the workspace"), "left alone");
    assert!(read(stage.channel()).contains("Done."));
    assert!(
        stage.workspace().join("memory.json").exists()
            && !stage.channel().join("memory.json").exists()
    );
}
