//! The example is valid, complete and tells the truth.

use super::*;

/// The example with every commented setting switched on, but for what excludes another.
fn whole_example() -> String {
    const EXAMPLE: &str = include_str!("../../../../turnjail.example.toml");
    let lines = EXAMPLE.lines().map(|line| {
        let setting = line.strip_prefix("# ").filter(|rest| {
            let key = rest.split(" = ").next().unwrap_or_default();
            let named =
                rest.contains(" = ") && key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
            (named && key != "prompt_file") || *rest == "[directories]"
        });
        setting.unwrap_or(line)
    });
    lines.collect::<Vec<_>>().join(
        "
",
    )
}

#[test]
fn the_example_is_valid_as_it_stands_and_with_everything_switched_on() {
    plain(include_str!("../../../../turnjail.example.toml"));
    let host = Host { uid: 1000, runtime_dir: Some("/run/user/1000".into()), ..host() };
    let (settings, list) =
        resolve(&whole_example(), Overlay::default(), &host, Path::new("/etc/bot")).unwrap();
    assert!(settings.model.proxy.is_some() && settings.audit.is_some());
    // Every setting that exists is in the example, so that it can be found there.
    let absent: Vec<_> = list
        .iter()
        .filter(|one| one.origin == Origin::Default && !one.key.contains('['))
        .map(|one| one.key.as_str())
        .collect();
    assert_eq!(absent, ["turn.prompt_file"]);
}

#[test]
fn the_defaults_that_the_example_shows_are_the_defaults() {
    let host = Host { uid: 1000, runtime_dir: Some("/run/user/1000".into()), ..host() };
    let read =
        |text: &str| resolve(text, Overlay::default(), &host, Path::new("/etc/bot")).unwrap().1;
    let (example, least) = (read(&whole_example()), read(LEAST));
    let told: Vec<_> =
        least.iter().filter(|one| one.origin == Origin::Default && !one.value.is_null()).collect();
    assert!(told.len() > 20);
    for one in told {
        assert_eq!(effective(&example, &one.key).value, one.value, "{}", one.key);
    }
}
