//! The file tools as the model uses them.

use std::fs;

use serde_json::{Value, json};
use turnjail_protocol::measure::json_bytes;
use turnjail_tests::Test;
use turnjail_tests::script::{Ended, Response, Stage};

use crate::{assert_done, run, test, turn, turn_with};

pub fn tests() -> Vec<Test> {
    vec![
        test("files_are_written_read_listed_and_deleted", round_trip),
        test("without_files_in_the_turn_there_are_no_file_tools", off),
        test("a_file_over_its_limit_is_refused_and_the_old_stays", file_limit),
        test("all_files_together_have_a_limit", total_limit),
        test("what_others_wrote_counts_too", counted),
        test("a_long_file_is_read_in_pages_that_fit", pages),
        test("a_binary_file_is_reported_not_dumped", binary),
        test("listings_are_sorted_and_say_when_they_are_cut", listings),
        test("odd_arguments_are_refused_in_words", odd_arguments),
        test("paths_that_lead_elsewhere_are_refused", paths),
        test("names_of_the_workspaces_own_are_not_special", own_names),
        test("appending_makes_grows_and_keeps_whole", append),
    ]
}

/// Runs a turn that makes these calls, and returns their results.
pub fn call_with(stage: &Stage, files: Value, calls: &[(&str, Value)]) -> Vec<String> {
    let mut answers: Vec<Response> = calls.chunks(8).map(Response::calls).collect();
    answers.push(Response::text("Done."));
    let ended: Ended = run(stage, &turn_with(json!({ "files": files })), answers);
    assert_done(&ended);
    let results = ended.results();
    assert_eq!(results.len(), calls.len());
    results
}

/// The same with the default limits.
pub fn call(stage: &Stage, calls: &[(&str, Value)]) -> Vec<String> {
    call_with(stage, json!({}), calls)
}

fn one(stage: &Stage, name: &str, arguments: Value) -> Value {
    serde_json::from_str(&call(stage, &[(name, arguments)])[0]).expect("JSON")
}

pub fn error(result: &str) -> String {
    let value: Value = serde_json::from_str(result).unwrap_or_else(|_| panic!("{result}"));
    value["error"].as_str().unwrap_or_else(|| panic!("no refusal: {result}")).to_owned()
}

