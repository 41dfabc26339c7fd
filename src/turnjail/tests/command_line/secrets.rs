//! The key: sent to the endpoint and to nobody else.

use std::path::Path;

use super::Test;
use super::endpoint::{Answer, Endpoint, say};
use super::environment::{Account, Fact, KEY, eventually, finish};
use crate::tests;

pub const TESTS: &[Test] = tests![&[Fact::Jail];
    no_log_holds_the_key_nor_the_conversation,
    no_other_process_of_the_user_can_read_the_key,
    an_answer_that_holds_the_key_does_not_reach_the_guest,
    a_key_that_cannot_be_had_stops_the_start_and_is_named,
];

fn no_log_holds_the_key_nor_the_conversation() {
    let endpoint = Endpoint::saying("the quick reply");
    let account = Account::new();
    for format in ["text", "json"] {
        account.ask(endpoint.url(), &format!("[log]\nlevel = \"debug\"\nformat = {format:?}\n"));
        let run = account.run(&["turn", "the quiet message"]);
        assert_eq!(run.code, 0, "{run:?}");
        // That the key is in none is asserted of every run.
        assert!(!run.err.contains("quick reply") && !run.err.contains("quiet message"), "{run:?}");
    }
}

fn no_other_process_of_the_user_can_read_the_key() {
    let endpoint = Endpoint::new(|_, _| Answer::Silence);
    let account = Account::new();
    account.ask(endpoint.url(), "");
    // Not the key of other tests, whose programs may just be starting.
    let key = format!("{KEY}-spied");
    let mut turn = account.command(&["turn", "Hi"]).env("TEST_KEY", &key).spawn().unwrap();
    // The control: a program with the same environment that does not protect itself.
    let mut control = account.command_of_user(Path::new("/bin/sleep"), &["60"]);
    let mut control = control.env("TEST_KEY", &key).spawn().unwrap();
    eventually("the turn asks the model", || !endpoint.asked().is_empty());
    // A program of the same user looks into every process that it can look into.
    let look = "for f in /proc/[0-9]*/environ /proc/[0-9]*/cmdline; do \
                { tr '\\0' '\\n' < $f | grep -q \"$LOOK\" && echo \"$f\"; } 2>/dev/null; done; \
                cat /proc/$PID/environ /proc/$PID/maps";
    let mut spy = account.command_of_user(Path::new("/bin/sh"), &["-c", look]);
    // Named in pieces, so that the spy does not find itself.
    let (start, rest) = key.split_at(4);
    let pattern = format!("{start}[{}]{}", &rest[..1], &rest[1..]);
    spy.env_remove("TEST_KEY").env("LOOK", pattern).env("PID", turn.id().to_string());
    let seen = spy.output().unwrap();
    for child in [&mut turn, &mut control] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let found = String::from_utf8_lossy(&seen.stdout);
    let refused = String::from_utf8_lossy(&seen.stderr);
    assert_eq!(found, format!("/proc/{}/environ\n", control.id()), "only the control may be read");
    assert_eq!(refused.matches("Permission denied").count(), 2, "{refused}");
}

fn an_answer_that_holds_the_key_does_not_reach_the_guest() {
    let endpoint = Endpoint::new(|_, _| Answer::Body(say(&format!("your key is {KEY}"))));
    let account = Account::new();
    account.ask(endpoint.url(), "");
    account.run(&["turn", "Hi"]).assert_refused(1, "");
}

fn a_key_that_cannot_be_had_stops_the_start_and_is_named() {
    let endpoint = Endpoint::saying("ok");
    let account = Account::new();
    account.ask(endpoint.url(), "");
    let mut command = account.command(&["turn", "Hi"]);
    command.env_remove("TEST_KEY");
    let run = finish(command);
    run.assert_refused(2, "TEST_KEY");
    assert!(run.err.contains("change model.api_key"), "{run:?}");
    assert!(endpoint.asked().is_empty());
}
