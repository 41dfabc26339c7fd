//! Which standard input is a turn, and what of it is kept.

use serde_json::{Value, json};
use turnjail_protocol::json::Map;
use turnjail_protocol::limits::{TOOL_SPEC_DEPTH, TURN_BYTES};
use turnjail_protocol::{Budgets, Files, McpSpec, Speaker, ToolSpec, Turn};

fn turn() -> Value {
    json!({
        "text": "Hello",
        "speaker": {"id": "alice", "name": "Alice"},
        "model": "m",
        "prompt": "p",
        "timeZone": "UTC",
        "tools": [],
        "mcp": [],
    })
}

fn with(field: &str, value: Value) -> Value {
    let mut turn = turn();
    turn[field] = value;
    turn
}

fn parse(turn: &Value) -> Option<Turn> {
    Turn::parse(turn.to_string().as_bytes()).ok()
}

/// Parameters nested so deep, counted from the parameters themselves.
fn nested(depth: usize) -> Value {
    let inner = (1..depth).fold(json!({}), |inner, _| json!({"a": inner}));
    assert_eq!(turnjail_protocol::json::depth(&inner), depth);
    inner
}

#[test]
fn every_required_field_is_required() {
    for field in ["text", "speaker", "model", "prompt", "timeZone", "tools", "mcp"] {
        let mut turn = turn();
        turn.as_object_mut().unwrap().remove(field);
        assert!(parse(&turn).is_none(), "without {field}");
        for value in [json!(null), json!(1), json!(true)] {
            assert!(parse(&with(field, value.clone())).is_none(), "{field}: {value}");
        }
    }
}

#[test]
fn optional_fields_may_be_absent_but_not_of_another_shape() {
    let wrong = [
        ("reset", vec![json!(null), json!(0), json!("true"), json!([])]),
        (
            "budgets",
            vec![
                json!(null),
                json!([]),
                json!(5),
                json!({"promptBytes": null}),
                json!({"promptBytes": "8192"}),
                json!({"promptBytes": 1023}),
                json!({"promptBytes": 65537}),
                json!({"promptBytes": 2000.5}),
                json!({"promptBytes": -2000}),
                json!({"toolResultBytes": 511}),
                json!({"toolResultBytes": 65537}),
                json!({"requestBytes": 95743}),
                json!({"requestBytes": 245_761}),
            ],
        ),
        (
            "historyDir",
            vec![
                json!(null),
                json!(""),
                json!("/workspace"),
                json!("/channel/"),
                json!(["/channel"]),
            ],
        ),
        (
            "files",
            vec![
                json!(null),
                json!(true),
                json!([]),
                json!({"maxFileBytes": 0}),
                json!({"maxFileBytes": -1}),
                json!({"maxTotalBytes": 1.5}),
                json!({"maxTotalBytes": "1"}),
            ],
        ),
    ];
    for (field, values) in wrong {
        for value in values {
            assert!(parse(&with(field, value.clone())).is_none(), "{field}: {value}");
        }
    }
}

#[test]
fn protocol_2_fields_are_read() {
    let turn =
        parse(&with("budgets", json!({"promptBytes": 1024, "requestBytes": 245_760.0}))).unwrap();
    let budgets =
        Budgets { prompt_bytes: Some(1024), tool_result_bytes: None, request_bytes: Some(245_760) };
    assert_eq!(turn.budgets, Some(budgets));
    assert_eq!((budgets.prompt(), budgets.tool_result(), budgets.request()), (1024, 4096, 245_760));
    assert!(turn.is_protocol_2() && !turn.channel_history);
    let turn = parse(&with("historyDir", json!("/channel"))).unwrap();
    assert!(turn.is_protocol_2() && turn.channel_history);
    let turn = parse(&with("files", json!({"maxFileBytes": 10}))).unwrap();
    assert_eq!(turn.files, Some(Files { max_file_bytes: 10, max_total_bytes: 32 * 1024 * 1024 }));
    assert!(turn.is_protocol_2() && !parse(&self::turn()).unwrap().is_protocol_2());
}

#[test]
fn speakers_need_an_id_and_a_name() {
    for speaker in [
        json!({}),
        json!({"id": "a"}),
        json!({"id": 1, "name": "A"}),
        json!({"id": "a", "name": null}),
    ] {
        assert!(parse(&with("speaker", speaker.clone())).is_none(), "{speaker}");
    }
    let speaker = json!({"name": "A", "role": [1.0], "id": "a"});
    let turn = parse(&with("speaker", speaker)).unwrap();
    assert_eq!((turn.speaker.id(), turn.speaker.name()), ("a", "A"));
    let fields: Vec<_> = turn.speaker.fields().keys().collect();
    assert_eq!(fields, ["name", "role", "id"], "what came is kept in its order");
}

