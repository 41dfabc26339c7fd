//! Standard input that is no turn.

use std::time::{Duration, Instant};

use serde_json::json;
use turnjail_protocol::WorkerCode;
use turnjail_tests::script::{Response, Stage};
use turnjail_tests::{Test, program as worker};

use crate::{assert_done, assert_failed, test, turn, turn_with};

pub fn tests() -> Vec<Test> {
    vec![
        test("input_that_is_no_turn_fails_at_once", no_turns),
        test("odd_but_valid_input_is_answered", odd_turns),
        test("a_deep_turn_is_refused_and_the_deepest_valid_one_is_sent_on", depth),
    ]
}

fn no_turns() {
    let text = turn().to_string();
    let long = |part: &str| part.repeat(262_144 / part.len());
    let inputs: Vec<(&str, Vec<u8>)> = vec![
        ("nothing", vec![]),
        ("white space", b" \n\t".to_vec()),
        ("NUL bytes", vec![0; 1000]),
        ("bytes that are no UTF-8", vec![0xff; 262_144]),
        ("open arrays", long("[").into_bytes()),
        ("open objects", long("{\"a\":").into_bytes()),
        ("an open string", format!("\"{}", &long("a")[1..]).into_bytes()),
        ("only quotes", long("\"").into_bytes()),
        ("only backslashes in a string", format!("\"{}", &long("\\")[1..]).into_bytes()),
        ("only lone surrogates", format!("\"{}\"", &long("\\ud83d")[6..]).into_bytes()),
        ("a long number", long("9").into_bytes()),
        ("87,000 objects", long("{},").into_bytes()),
        ("a list of turns", format!("[{text}]").into_bytes()),
        ("two turns", format!("{text}{text}").into_bytes()),
        ("a turn and NUL", format!("{text}\0").into_bytes()),
        ("a comment", format!("/**/{text}").into_bytes()),
        ("two byte order marks", format!("\u{feff}\u{feff}{text}").into_bytes()),
        ("UTF-16", text.encode_utf16().flat_map(u16::to_le_bytes).collect()),
        ("an 11 MiB flood", vec![b' '; 11 << 20]),
        ("a control character in a string", text.replace("Hello", "\u{1}").into_bytes()),
        ("text over all", format!("{text}{}", " ".repeat(262_145 - text.len())).into_bytes()),
    ];
    for (what, input) in inputs {
        let started = Instant::now();
        let ended = Stage::new().run(worker(), &input, vec![]);
        eprintln!("{what}");
        assert_failed(&ended, WorkerCode::InvalidTurn);
        assert!(ended.calls.is_empty(), "{what}");
        assert!(started.elapsed() < Duration::from_secs(5), "{what}: {:?}", started.elapsed());
    }
}

fn odd_turns() {
    let text = turn().to_string();
    let inputs = [
        format!("\u{feff}{text}").into_bytes(),
        format!("\r\n\t {text} \n").into_bytes(),
        text.replace("Hello", "\\ud83d\\u0000\\udfff").into_bytes(),
        text.bytes().map(|byte| if byte == b'H' { 0xff } else { byte }).collect(),
        text.replacen('{', "{\"a\":1e999,\"text\":0,", 1).into_bytes(),
        turn_with(json!({"timeZone": "aSIA/tAIPEI"})).to_string().into_bytes(),
        turn_with(json!({"timeZone": "+05:30"})).to_string().into_bytes(),
    ];
    for input in inputs {
        let ended = Stage::new().run(worker(), &input, vec![Response::text("Done.")]);
        assert_done(&ended);
    }
}

fn depth() {
    let turn = |depth: usize| {
        let parameters = (1..depth).fold(json!({}), |inner, _| json!({"a": inner}));
        turn_with(json!({"tools": [{"name": "t", "description": "", "parameters": parameters}]}))
    };
    let run = |depth| {
        let input = turn(depth).to_string();
        Stage::new().run(worker(), input.as_bytes(), vec![Response::text("Done.")])
    };
    let ended = run(123);
    assert_done(&ended);
    // What was accepted can be read by the broker: 127 levels in all.
    let body = std::str::from_utf8(&ended.calls[0].body).expect("text");
    assert_eq!(
        turnjail_protocol::json::depth(&turnjail_protocol::json::parse(body).expect("JSON")),
        127
    );
    assert_failed(&run(124), WorkerCode::InvalidTurn);
    assert_failed(&run(126), WorkerCode::InvalidTurn);
}
