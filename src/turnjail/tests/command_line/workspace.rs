//! `turnjail workspace`: found, measured, mended and forgotten.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Test;
use super::endpoint::Endpoint;
use super::environment::{Account, Fact, finish};
use crate::tests;

pub const TESTS: &[Test] = tests![&[Fact::Jail];
    a_workspace_is_found_and_measured,
    a_broken_memory_is_put_aside_and_the_channel_works_again,
    what_a_channel_stored_can_be_forgotten,
    a39_a_command_in_a_workspace_reads_nothing_there,
];

/// An account with one turn behind it, and where its channel's workspace is.
fn used() -> (Account, Endpoint, PathBuf) {
    let endpoint = Endpoint::saying("Hello.");
    let account = Account::new();
    account.ask(endpoint.url(), "");
    assert_eq!(account.run(&["turn", "Hi"]).code, 0);
    let path = account.run(&["workspace", "path"]).out;
    (account, endpoint, PathBuf::from(path.trim()))
}

fn a_workspace_is_found_and_measured() {
    let (account, _endpoint, workspace) = used();
    assert!(workspace.join("history.json").exists(), "{}", workspace.display());
    let list = account.run(&["workspace", "list", "--json"]).json();
    let name = workspace.file_name().unwrap().to_str().unwrap();
    assert_eq!(list.as_array().unwrap().len(), 1);
    assert_eq!(list[0]["name"], name);
    assert!(list[0]["size"]["bytes"].as_u64().unwrap() > 0);
    assert!(account.run(&["workspace", "list"]).out.contains(name));
}

fn a_broken_memory_is_put_aside_and_the_channel_works_again() {
    let (account, _endpoint, workspace) = used();
    assert_eq!(account.run(&["workspace", "repair"]).out, "nothing was broken\n");
    fs::write(workspace.join("memory.json"), "not a memory").unwrap();
    let broken = account.run(&["turn", "Hi"]);
    broken.assert_refused(1, "");
    assert!(broken.err.contains("turnjail workspace repair"), "{broken:?}");
    let repair = account.run(&["workspace", "repair"]);
    assert!(repair.out.starts_with("put aside: "), "{repair:?}");
    assert_eq!(account.run(&["turn", "Hi"]).code, 0);
}

fn what_a_channel_stored_can_be_forgotten() {
    let (account, _endpoint, workspace) = used();
    assert_eq!(account.run(&["workspace", "remove"]).out, "removed\n");
    assert!(!workspace.exists());
    assert_eq!(account.run(&["workspace", "remove"]).out, "there was nothing to remove\n");
}

/// Everything that a tool may look for in the directory that it is started in leaves a mark when it is
/// found. The control: a shell that does look.
fn a39_a_command_in_a_workspace_reads_nothing_there() {
    let (account, _endpoint, workspace) = used();
    let mark = account.path("mark");
    let touch = format!("touch {}", mark.display());
    for name in ["git", "sh", "docker", "worker", "turnjail", "turnjail-warden"] {
        let path = workspace.join(name);
        fs::write(&path, format!("#!/bin/sh\n{touch}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::write(workspace.join("turnjail.toml"), "nonsense = true\n").unwrap();
    fs::create_dir(workspace.join(".config")).unwrap();
    fs::write(workspace.join(".envrc"), &touch).unwrap();
    let mut control = account.command_of_user(Path::new("sh"), &["-c", "./git"]);
    assert!(control.current_dir(&workspace).status().unwrap().success() && mark.exists());
    fs::remove_file(&mark).unwrap();
    for arguments in [
        &["config", "check"][..],
        &["turn", "Hi"],
        &["workspace", "list"],
        &["workspace", "path"],
        &["doctor"],
        &["workspace", "repair"],
        &["workspace", "remove"],
    ] {
        let mut command = account.command(arguments);
        let run = finish(std::mem::replace(command.current_dir(&workspace), Command::new("true")));
        assert_eq!(run.code, 0, "{arguments:?}: {run:?}");
        assert!(!mark.exists(), "{arguments:?} ran something of the workspace");
    }
}
