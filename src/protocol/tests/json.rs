//! Reading JSON leniently, against the library's strict reading.

use proptest::prelude::*;
use turnjail_protocol::json::{Value, depth, parse, stringify};

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "[\\x00-\\x1f\"\\\\a/é😀\u{2028}]{0,20}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::vec((any::<String>(), inner), 0..8)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// Numbers as JavaScript has them.
fn as_doubles(value: &Value) -> Value {
    match value {
        Value::Number(number) => Value::from(number.as_f64()),
        Value::Array(items) => items.iter().map(as_doubles).collect(),
        Value::Object(map) => {
            Value::Object(map.iter().map(|(key, value)| (key.clone(), as_doubles(value))).collect())
        }
        other => other.clone(),
    }
}

/// Text made of what JSON is made of, so that much of it is nearly JSON.
fn soup() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "\"",
        "\\",
        "\\u",
        "\\ud83d",
        "\\ude00",
        "\\n",
        "u",
        "d83d",
        "1",
        "-",
        "0",
        ".",
        "e",
        "E",
        "+",
        "999",
        "1e999",
        "true",
        "null",
        " ",
        "\n",
        "a",
        "é",
        "😀",
        "\u{1}",
        "\"a\"",
        "\"\\ud83d\"",
        "[1e400]",
        "{\"a\":1}",
    ]);
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read_again(value in value()) {
        let text = stringify(&value);
        let read = parse(&text).unwrap();
        prop_assert_eq!(as_doubles(&read), as_doubles(&value));
        prop_assert_eq!(stringify(&read), text);
    }

    #[test]
    fn strict_json_is_read_as_the_library_reads_it(text in soup()) {
        if let Ok(strict) = serde_json::from_str::<Value>(&text) {
            prop_assert_eq!(parse(&text).unwrap(), strict);
        }
    }

    #[test]
    fn leniency_is_for_surrogates_and_large_numbers_alone(text in soup()) {
        let lenient = parse(&text);
        if serde_json::from_str::<Value>(&text).is_err() && lenient.is_ok() {
            prop_assert!(text.contains("\\ud83d") || text.contains("\\ude00") || text.contains("999") || text.contains("e4"));
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in any::<String>()) {
        let _ = parse(&text);
    }

    #[test]
    fn any_double_is_written_as_javascript_reads_it_back(bits in any::<u64>()) {
        let number = f64::from_bits(bits);
        prop_assume!(number.is_finite());
        let text = stringify(&Value::from(number));
        let read = text.parse::<f64>().unwrap();
        prop_assert!(read.to_bits() == number.to_bits() || number == 0.0);
        prop_assert!(!text.contains(".0e") && !text.ends_with(".0"));
    }
}

#[test]
fn depth_counts_containers() {
    for (text, levels) in [("1", 0), ("[]", 1), ("{\"a\":1}", 1), ("[[],{\"a\":[1]}]", 3)] {
        assert_eq!(depth(&parse(text).unwrap()), levels, "{text}");
    }
}
