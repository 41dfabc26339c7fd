//! Ctrl-C, SIGTERM and kill -9: what is left of a turn afterwards is nothing.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::Child;
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use super::Test;
use super::endpoint::{Answer, Endpoint};
use super::environment::{Account, Fact, Run, eventually};
use crate::tests;

pub const TESTS: &[Test] = tests![&[Fact::Jail];
    ctrl_c_cancels_the_turn_and_leaves_nothing,
    a_second_ctrl_c_does_not_interrupt_the_clean_up,
    sigterm_ends_a_turn_as_cleanly,
    an_interrupted_demo_removes_its_directory,
    after_kill_9_no_process_is_left_and_the_next_turn_cleans_up,
];

/// A turn that waits for its model, and everything that it started.
struct Waiting {
    account: Account,
    child: Child,
    family: Vec<i32>,
}

fn waiting() -> Waiting {
    let endpoint = Endpoint::new(|_, _| Answer::Silence);
    let account = Account::new();
    account.ask(endpoint.url(), "");
    let mut child = account.command(&["turn", "Hi"]).process_group(0).spawn().unwrap();
    eventually("the turn asks the model", || {
        if child.try_wait().unwrap().is_some() {
            let mut said = String::new();
            child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            panic!("it ended by itself: {said}");
        }
        !endpoint.asked().is_empty()
    });
    let family = descendants(child.id() as i32);
    assert!(family.len() >= 2, "warden and worker at least: {family:?}");
    assert_eq!(account.run_directories().len(), 1);
    Waiting { account, child, family }
}

/// The processes that descend from one, by the kernel's own lists.
fn descendants(root: i32) -> Vec<i32> {
    let mut parents = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent = stat.rsplit(')').next().unwrap().split_whitespace().nth(1);
        if let Some(parent) = parent.and_then(|parent| parent.parse::<i32>().ok()) {
            parents.push((pid, parent));
        }
    }
    let mut family = vec![root];
    let mut at = 0;
    while at < family.len() {
        let of = family[at];
        family.extend(parents.iter().filter(|(_, parent)| *parent == of).map(|(pid, _)| *pid));
        at += 1;
    }
    family.split_off(1)
}

fn alive(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap().trim_start().starts_with('Z'))
}

fn send(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id() as i32), signal).unwrap();
}

/// As a terminal does: to everything in the foreground.
fn press_ctrl_c(child: &Child) {
    killpg(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
}

fn assert_nothing_left(waiting: Waiting, code: i32) {
    let Waiting { account, child, family } = waiting;
    let run = Run::of(child.wait_with_output().unwrap());
    run.assert_refused(code, "cancelled");
    assert!(account.run_directories().is_empty());
    eventually("every process of the turn is gone", || !family.iter().any(|pid| alive(*pid)));
}

fn ctrl_c_cancels_the_turn_and_leaves_nothing() {
    let waiting = waiting();
    press_ctrl_c(&waiting.child);
    assert_nothing_left(waiting, 130);
}

fn a_second_ctrl_c_does_not_interrupt_the_clean_up() {
    let waiting = waiting();
    for _ in 0..5 {
        press_ctrl_c(&waiting.child);
        std::thread::sleep(Duration::from_micros(500));
    }
    assert_nothing_left(waiting, 130);
}

fn sigterm_ends_a_turn_as_cleanly() {
    let waiting = waiting();
    send(&waiting.child, Signal::SIGTERM);
    assert_nothing_left(waiting, 143);
}

fn an_interrupted_demo_removes_its_directory() {
    // At whatever it is doing after that long.
    for pause in [0, 3, 10, 30, 60, 100, 150] {
        let account = Account::new();
        let child = account.command(&["demo"]).process_group(0).spawn().unwrap();
        let inside = || std::fs::read_dir(account.path("tmp")).unwrap().count();
        eventually("the demo makes its directory", || inside() == 1);
        std::thread::sleep(Duration::from_millis(pause));
        press_ctrl_c(&child);
        let run = Run::of(child.wait_with_output().unwrap());
        assert!([0, 130].contains(&run.code), "{run:?}");
        assert_eq!(inside(), 0, "{run:?}");
    }
}

fn after_kill_9_no_process_is_left_and_the_next_turn_cleans_up() {
    let Waiting { account, mut child, family } = waiting();
    send(&child, Signal::SIGKILL);
    child.wait().unwrap();
    eventually("every process of the turn is gone", || !family.iter().any(|pid| alive(*pid)));
    assert_eq!(account.run_directories().len(), 1, "nobody was there to remove it");
    let endpoint = Endpoint::saying("Hello again.");
    account.ask(endpoint.url(), "");
    assert_eq!(account.run(&["turn", "Hi"]).out, "Hello again.\n");
    assert!(account.run_directories().is_empty());
}
