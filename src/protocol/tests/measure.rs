//! The measures and the cut, against a literal rendering of what JavaScript does with UTF-16 units.

use proptest::prelude::*;
use turnjail_protocol::json::{Value, stringify};
use turnjail_protocol::measure::{CUT_MARKER, cut, json_bytes, utf16_len};

fn units(text: &str) -> Vec<u16> {
    text.encode_utf16().collect()
}

/// `Buffer.byteLength(JSON.stringify(text))` for any sequence of units.
fn encoded_bytes(units: &[u16]) -> usize {
    let inner: usize = char::decode_utf16(units.iter().copied())
        .map(|c| match c {
            Ok('"' | '\\' | '\u{8}' | '\t' | '\n' | '\u{c}' | '\r') => 2,
            Ok('\0'..='\u{1f}') | Err(_) => 6,
            Ok(c) => c.len_utf8(),
        })
        .sum();
    inner + 2
}

/// The reference's `promptText`.
fn reference_cut(text: &str, budget: usize) -> String {
    let text = units(text);
    if encoded_bytes(&text) <= budget {
        return String::from_utf16(&text).unwrap();
    }
    let with_marker = |length: usize| {
        let mut cut = text[..length].to_vec();
        cut.extend(CUT_MARKER.encode_utf16());
        cut
    };
    let (mut low, mut high) = (0, text.len());
    while low < high {
        let middle = (low + high).div_ceil(2);
        if encoded_bytes(&with_marker(middle)) <= budget {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    String::from_utf16(&with_marker(low)).expect("a cut never splits a pair")
}

/// Texts in which every size of character and every escape is frequent.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[\\x00-\\x1f\"\\\\a-c/é漢😀\u{2028}\u{7f}]{0,300}",
        "[a😀]{0,300}",
        "😀{0,150}",
        any::<String>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lengths_are_javascripts(text in text()) {
        prop_assert_eq!(utf16_len(&text), units(&text).len());
        prop_assert_eq!(json_bytes(&text), encoded_bytes(&units(&text)));
        prop_assert_eq!(json_bytes(&text), stringify(&Value::from(text)).len());
    }

    #[test]
    fn a_cut_is_the_references(text in text(), budget in 0_usize..400) {
        prop_assert_eq!(cut(&text, budget).into_owned(), reference_cut(&text, budget));
    }

    #[test]
    fn a_cut_fits_wherever_the_marker_does(text in text(), room in 0_usize..400) {
        let budget = json_bytes(CUT_MARKER) + room;
        let cut = cut(&text, budget);
        prop_assert!(json_bytes(&cut) <= budget);
        let whole = json_bytes(&text) <= budget;
        prop_assert_eq!(whole, cut == text.as_str());
        prop_assert!(whole || text.starts_with(cut.strip_suffix(CUT_MARKER).unwrap()));
    }
}

#[test]
fn a_cut_stops_short_where_half_a_pair_is_in_the_way() {
    // Room for three emoji, but the search meets the half after the second first.
    let text = "😀".repeat(50);
    let cuts: Vec<_> = (0..16)
        .map(|room| {
            cut(&text, json_bytes(CUT_MARKER) + room).strip_suffix(CUT_MARKER).unwrap().len() / 4
        })
        .collect();
    let longest: Vec<_> = (0..16).map(|room| room / 4).collect();
    assert_ne!(cuts, longest, "the quirk is reproduced");
    assert!(cuts.iter().zip(&longest).all(|(cut, longest)| cut <= longest && longest - cut <= 1));
}

#[test]
fn large_texts_are_cut_quickly() {
    let text = "\u{1}é😀\"".repeat(200_000);
    let started = std::time::Instant::now();
    for budget in [4_096, 8_192, 49_152] {
        assert!(json_bytes(&cut(&text, budget)) <= budget);
    }
    assert!(started.elapsed().as_secs() < 5, "a cut is linear");
}
