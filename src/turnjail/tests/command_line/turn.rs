//! `turnjail turn` against an endpoint on loopback.

use std::io::Write;
use std::process::Stdio;

use serde_json::{Value, json};

use super::Test;
use super::endpoint::{Answer, Endpoint, call, say};
use super::environment::{Account, Fact, KEY, Run, eventually, read_terminal, terminal};
use crate::tests;

pub const TESTS: &[Test] = tests![&[Fact::Jail];
    the_reply_is_on_standard_output_and_nothing_else,
    the_endpoint_is_asked_as_configured,
    a_second_process_remembers_and_fresh_forgets_the_history,
    json_carries_reply_and_receipt,
    a_reply_that_is_not_ok_is_printed_and_exits_1,
    every_failure_is_one_clear_sentence,
    a_turn_over_its_time_exits_124,
    a_busy_channel_exits_3,
    a_message_comes_from_standard_input,
    hostile_standard_input_is_refused,
    control_characters_are_shown_on_a_terminal_and_exact_in_a_pipe,
    progress_is_shown_on_a_terminal_alone,
    a_command_tool_runs_on_the_host,
    every_turn_leaves_an_audit_line,
];

fn the_reply_is_on_standard_output_and_nothing_else() {
    let endpoint = Endpoint::saying("Hello, Ann!");
    let account = Account::new();
    account.ask(endpoint.url(), "");
    let run = account.run(&["turn", "Hi"]);
    assert_eq!((run.code, run.out.as_str(), run.err.as_str()), (0, "Hello, Ann!\n", ""));
    assert!(account.run_directories().is_empty());
}

fn the_endpoint_is_asked_as_configured() {
    let endpoint = Endpoint::saying("ok");
    let account = Account::new();
    account.ask(
        endpoint.url(),
        "max_output_tokens = 77\noutput_limit_field = \"max_completion_tokens\"\n\
         [model.extra_fields]\ntemperature = 0.5\n[model.extra_headers]\nx-app = \"bot\"\n\
         [turn]\nprompt = \"Be a pirate.\"\ntime_zone = \"Asia/Tokyo\"\n",
    );
    let arguments =
        ["turn", "--channel", "test:1", "--speaker", "42", "--speaker-name", "Ann", "Ahoy"];
    assert_eq!(account.run(&arguments).code, 0);
    let asked = endpoint.asked().remove(0);
    let head = asked.head.to_lowercase();
    assert!(head.contains(&format!("authorization: bearer {KEY}")) && head.contains("x-app: bot"));
    assert_eq!(asked.body["model"], "test-model");
    assert_eq!(
        (&asked.body["max_completion_tokens"], &asked.body["temperature"]),
        (&77.into(), &0.5.into())
    );
    let message = |at: usize| asked.body["messages"][at]["content"].as_str().unwrap().to_owned();
    assert!(message(0).starts_with("Be a pirate."));
    let user: Value = serde_json::from_str(&message(1)).unwrap();
    assert_eq!(user, json!({ "speaker": { "id": "42", "name": "Ann" }, "message": "Ahoy" }));
}

fn a_second_process_remembers_and_fresh_forgets_the_history() {
    let endpoint = Endpoint::new(|before, _| {
        Answer::Body(match before {
            0 => call("memory_set", json!({ "scope": "speaker", "key": "pet", "text": "a newt" })),
            _ => say("Noted."),
        })
    });
    let account = Account::new();
    account.ask(endpoint.url(), "");
    for arguments in
        [&["turn", "My pet is a newt."][..], &["turn", "And?"], &["turn", "--fresh", "Well?"]]
    {
        assert_eq!(account.run(arguments).code, 0);
    }
    let asked = endpoint.asked();
    let messages = |at: usize| asked[at].body["messages"].as_array().unwrap().clone();
    assert_eq!(asked.len(), 4);
    // The history of the first turn is there in the second and gone in the fresh one; memory stays.
    assert_eq!((messages(2).len(), messages(3).len()), (4, 2));
    for at in [2, 3] {
        assert!(messages(at)[0]["content"].as_str().unwrap().contains("a newt"));
    }
}

