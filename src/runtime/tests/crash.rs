//! A host that is killed, seen by the next one. The host is this program, started again.

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixListener;
use std::process::{Child, Command, Stdio};

use turnjail_runtime::channel_workspace;

use crate::common::{Place, Scripted, eventually, request, start, tests, threaded};

tests![
    a_killed_host_leaves_nothing_after_the_next_start,
    a_live_host_in_another_process_keeps_its_workspace_and_directories,
    only_run_directories_of_ours_are_swept,
];

/// Set for the child: the roots' place.
const CHILD: &str = "TURNJAIL_TEST_HOST_IN";
const READY: &str = "ready";

pub fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// A host with one turn that never ends.
pub fn child() -> ! {
    let place = std::path::PathBuf::from(std::env::var_os(CHILD).unwrap());
    threaded(async {
        let driver = Scripted::new();
        let options = turnjail_runtime::SandboxOptions::new(
            "worker:1",
            place.join("run"),
            place.join("work"),
            crate::common::broker(),
        );
        let runtime = start(options, &driver).await;
        let turn = runtime.run_turn(request("chat:1", "hang"));
        eventually("it runs", || driver.running() == 1).await;
        println!("{READY}");
        let _ = turn.await;
    });
    std::process::exit(0);
}

/// The child once its turn runs; killed when dropped.
struct Host(Child);

impl Host {
    fn start(place: &Place) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .env(CHILD, place.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line.trim(), READY);
        Self(child)
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn a_killed_host_leaves_nothing_after_the_next_start() {
    let place = Place::new();
    let mut host = Host::start(&place);
    assert_eq!(place.run_directories().len(), 1);
    host.kill();
    assert_eq!(place.run_directories().len(), 1, "nobody was left to remove it");
    let driver = Scripted::new();
    threaded(async {
        let runtime = place.runtime(&driver).await;
        assert_eq!(place.run_directories(), [""; 0]);
        assert_eq!(place.workspaces(), [channel_workspace("chat:1")], "workspaces are kept");
        runtime.run_turn(request("chat:1", "auto:Ok")).await.unwrap();
    });
    driver.assert_orderly();
}

fn a_live_host_in_another_process_keeps_its_workspace_and_directories() {
    let place = Place::new();
    let mut host = Host::start(&place);
    let driver = Scripted::new();
    threaded(async {
        let runtime = place.runtime(&driver).await;
        assert_eq!(place.run_directories().len(), 1, "the other's turn runs");
        let error = runtime.run_turn(request("chat:1", "auto:Ok")).await.unwrap_err();
        assert_eq!(error.code(), "workspace-busy");
        assert!(error.to_string().contains(&format!("process {} (", host.0.id())), "{error}");
        runtime.run_turn(request("chat:2", "auto:Ok")).await.unwrap();
        host.kill();
        runtime.run_turn(request("chat:1", "auto:Ok")).await.unwrap();
    });
    driver.assert_orderly();
}

fn only_run_directories_of_ours_are_swept() {
    let (place, driver) = (Place::new(), Scripted::new());
    threaded(async {
        drop(place.runtime(&driver).await);
        let run = place.run_root();
        for name in ["turn-abcdef", "turn-ABC123"] {
            std::fs::create_dir(run.join(name)).unwrap();
            drop(UnixListener::bind(run.join(name).join("broker.sock")).unwrap());
        }
        // Names that are not ours, a file, a link to elsewhere, and a directory in a directory.
        for name in ["turn-abcde", "turn-abcdefg", "turn-abc-ef", "other"] {
            std::fs::create_dir(run.join(name)).unwrap();
        }
        let elsewhere = place.path().join("elsewhere");
        std::fs::create_dir(&elsewhere).unwrap();
        std::fs::write(elsewhere.join("kept"), "").unwrap();
        std::os::unix::fs::symlink(&elsewhere, run.join("turn-zzzzzz")).unwrap();
        std::fs::create_dir_all(run.join("turn-nested/deep")).unwrap();
        let runtime = place.runtime(&driver).await;
        assert!(elsewhere.join("kept").exists(), "a link is not followed");
        assert_eq!(
            place.run_directories(),
            ["other", "turn-abc-ef", "turn-abcde", "turn-abcdefg", "turn-nested", "turn-zzzzzz"]
        );
        runtime.run_turn(request("chat:1", "auto:Ok")).await.unwrap();
    });
}
