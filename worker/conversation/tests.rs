//! Requests of any conversation fit, are whole, and drop only what they may.

use proptest::prelude::*;
use turnjail_protocol::json::{Value, parse};
use turnjail_protocol::measure::CUT_MARKER;

use super::*;

/// Sizes of the results of each group.
type Groups = Vec<Vec<usize>>;

fn groups() -> impl Strategy<Value = Groups> {
    prop::collection::vec(prop::collection::vec(0_usize..3000, 1..8), 0..6)
}

/// Text whose encoding is longer than itself, and marked by where it came from.
fn text(mark: &str, size: usize) -> String {
    format!("{mark}:{}", "\"é".repeat(size / 2))
}

struct Made {
    request: Result<Value, WorkerCode>,
    length: usize,
}

/// The request after these groups; the budgets before were all large enough.
fn request(history: usize, groups: &Groups, budget: usize, keep_newest: bool) -> Made {
    let entries: Vec<Entry> =
        (0..history).map(|n| Entry::new(Role::User, &text(&format!("h{n}"), 500))).collect();
    let mut conversation = Conversation::new(&Start {
        model: "m",
        system: "s",
        history: &entries,
        user: "u",
        tools: "[]",
        budget,
        keep_newest,
    });
    for (number, sizes) in groups.iter().enumerate() {
        let ids: Vec<_> = (0..sizes.len()).map(|index| format!("{number}.{index}")).collect();
        let calls = ids.iter().map(|id| Transcript { id, name: "f", arguments: "{}" });
        let mut group = Group::new("", calls);
        for (id, size) in ids.iter().zip(sizes) {
            group.push(Outcome { id: id.clone(), content: text(id, *size) });
        }
        conversation.push(group);
    }
    match conversation.make_fit() {
        Err(code) => Made { request: Err(code), length: 0 },
        Ok(length) => {
            let mut out = Vec::new();
            conversation.write(&mut out);
            assert_eq!(out.len(), length, "the length announced");
            Made { request: Ok(parse(&String::from_utf8(out).unwrap()).unwrap()), length }
        }
    }
}

fn contents<'v>(request: &'v Value, role: &str) -> Vec<&'v str> {
    let messages = request["messages"].as_array().unwrap().iter();
    messages.filter(|m| m["role"] == role).map(|m| m["content"].as_str().unwrap()).collect()
}

/// The groups whose results are there, each whole.
fn kept(request: &Value, groups: &Groups) -> Vec<usize> {
    let messages = request["messages"].as_array().unwrap();
    let mut kept = Vec::new();
    let mut at = messages.iter().position(|m| m["content"] == "u").unwrap() + 1;
    while at < messages.len() {
        let calls = messages[at]["tool_calls"].as_array().unwrap();
        let number: usize =
            calls[0]["id"].as_str().unwrap().split('.').next().unwrap().parse().unwrap();
        assert_eq!(calls.len(), groups[number].len());
        for (index, call) in calls.iter().enumerate() {
            assert_eq!(messages[at + 1 + index]["tool_call_id"], call["id"], "an orphan");
        }
        kept.push(number);
        at += 1 + calls.len();
    }
    kept
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_request_fits_and_drops_the_oldest_first(
        history in 0_usize..20, groups in groups(), budget in 60_usize..30_000, keep_newest: bool
    ) {
        let made = request(history, &groups, budget, keep_newest);
        let Ok(value) = made.request else {
            // Nothing is left to drop: what stays is over the budget by itself.
            let least = groups.last().filter(|_| keep_newest).map_or(0, |newest| newest.len() * 250 + 100);
            prop_assert!(budget < 200 + least, "refused with {budget}");
            return Ok(());
        };
        prop_assert!(made.length <= budget);
        let users = contents(&value, "user");
        let kept = kept(&value, &groups);
        // The newest of each, in order, and no group goes while history is left.
        let left = users.len() - 1;
        for (user, number) in users.iter().zip(history - left..history) {
            let mark = format!("h{number}:");
            prop_assert!(user.starts_with(&mark));
        }
        prop_assert_eq!(&kept, &(groups.len() - kept.len()..groups.len()).collect::<Vec<_>>());
        prop_assert!(left == 0 || kept.len() == groups.len());
        prop_assert!(!keep_newest || groups.is_empty() || !kept.is_empty());
        // Results are only cut where the newest group alone is too large, and then evenly.
        let results = contents(&value, "tool");
        let cut: Vec<_> = results.iter().filter(|text| text.ends_with(CUT_MARKER)).collect();
        if !cut.is_empty() {
            prop_assert!(keep_newest && kept.len() == 1 && left == 0);
            let sizes: Vec<_> = cut.iter().map(|text| measure::json_bytes(text)).collect();
            let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
            // Characters have up to two bytes here.
            prop_assert!(most - least <= 2, "{sizes:?}");
            for whole in results.iter().filter(|text| !text.ends_with(CUT_MARKER)) {
                prop_assert!(measure::json_bytes(whole) <= most + 2);
            }
            prop_assert!(budget - made.length <= 3 * results.len(), "room is used");
        }
    }

    #[test]
    fn nothing_is_dropped_that_fits(history in 0_usize..20, groups in groups()) {
        let whole = request(history, &groups, usize::MAX, false);
        let again = request(history, &groups, whole.length, true);
        prop_assert_eq!(whole.request.unwrap(), again.request.unwrap());
    }
}