#[test]
fn tools_are_checked_one_by_one() {
    let tool = |name: &str| json!({"name": name, "description": "", "parameters": {}});
    assert!(parse(&with("tools", json!([tool("a"), tool(&"a".repeat(48))]))).is_some());
    for tool in [
        tool(""),
        tool("A"),
        tool("a-b"),
        tool(&"a".repeat(49)),
        json!({"name": "a", "description": 1, "parameters": {}}),
        json!({"name": "a", "description": "", "parameters": []}),
        json!({"name": "a", "description": ""}),
        json!("a"),
        json!(null),
    ] {
        assert!(parse(&with("tools", json!([tool]))).is_none(), "{tool}");
        assert!(parse(&with("mcp", json!([{"server": "s", "tools": [tool]}]))).is_none(), "{tool}");
    }
    for server in [
        json!({"server": "s"}),
        json!({"server": "S", "tools": []}),
        json!({"tools": []}),
        json!([]),
    ] {
        assert!(parse(&with("mcp", json!([server]))).is_none(), "{server}");
    }
}

#[test]
fn schemas_that_no_request_could_hold_are_refused() {
    let tool =
        |parameters: Value| json!([{"name": "a", "description": "", "parameters": parameters}]);
    assert!(parse(&with("tools", tool(nested(TOOL_SPEC_DEPTH)))).is_some());
    assert!(parse(&with("tools", tool(nested(TOOL_SPEC_DEPTH + 1)))).is_none());
    let other = json!([{"name": "a", "description": "", "parameters": {}, "x": nested(TOOL_SPEC_DEPTH + 1)}]);
    assert!(parse(&with("tools", other)).is_none());
}

#[test]
fn a_turn_has_a_size() {
    let mut bytes = turn().to_string().into_bytes();
    bytes.resize(TURN_BYTES, b' ');
    assert!(Turn::parse(&bytes).is_ok());
    bytes.push(b' ');
    assert!(Turn::parse(&bytes).is_err());
}

#[test]
fn hostile_input_is_refused_or_read_never_more() {
    let text = turn().to_string();
    let read = |text: &[u8]| Turn::parse(text).is_ok();
    assert!(read(format!("\u{feff}{text}").as_bytes()), "a byte order mark is dropped");
    assert!(!read(format!("\u{feff}\u{feff}{text}").as_bytes()));
    assert!(!read(format!("{text}{text}").as_bytes()));
    assert!(!read(format!("{text}\0").as_bytes()));
    assert!(!read(&[]) && !read(b" ") && !read(&[0xff; 100]) && !read(&[0; 100]));
    for open in ["[", "{\"a\":", "\"", "[{\"a\":["] {
        assert!(!read(open.repeat(TURN_BYTES / open.len()).as_bytes()), "{open}");
    }
    for cut in 0..text.len() {
        assert!(!read(&text.as_bytes()[..cut]), "cut at {cut}");
    }
    let lone = text.replace("Hello", "\\ud83d \\ude00\\ud83d");
    assert_eq!(Turn::parse(lone.as_bytes()).unwrap().text, "\u{fffd} \u{fffd}\u{fffd}");
    assert!(!read(text.replace("Hello", "\u{1}").as_bytes()), "a raw control character");
    let not_utf8: Vec<u8> = text.bytes().map(|b| if b == b'H' { 0xff } else { b }).collect();
    assert_eq!(Turn::parse(&not_utf8).unwrap().text, "\u{fffd}ello");
    let twice = text.replacen('{', "{\"text\":5,", 1);
    assert_eq!(
        Turn::parse(twice.as_bytes()).unwrap().text,
        "Hello",
        "the last of equal keys counts"
    );
    let twice = text.replace("\"mcp\":[]", "\"mcp\":[],\"text\":5");
    assert!(!read(twice.as_bytes()));
}

#[test]
fn a_turn_is_read_as_it_was_written() {
    let mut parameters = Map::new();
    parameters.insert("type".into(), "object".into());
    let mut tool = ToolSpec::new("clock", "The time", parameters);
    tool.other.insert("strict".into(), true.into());
    let turn = Turn {
        text: "a\"\n😀".into(),
        speaker: Speaker::new("alice", "Alice"),
        model: "m".into(),
        prompt: "p".into(),
        time_zone: "Asia/Taipei".into(),
        reset: true,
        tools: vec![tool.clone()],
        mcp: vec![McpSpec { server: "s".into(), tools: vec![tool] }],
        budgets: Some(Budgets { tool_result_bytes: Some(8192), ..Budgets::default() }),
        channel_history: true,
        files: Some(Files::default()),
    };
    assert_eq!(Turn::parse(turn.to_json().as_bytes()), Ok(turn));
}