fn round_trip() {
    let stage = Stage::new();
    let text = "é😀\"\\\n\0 end";
    let results = call(
        &stage,
        &[
            ("files_list", json!({})),
            ("files_write", json!({"path": "notes/a b/ä.txt", "text": text})),
            ("files_read", json!({"path": "notes/a b/ä.txt"})),
            ("files_list", json!({"path": "notes/a b"})),
            ("files_list", json!({})),
            ("files_delete", json!({"path": "notes/a b"})),
            ("files_delete", json!({"path": "notes/a b/ä.txt"})),
            ("files_delete", json!({"path": "notes/a b"})),
            ("files_read", json!({"path": "notes/a b/ä.txt"})),
        ],
    );
    assert_eq!(results[0], r#"{"entries":[],"total":0}"#);
    assert_eq!(results[1], r#"{"written":true,"size":14}"#);
    let read: Value = serde_json::from_str(&results[2]).expect("JSON");
    assert_eq!(read, json!({"text": text, "offset": 0, "total": 11}));
    let listed = r#"{"entries":[{"name":"ä.txt","kind":"file","size":14}],"total":1}"#;
    assert_eq!(results[3], listed);
    assert_eq!(results[4], r#"{"entries":[{"name":"notes","kind":"directory"}],"total":1}"#);
    assert_eq!(error(&results[5]), "files/notes/a b is a directory that is not empty");
    assert_eq!(results[6..8], [r#"{"deleted":true}"#; 2]);
    assert_eq!(error(&results[8]), "files/notes/a b/ä.txt does not exist");
    // Files are the owner's alone, and nothing is left where they were staged.
    assert_eq!(fs::read_dir(stage.workspace().join(".turnjail")).unwrap().count(), 0);
}

fn off() {
    let calls = Response::calls(&[("files_read", json!({"path": "a"}))]);
    let ended = run(&Stage::new(), &turn(), vec![calls, Response::text("Done.")]);
    assert_done(&ended);
    assert_eq!(ended.results(), ["Tool call refused or failed."]);
    assert!(!String::from_utf8_lossy(&ended.calls[0].body).contains("files_"));
}

fn file_limit() {
    let stage = Stage::new();
    let write = |text: String| ("files_write", json!({"path": "notes.txt", "text": text}));
    let results = call(
        &stage,
        &[write("old".into()), write("x".repeat(300_000)), write("y".repeat(262_144))],
    );
    assert_eq!(error(&results[1]), "files/notes.txt would be 300000 bytes; the limit is 262144");
    assert_eq!(results[2], r#"{"written":true,"size":262144}"#);
    // Bytes are counted, not characters.
    let results = call_with(&stage, json!({"maxFileBytes": 5}), &[write("ééé".into())]);
    assert_eq!(error(&results[0]), "files/notes.txt would be 6 bytes; the limit is 5");
    assert_eq!(fs::metadata(stage.workspace().join("files/notes.txt")).unwrap().len(), 262_144);
}

fn total_limit() {
    let stage = Stage::new();
    let write =
        |path: &str, size: usize| ("files_write", json!({"path": path, "text": "x".repeat(size)}));
    let results = call_with(
        &stage,
        json!({"maxTotalBytes": 100}),
        &[
            write("a", 60),
            write("b", 41),
            write("b", 40),
            write("a", 61),
            write("a", 10),
            write("c/d", 50),
            ("files_delete", json!({"path": "b"})),
            write("b", 40),
        ],
    );
    let over = "all files together would be 101 bytes; the limit is 100; delete some first";
    assert_eq!([error(&results[1]), error(&results[3])], [over, over]);
    for index in [0, 2, 4, 5, 6, 7] {
        assert!(!results[index].contains("error"), "{index}: {}", results[index]);
    }
    assert_eq!(fs::metadata(stage.workspace().join("files/a")).unwrap().len(), 10);
}

fn counted() {
    let stage = Stage::new();
    fs::create_dir_all(stage.workspace().join("files/x/y")).unwrap();
    fs::write(stage.workspace().join("files/x/y/old"), [0; 99]).unwrap();
    let write = |size: usize| ("files_write", json!({"path": "new", "text": "x".repeat(size)}));
    let results = call_with(&stage, json!({"maxTotalBytes": 100}), &[write(2), write(1)]);
    assert!(error(&results[0]).contains("101 bytes"));
    assert_eq!(results[1], r#"{"written":true,"size":1}"#);
    // Already over a lowered limit: what makes the whole smaller is welcome.
    let write = ("files_write", json!({"path": "x/y/old", "text": "smaller"}));
    let results = call_with(&stage, json!({"maxTotalBytes": 5}), &[write]);
    assert_eq!(results, [r#"{"written":true,"size":7}"#]);
}

fn pages() {
    let stage = Stage::new();
    let text = "line \"1\"\\\n\u{1}é漢😀".repeat(2000);
    fs::create_dir(stage.workspace().join("files")).unwrap();
    fs::write(stage.workspace().join("files/long"), &text).unwrap();
    for limit in [None, Some(333)] {
        let (mut read, mut offset, mut rounds) = (String::new(), 0, 0);
        loop {
            let mut arguments = json!({"path": "long", "offset": offset});
            if let Some(limit) = limit {
                arguments["limit"] = limit.into();
            }
            let page = call(&stage, &[("files_read", arguments)]).remove(0);
            // As the model gets it: not cut once more.
            assert!(json_bytes(&page) <= 4096 && !page.contains("[Truncated"), "{page}");
            let page: Value = serde_json::from_str(&page).expect("JSON");
            let part = page["text"].as_str().expect("text");
            assert!(limit.is_none() || part.encode_utf16().count() <= 333);
            read.push_str(part);
            rounds += 1;
            assert_eq!(page["total"], text.encode_utf16().count());
            match page["nextOffset"].as_u64() {
                Some(next) => offset = next,
                None => break,
            }
            if limit.is_some() && rounds > 5 {
                read.clear();
                break;
            }
        }
        assert!(rounds > 5 && (read == text || limit.is_some()));
    }
    let page = one(&stage, "files_read", json!({"path": "long", "offset": 99_999_999}));
    assert_eq!((page["text"].as_str(), page.get("nextOffset")), (Some(""), None));
}

fn binary() {
    let stage = Stage::new();
    fs::create_dir(stage.workspace().join("files")).unwrap();
    fs::write(stage.workspace().join("files/image"), b"\x89PNG\xff\xfe").unwrap();
    let results = call(&stage, &[("files_read", json!({"path": "image"}))]);
    assert_eq!(results, [r#"{"binary":true,"size":6}"#]);
    let large = fs::File::create(stage.workspace().join("files/large")).unwrap();
    large.set_len(1 << 40).unwrap();
    let results = call(&stage, &[("files_read", json!({"path": "large"}))]);
    assert!(error(&results[0]).contains("1099511627776 bytes"), "{results:?}");
}

fn listings() {
    let stage = Stage::new();
    let files = stage.workspace().join("files");
    fs::create_dir(&files).unwrap();
    for number in 0..3000 {
        fs::write(files.join(format!("{number:04}")), "x").unwrap();
    }
    let result = call(&stage, &[("files_list", json!({}))]).remove(0);
    assert!(json_bytes(&result) <= 4096 && json_bytes(&result) > 4000, "{}", json_bytes(&result));
    let listing: Value = serde_json::from_str(&result).expect("JSON");
    let names: Vec<_> =
        listing["entries"].as_array().unwrap().iter().map(|e| e["name"].clone()).collect();
    let sorted: Vec<_> = (0..names.len()).map(|n| json!(format!("{n:04}"))).collect();
    assert_eq!(names, sorted);
    assert_eq!(listing["total"], 3000);
    let cut = listing["cut"].as_str().expect("a marker");
    assert!(cut.starts_with(&format!("the first {} of 3000 entries", names.len())), "{cut}");
    assert!(
        error(&call(&stage, &[("files_list", json!({"path": "0001"}))])[0]).contains("is a file")
    );
    assert!(
        error(&call(&stage, &[("files_list", json!({"path": "no"}))])[0])
            .contains("does not exist")
    );
}

fn odd_arguments() {
    let stage = Stage::new();
    let calls = [
        ("files_write", json!({"text": "x"})),
        ("files_write", json!({"path": 5, "text": "x"})),
        ("files_write", json!({"path": "a"})),
        ("files_write", json!({"path": "a", "text": 5})),
        ("files_write", json!({"path": "a", "text": "x", "append": "yes"})),
        ("files_read", json!({})),
        ("files_read", json!({"path": "a", "offset": -1})),
        ("files_read", json!({"path": "a", "offset": 1.5})),
        ("files_read", json!({"path": "a", "offset": "0"})),
        ("files_read", json!({"path": "a", "limit": 0})),
        ("files_read", json!({"path": "a", "limit": 1e300})),
        ("files_delete", json!({"path": null})),
        ("files_list", json!({"path": false})),
        ("files_list", json!({"path": ""})),
    ];
    for result in call(&stage, &calls) {
        assert!(error(&result).len() > 10, "{result}");
    }
    assert!(!stage.workspace().join("files").exists(), "nothing was made");
}

fn paths() {
    let stage = Stage::new();
    let secret = stage.workspace().join("memory.json");
    fs::write(&secret, "[]").unwrap();
    let deep = "d/".repeat(16) + "x";
    let long = "x".repeat(513);
    let part = "x".repeat(256);
    for path in [
        "../memory.json",
        "/etc/passwd",
        "a/../../memory.json",
        "..",
        ".",
        "a//b",
        "a/",
        "./a",
        "a\0b",
        "a\u{1b}[2J",
        "\u{202e}\n",
        &deep,
        &long,
        &part,
    ] {
        let results = call(
            &stage,
            &[
                ("files_read", json!({"path": path})),
                ("files_write", json!({"path": path, "text": "x"})),
                ("files_delete", json!({"path": path})),
                ("files_list", json!({"path": path})),
            ],
        );
        for result in results {
            error(&result);
        }
    }
    assert_eq!(fs::read_to_string(&secret).unwrap(), "[]");
}

fn own_names() {
    let stage = Stage::new();
    let names =
        [".turnjail", "history.json", "memory.json", "history.json.tmp", "files", "-rf", "a\\b"];
    let calls: Vec<_> =
        names.iter().map(|name| ("files_write", json!({"path": name, "text": name}))).collect();
    call(&stage, &calls);
    for name in names {
        assert_eq!(fs::read_to_string(stage.workspace().join("files").join(name)).unwrap(), *name);
    }
    let history = fs::read_to_string(stage.workspace().join("history.json")).unwrap();
    assert!(history.contains("Done."));
}

fn append() {
    let stage = Stage::new();
    let append = |text: &str| ("files_write", json!({"path": "log", "text": text, "append": true}));
    let results = call_with(
        &stage,
        json!({"maxFileBytes": 6}),
        &[
            append("one"),
            append("two"),
            append("x"),
            append(""),
            ("files_read", json!({"path": "log"})),
        ],
    );
    assert_eq!(results[1], r#"{"written":true,"size":6}"#);
    assert_eq!(error(&results[2]), "files/log would be 7 bytes; the limit is 6");
    assert_eq!(results[4], r#"{"text":"onetwo","offset":0,"total":6}"#);
    let results = call_with(&stage, json!({"maxFileBytes": 5}), &[append("")]);
    assert!(error(&results[0]).contains("has 6 bytes already"));
}