fn json_carries_reply_and_receipt() {
    let endpoint = Endpoint::saying("Fine.");
    let account = Account::new();
    account.ask(endpoint.url(), "");
    let json = account.run(&["turn", "--json", "Hi"]).json();
    assert_eq!((&json["ok"], &json["text"]), (&true.into(), &"Fine.".into()));
    let receipt = &json["receipt"];
    assert_eq!(receipt["calls"]["model"], 1);
    assert_eq!(receipt["run"]["exit"], "ok");
    assert_eq!(receipt["turn"].as_str().unwrap().len(), 16);
    assert!(receipt["took_us"].as_u64().unwrap() > 0);
    let events = json["events"].as_array().unwrap().iter().map(|event| &event["event"]);
    let expected = ["turn-started", "jail-ready", "call-started", "call-ended", "turn-ended"];
    assert_eq!(events.collect::<Vec<_>>(), expected);
}

fn a_reply_that_is_not_ok_is_printed_and_exits_1() {
    let endpoint =
        Endpoint::new(|_, _| Answer::Body(call("memory_get", json!({ "scope": "speaker" }))));
    let account = Account::new();
    account.ask(endpoint.url(), "");
    let run = account.run(&["turn", "Loop"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert_eq!(run.out, "The sandbox turn reached its model-call limit.\n");
}

fn every_failure_is_one_clear_sentence() {
    let account = Account::new();
    // Nobody listens on this port, since something else did and has left.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    account.ask(&format!("http://{gone}/"), "");
    account.run(&["turn", "Hi"]).assert_refused(1, "");
    for answer in ["not json", "{}", "{\"choices\":[{\"message\":{\"content\":\"\"}}]}", "[]"] {
        let endpoint = Endpoint::new(move |_, _| Answer::Body(answer.to_owned()));
        account.ask(endpoint.url(), "");
        account.run(&["turn", "Hi"]).assert_refused(1, "");
    }
    let endpoint = Endpoint::new(|_, _| Answer::Status(401));
    account.ask(endpoint.url(), "");
    account.run(&["turn", "Hi"]).assert_refused(1, "");
    account.ask(endpoint.url(), "[turn]\nimage = \"no-such-image\"\n");
    account.run(&["turn", "Hi"]).assert_refused(2, "no-such-image");
    account.ask(endpoint.url(), "");
    let long = "x".repeat(32_001);
    account.run(&["turn", &long]).assert_refused(2, "32001");
    account.run(&["turn", "--channel", "nosurface", "Hi"]).assert_refused(2, "surface:id");
    account.run(&["turn", "--channel", "a:\nb", "Hi"]).assert_refused(2, "control character");
    account.run(&["turn", "--principal", "", "Hi"]).assert_refused(2, "principal");
    assert!(account.run_directories().is_empty());
}

fn a_turn_over_its_time_exits_124() {
    let endpoint = Endpoint::new(|_, _| Answer::Silence);
    let account = Account::new();
    account.ask(endpoint.url(), "timeout_s = 1\n[turn]\ntimeout_s = 1\n");
    let run = account.run(&["turn", "Hi"]);
    // The endpoint's time and the turn's are up at once, and whichever is noticed first is right.
    assert!([1, 124].contains(&run.code), "{run:?}");
    account.ask(endpoint.url(), "timeout_s = 600\n[turn]\ntimeout_s = 1\n");
    account.run(&["turn", "Hi"]).assert_refused(124, "within 1 s");
    assert!(account.run_directories().is_empty());
}

fn a_busy_channel_exits_3() {
    let endpoint = Endpoint::new(|_, _| Answer::Silence);
    let account = Account::new();
    account.ask(endpoint.url(), "[turn]\nmax_wait_s = 1\n");
    let mut first = account.command(&["turn", "Hi"]).spawn().unwrap();
    eventually("the first turn asks the model", || !endpoint.asked().is_empty());
    let second = account.run(&["turn", "Me too"]);
    first.kill().unwrap();
    first.wait().unwrap();
    second.assert_refused(3, "in use");
}

fn a_message_comes_from_standard_input() {
    let endpoint = Endpoint::saying("ok");
    let account = Account::new();
    account.ask(endpoint.url(), "");
    assert_eq!(piped(&account, "two\nlines\n".as_bytes()).code, 0);
    let asked = endpoint.asked().remove(0);
    assert!(asked.body["messages"][1]["content"].as_str().unwrap().contains("two\\nlines\"}"));
}

fn hostile_standard_input_is_refused() {
    let account = Account::new();
    account.ask("http://127.0.0.1:9/", "");
    piped(&account, b"\xff\xfe\x00").assert_refused(2, "not UTF-8");
    piped(&account, &vec![b'a'; 4 * 1024 * 1024]).assert_refused(2, "more than");
}

fn piped(account: &Account, input: &[u8]) -> Run {
    let mut child = account.command(&["turn", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writer = std::thread::spawn(move || {
        // A program that has read enough closes its end.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    Run::of(output)
}

fn control_characters_are_shown_on_a_terminal_and_exact_in_a_pipe() {
    let endpoint = Endpoint::saying("a\u{1b}[31mred\u{9b}2J\tb\nc");
    let account = Account::new();
    account.ask(endpoint.url(), "");
    assert_eq!(account.run(&["turn", "Hi"]).out, "a\u{1b}[31mred\u{9b}2J\tb\nc\n");
    let (terminal, slave) = terminal();
    let mut command = account.command(&["turn", "Hi"]);
    let status = command.stdout(slave).status().unwrap();
    drop(command);
    assert!(status.success());
    assert_eq!(read_terminal(&terminal), "a\\x1b[31mred\\x9b2J\tb\nc\n");
}

fn progress_is_shown_on_a_terminal_alone() {
    let endpoint = Endpoint::saying("Hello.");
    let account = Account::new();
    account.ask(endpoint.url(), "");
    assert_eq!(account.run(&["turn", "Hi"]).err, "");
    let (terminal, slave) = terminal();
    let mut command = account.command(&["turn", "Hi"]);
    let output = command.stderr(slave).output().unwrap();
    drop(command);
    assert_eq!(output.stdout, b"Hello.\n");
    let shown = read_terminal(&terminal);
    assert!(shown.contains("jail ready after ") && shown.contains("model: "), "{shown}");
}

fn a_command_tool_runs_on_the_host() {
    let endpoint = Endpoint::new(|before, _| {
        Answer::Body(match before {
            0 => call("host_shout", json!({ "text": "hey" })),
            _ => say("Done."),
        })
    });
    let account = Account::new();
    account.ask(
        endpoint.url(),
        "[[tools]]\nname = \"shout\"\ndescription = \"Shouts.\"\ncommand = [\"tr\", \"a-z\", \"A-Z\"]\n",
    );
    assert_eq!(account.run(&["turn", "Shout"]).code, 0);
    let asked = endpoint.asked();
    let messages = asked[1].body["messages"].as_array().unwrap();
    let result = messages.last().unwrap()["content"].as_str().unwrap();
    assert!(result.contains("HEY"), "{result}");
}

fn every_turn_leaves_an_audit_line() {
    let endpoint = Endpoint::saying("a secret reply");
    let account = Account::new();
    let file = account.path("run/audit.jsonl");
    let name = file.display();
    account.ask(endpoint.url(), &format!("[audit]\nfile = \"{name}\"\n"));
    assert_eq!(account.run(&["turn", "a secret message"]).code, 0);
    let log = std::fs::read_to_string(file).unwrap();
    let record: Value = serde_json::from_str(log.trim()).unwrap();
    assert_eq!(record["outcome"], "ok");
    assert!(!log.contains("secret"), "{log}");
}
