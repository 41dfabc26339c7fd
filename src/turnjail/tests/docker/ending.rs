//! How jails of this command end, and that nothing of them is left when it is said so.

use std::io::Read as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Child;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::account::{Account, PROBES, Run, eventually};

/// A jail that runs, and a connection that lasts as long as its program.
struct Held {
    child: Child,
    connection: UnixStream,
}

impl Held {
    fn start(account: &Account, name: &str) -> Self {
        let socket = account.path("run/held.sock");
        let _ = std::fs::remove_file(&socket);
        let listener = UnixListener::bind(&socket).unwrap();
        let acts = json!([["hang", "/broker/held.sock", "x"], ["sleep", 120_000]]);
        let child = account.start(name, &acts);
        let (mut connection, _) = listener.accept().unwrap();
        connection.read_exact(&mut [0]).unwrap();
        connection.set_nonblocking(true).unwrap();
        Self { child, connection }
    }

    /// Whether the program in the jail is gone, its descriptors with it.
    fn is_gone(&mut self) -> bool {
        matches!(self.connection.read(&mut [0]), Ok(0))
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    fn end(self) -> Run {
        Run::of(&self.child.wait_with_output().unwrap())
    }
}

fn listed(account: &Account) -> String {
    account.run(&["ps", "--all", "--format", "{{.Names}} {{.State}}"], b"").out
}

pub fn removed() {
    let account = Account::with_probes();
    let mut held = Held::start(&account, "one");
    assert_eq!(listed(&account), "one running\n");
    let format = "{{.Names}}\t{{.Mounts}}";
    let arguments = ["ps", "--all", "--no-trunc", "--filter", "name=^on", "--format", format];
    let line = account.run(&arguments, b"").out;
    assert!(line.contains(&account.path("run").display().to_string()), "{line}");
    let other = account.run(&["ps", "--quiet", "--filter", "name=two"], b"");
    assert_eq!((other.code, other.out.as_str()), (0, ""));

    let kept = account.run(&["rm", "one"], b"");
    assert_eq!((kept.code, held.is_gone()), (1, false), "{kept:?}");
    assert!(kept.err.contains("cannot remove a running container"), "{kept:?}");

    let removed = account.run(&["rm", "--force", "one"], b"");
    assert!(held.is_gone(), "nothing is left when the removal is told");
    assert_eq!((removed.code, removed.out.as_str(), removed.err.as_str()), (0, "one\n", ""));
    assert_eq!(held.end().code, 137);
    assert_eq!(listed(&account), "");

    for (arguments, code) in [(&["rm", "--force", "one"][..], 0), (&["rm", "one"], 1)] {
        let again = account.run(arguments, b"");
        assert_eq!((again.code, again.err.as_str()), (code, "Error: No such container: one\n"));
    }
    for odd in ["../one", "/one", "", "-"] {
        let none = account.run(&["rm", "--force", odd], b"");
        assert_eq!((none.code, none.out.as_str()), (0, ""), "{odd}: {none:?}");
    }
}

pub fn signals() {
    let account = Account::with_probes();
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130), (Signal::SIGHUP, 129)] {
        let mut held = Held::start(&account, "one");
        held.signal(signal);
        assert_eq!(held.child.wait().unwrap().code(), Some(code));
        assert!(held.is_gone(), "{signal}");
        assert_eq!(listed(&account), "");
    }
}

/// As a driver does on cancellation: the client is killed, then its container removed.
pub fn killed() {
    let account = Account::with_probes();
    for round in 0..6 {
        let mut held = Held::start(&account, "one");
        held.signal(Signal::SIGKILL);
        if round % 2 == 0 {
            let removed = account.run(&["rm", "--force", "one"], b"");
            assert!(held.is_gone(), "nothing is left when the removal is told: {removed:?}");
            assert_eq!(removed.code, 0);
        } else {
            eventually("the end of a jail whose command was killed", || held.is_gone());
        }
        assert_eq!(held.end().code, 137);
        assert_eq!(listed(&account), "");
    }
    // One that does not react is killed for its jail's sake.
    let mut held = Held::start(&account, "one");
    held.signal(Signal::SIGSTOP);
    let removed = account.run(&["rm", "--force", "one"], b"");
    assert!(held.is_gone());
    assert_eq!((removed.code, removed.out.as_str()), (0, "one\n"), "{removed:?}");
    assert_eq!(held.end().code, 137);
    let left: Vec<_> = std::fs::read_dir(account.path("runtime/turnjail-docker"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

fn again(account: &Account) -> Run {
    account.run(&account.arguments("one", PROBES), b"[[\"exit\", 0]]")
}

pub fn names() {
    let account = Account::with_probes();
    let mut held = Held::start(&account, "one");
    let second = again(&account);
    assert_eq!(second.code, 125);
    assert!(second.err.contains("The container name \"/one\" is already in use"), "{second:?}");
    assert!(!held.is_gone(), "the first runs on");
    account.run(&["rm", "--force", "one"], b"");
    held.child.wait().unwrap();
    assert_eq!(again(&account).code, 0, "the name is free again");
}

pub fn codes() {
    let account = Account::with_probes();
    let run =
        |acts: Value| account.run(&account.arguments("one", PROBES), acts.to_string().as_bytes());
    assert_eq!(run(json!([["exit", 3]])).code, 3);
    assert_eq!(run(json!([["crash"]])).code, 139);
    let printed = run(json!([["print", "hello"], ["exit", 0]]));
    assert_eq!((printed.code, &printed.out[..5]), (0, "hello"));
    let flood = run(json!([["flood", 1, 4_000_000], ["sleep", 60_000]]));
    assert_eq!((flood.code, flood.out.len()), (137, 2 * 1024 * 1024 + 1));
    // Without --interactive there is nothing to read.
    let mut arguments = account.arguments("one", "turnjail-worker");
    arguments.retain(|word| word != "--interactive");
    assert!(account.run(&arguments, b"{}").err.contains("invalid_turn"));
}
