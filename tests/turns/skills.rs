//! Skills read by the real worker.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use turnjail_tests::jails::private_dir;

use crate::stage::{Stage, run};
use turnjail_tests::model::{Answer, Model, last_result};

/// The text that a page's first line says comes next.
fn next_offset(page: &str) -> Option<u64> {
    page.lines().next()?.split_once("next offset: ")?.1.trim_end_matches(']').parse().ok()
}

pub fn pages() {
    // Everything that JSON escapes, escaped twice on its way, and characters of every length.
    let mut text = String::from("---\nname: long\ndescription: A long one.\n---\n");
    for line in 0..400 {
        let _ = writeln!(text, "{line}\t\"quoted\" \\ back\u{1}slash é 漢字 😀\r");
    }
    let skills = private_dir();
    std::fs::create_dir(skills.path().join("long")).expect("a folder");
    std::fs::write(skills.path().join("long/SKILL.md"), &text).expect("a skill");

    // The worker makes twelve model calls at most in a turn, so the reading goes over several turns.
    let pages: Arc<Mutex<Vec<String>>> = Arc::default();
    let offset = Arc::new(Mutex::new(Some(0)));
    let mind = {
        let (pages, offset) = (Arc::clone(&pages), Arc::clone(&offset));
        move |request: &Value| {
            let mut offset = offset.lock().expect("it");
            if let Some(result) = last_result(request) {
                let answer: Value = serde_json::from_str(&result).expect("an uncut answer");
                let page = answer["text"].as_str().expect("text").to_owned();
                *offset = next_offset(&page);
                pages.lock().expect("them").push(page);
            }
            let results = request["messages"].as_array().expect("them").iter();
            let read = results.filter(|message| message["role"] == "tool").count();
            match *offset {
                Some(offset) if read < 8 => Answer::Calls(vec![(
                    "host_read_skill",
                    json!({"name": "long", "offset": offset}),
                )]),
                _ => Answer::Says("read".to_owned()),
            }
        }
    };
    run(async {
        let model = Model::start(mind).await;
        let stage = Stage::start(model, |_| {}, |options| options.skills([skills.path()])).await;
        let mut turns = 0;
        while offset.lock().expect("it").is_some() {
            turns += 1;
            assert!(turns < 20, "reading ends");
            assert_eq!(stage.say("chat:1", "Read on.").await, "read");
        }
        let prompt = stage.model.requests()[0]["messages"][0]["content"].to_string();
        assert!(prompt.contains("- long: A long one."), "{prompt}");
    });
    let pages = pages.lock().expect("them");
    assert!(pages.len() > 5, "{} pages", pages.len());
    let read: String =
        pages.iter().map(|page| page.split_once('\n').expect("a first line").1).collect();
    assert_eq!(read, text);
}
