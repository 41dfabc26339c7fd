//! `turnjail doctor`: what it finds where jails can be made, and where something makes them impossible.

use super::Test;
use super::environment::{Account, Fact};
use crate::tests;

pub const TESTS: &[Test] = tests![&[Fact::Jail];
    a_healthy_host_is_said_to_be_one_after_a_real_turn,
    a_configuration_that_cannot_work_is_found,
    a_required_policy_that_is_not_met_has_its_own_exit_code,
];

fn a_healthy_host_is_said_to_be_one_after_a_real_turn() {
    let account = Account::new();
    let run = account.run(&["doctor"]);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.out.contains("a real turn (driver jail, profile sealed"), "{}", run.out);
    assert!(run.out.ends_with("turns can run here\n"), "{}", run.out);
    let json = account.run(&["doctor", "--json"]).json();
    assert_eq!((&json["ok"], &json["exit"]), (&true.into(), &0.into()));
    assert_eq!(json["turn"]["ok"], true);
    let checks = json["checks"].as_array().unwrap();
    assert!(checks.len() > 5);
    for check in checks {
        assert!(["ok", "degraded"].contains(&check["state"].as_str().unwrap()), "{check}");
        assert!(!check["evidence"].as_str().unwrap().is_empty());
    }
    assert_eq!(std::fs::read_dir(account.path("tmp")).unwrap().count(), 0, "nothing is left");
}

fn a_configuration_that_cannot_work_is_found() {
    let account = Account::new();
    let run = format!("[directories]\nrun = \"/tmp/{}\"\n", "x".repeat(80));
    account.ask("http://127.0.0.1:9/", &run);
    let run = account.run(&["doctor"]);
    assert_eq!(run.code, 2, "{run:?}");
    assert!(run.out.contains("is too long") && run.out.contains("remedy: "), "{run:?}");
    assert!(run.out.ends_with("turns can run here, but not by this configuration\n"), "{run:?}");
}

fn a_required_policy_that_is_not_met_has_its_own_exit_code() {
    let account = Account::new();
    let degraded = account.run(&["doctor", "--json"]).json()["checks"]
        .as_array()
        .unwrap()
        .iter()
        .any(|check| check["name"] == "limits" && check["state"] == "degraded");
    account.ask("http://127.0.0.1:9/", "[jail]\nlimits = \"required\"\n");
    let run = account.run(&["doctor"]);
    assert_eq!(run.code, if degraded { 5 } else { 0 }, "{run:?}");
    if degraded {
        assert!(run.out.contains("not under the policies set"), "{}", run.out);
        account.run(&["turn", "hi"]).assert_refused(5, "limits");
    }
}
