//! Where secrets may come from, and that none is repeated.

use super::*;

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
