//! `turnjail demo`: for an ordinary user, and for root, who does not stay root.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::Test;
use super::environment::{Account, Fact, finish, ids, program};
use crate::tests;

pub const TESTS: &[Test] = tests![&[Fact::Jail];
    the_demo_talks_remembers_and_says_what_was_in_force,
    the_readme_shows_the_demo_as_it_is,
    the_demo_is_there_for_machines_too,
    the_demo_leaves_nothing_and_needs_nothing,
];
pub const ROOT_TESTS: &[Test] = tests![&[Fact::Root, Fact::Jail];
    root_becomes_an_ordinary_user_and_says_so,
    root_becomes_who_started_sudo,
    the_demo_works_from_where_its_user_cannot_read,
];

fn the_demo_talks_remembers_and_says_what_was_in_force() {
    let run = Account::new().run(&["demo"]);
    assert_eq!((run.code, run.err.as_str()), (0, ""), "{run:?}");
    for words in [
        "I will remember that your favourite colour is teal.",
        "Your favourite colour is teal. You told me so.",
        "You rolled ",
        "notes/today.txt now says: buy milk",
        "jail ready in ",
        "tool roll_dice ",
        "profile sealed",
        "network namespace",
        "seccomp",
        "512 MiB by ",
    ] {
        assert!(run.out.contains(words), "{words}: {}", run.out);
    }
}

fn the_readme_shows_the_demo_as_it_is() {
    let readme = include_str!("../../../../README.md");
    let without_numbers = |text: &str| text.replace(|c: char| c.is_ascii_digit(), "#");
    let readme: Vec<_> = readme.lines().map(without_numbers).collect();
    let said = Account::new().run(&["demo"]).out;
    let said: Vec<_> = said
        .lines()
        .filter(|line| {
            ["turnjail", "guest", "bot", "       shows"].iter().any(|start| line.starts_with(start))
        })
        .collect();
    assert_eq!(said.len(), 13);
    for line in said {
        assert!(readme.contains(&without_numbers(line)), "not in README.md: {line}");
    }
}

fn the_demo_is_there_for_machines_too() {
    let json = Account::new().run(&["demo", "--json"]).json();
    assert_eq!(json["ok"], true);
    assert_eq!(json["dropped_to"], serde_json::Value::Null);
    let turns = json["turns"].as_array().unwrap();
    assert_eq!(turns.len(), 4);
    for turn in turns {
        let run = &turn["receipt"]["run"];
        assert_eq!(
            (&turn["ok"], &run["exit"], &run["profile"]),
            (&true.into(), &"ok".into(), &"sealed".into())
        );
        assert!(run["timing"]["start_us"].as_u64().unwrap() > 0);
        assert!(run["walls"].as_array().unwrap().len() > 8);
    }
    // A roll is the host's: two calls of the model with one of the tool between them.
    let calls = &turns[2]["receipt"]["calls"];
    assert_eq!((&calls["all"], &calls["model"]), (&3.into(), &2.into()));
}

fn the_demo_leaves_nothing_and_needs_nothing() {
    let account = Account::new();
    let mut command = account.command(&["demo"]);
    // Neither home nor runtime directory: the temporary directory is enough.
    command.env_clear().env("TMPDIR", account.path("tmp"));
    let run = finish(command);
    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!(fs::read_dir(account.path("tmp")).unwrap().count(), 0);
    assert!(!account.path("run/turnjail").exists() && !account.path(".local").exists());
}

fn root_becomes_an_ordinary_user_and_says_so() {
    let run = finish(Account::new().command_as_is(program(), &["demo"]));
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.out.contains("started as root, went on as uid "), "{}", run.out);
    let json = finish(Account::new().command_as_is(program(), &["demo", "--json"])).json();
    let (uid, gid) =
        (json["dropped_to"]["uid"].as_u64().unwrap(), json["dropped_to"]["gid"].as_u64().unwrap());
    assert!(![0, 65_534].contains(&uid) && ![0, 65_534].contains(&gid));
}

fn root_becomes_who_started_sudo() {
    let (uid, gid) = ids();
    for (said_uid, said_gid, accepted) in
        [(uid + 7, gid + 7, true), (0, 0, false), (65_534, 65_534, false), (uid, 0, false)]
    {
        let mut command = Account::new().command_as_is(program(), &["demo", "--json"]);
        command.env("SUDO_UID", said_uid.to_string()).env("SUDO_GID", said_gid.to_string());
        // The home of the account belongs to somebody else, as root's would.
        let json = finish(command).json();
        let became = (json["dropped_to"]["uid"].as_u64(), json["dropped_to"]["gid"].as_u64());
        let said = (Some(u64::from(said_uid)), Some(u64::from(said_gid)));
        assert_eq!(became == said, accepted, "{became:?}");
        assert_eq!(json["ok"], true);
    }
}

fn the_demo_works_from_where_its_user_cannot_read() {
    let account = Account::new();
    let private = tempfile::Builder::new().prefix("turnjail-root-").tempdir_in("/tmp").unwrap();
    fs::set_permissions(private.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let copy = private.path().join("turnjail");
    fs::copy(program(), &copy).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o700)).unwrap();
    let mut command = account.command_as_is(&copy, &["demo"]);
    command.current_dir(private.path());
    let run = finish(command);
    assert_eq!(run.code, 0, "{run:?}");
}
