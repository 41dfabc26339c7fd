//! Workspaces in which somebody has planted things where the worker reads and writes.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use serde_json::json;
use turnjail_protocol::WorkerCode;
use turnjail_tests::Test;
use turnjail_tests::script::{Response, Stage};

use crate::files::{call, error};
use crate::{assert_done, assert_failed, run, test, turn, turn_with};

pub fn tests() -> Vec<Test> {
    vec![
        test("links_below_files_are_never_followed", links),
        test("special_files_are_refused_and_hang_nothing", special),
        test("a_planted_files_directory_is_refused", planted_top),
        test("a_planted_staging_directory_is_replaced_not_followed", planted_staging),
        test("planted_state_files_fail_the_turn_and_stay", planted_state),
        test("leftovers_and_plants_beside_state_files_are_replaced", planted_beside),
        test("a_directory_is_not_replaced_by_a_file", directory_in_the_way),
        test("hostile_names_are_listed_harmlessly", names),
        test("what_cannot_be_opened_is_refused_in_words", closed),
    ]
}

fn pipe(path: &Path) {
    nix::unistd::mkfifo(path, nix::sys::stat::Mode::from_bits_truncate(0o600)).expect("a pipe");
}

/// Every file tool on one path.
fn all(stage: &Stage, path: &str) -> Vec<String> {
    let results = call(
        stage,
        &[
            ("files_read", json!({"path": path})),
            ("files_write", json!({"path": path, "text": "mine"})),
            ("files_write", json!({"path": path, "text": "mine", "append": true})),
            ("files_delete", json!({"path": path})),
            ("files_list", json!({"path": path})),
        ],
    );
    results.iter().map(|result| error(result)).collect()
}

fn links() {
    let stage = Stage::new();
    let (outside, files) = (stage.channel(), stage.workspace().join("files"));
    fs::create_dir(&files).unwrap();
    fs::write(outside.join("secret"), "secret").unwrap();
    symlink(outside.join("secret"), files.join("file")).unwrap();
    symlink("../../channel", files.join("dir")).unwrap();
    symlink("loop", files.join("loop")).unwrap();
    symlink("nowhere", files.join("dangling")).unwrap();
    fs::create_dir(files.join("inner")).unwrap();
    symlink("../inner", files.join("inner/up")).unwrap();
    for path in
        ["file", "dir", "dir/secret", "dir/new", "loop", "dangling", "inner/up", "inner/up/x"]
    {
        for refusal in all(&stage, path) {
            assert!(refusal.contains("not a regular file or directory"), "{path}: {refusal}");
        }
    }
    assert_eq!(fs::read_to_string(outside.join("secret")).unwrap(), "secret");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    assert!(fs::symlink_metadata(files.join("file")).unwrap().is_symlink());
}

fn special() {
    let stage = Stage::new();
    let files = stage.workspace().join("files");
    fs::create_dir(&files).unwrap();
    pipe(&files.join("pipe"));
    let _listener = UnixListener::bind(files.join("socket")).unwrap();
    for path in ["pipe", "socket", "pipe/x"] {
        for refusal in all(&stage, path) {
            assert!(refusal.contains("not a regular file or directory"), "{path}: {refusal}");
        }
    }
    let listed = call(&stage, &[("files_list", json!({}))]).remove(0);
    let entries = r#"[{"name":"pipe","kind":"other"},{"name":"socket","kind":"other"}]"#;
    assert_eq!(listed, format!("{{\"entries\":{entries},\"total\":2}}"));
}

fn planted_top() {
    for plant in ["link", "dangling", "file", "pipe"] {
        let stage = Stage::new();
        let files = stage.workspace().join("files");
        fs::write(stage.channel().join("x"), "secret").unwrap();
        match plant {
            "link" => symlink("../channel", &files).unwrap(),
            "dangling" => symlink("../channel/new", &files).unwrap(),
            "file" => fs::write(&files, "x").unwrap(),
            _ => pipe(&files),
        }
        for refusal in all(&stage, "x") {
            assert!(refusal.contains("not a regular file or directory"), "{plant}: {refusal}");
        }
        assert_eq!(fs::read_to_string(stage.channel().join("x")).unwrap(), "secret");
        assert!(!stage.channel().join("new").exists());
    }
}

fn planted_staging() {
    for plant in ["link", "file", "pipe", "leftovers"] {
        let stage = Stage::new();
        let staging = stage.workspace().join(".turnjail");
        match plant {
            "link" => symlink("../channel", &staging).unwrap(),
            "file" => fs::write(&staging, "x").unwrap(),
            "pipe" => pipe(&staging),
            _ => {
                fs::create_dir(&staging).unwrap();
                fs::write(staging.join("staged-0123456789abcdef"), "of a killed worker").unwrap();
                symlink("../../channel", staging.join("staged-link")).unwrap();
                fs::write(staging.join("other"), "not ours").unwrap();
            }
        }
        let results = call(&stage, &[("files_write", json!({"path": "a", "text": "new"}))]);
        assert_eq!(results, [r#"{"written":true,"size":3}"#], "{plant}");
        assert_eq!(fs::read_to_string(stage.workspace().join("files/a")).unwrap(), "new");
        assert_eq!(fs::read_dir(stage.channel()).unwrap().count(), 0);
        let left = fs::read_dir(&staging).unwrap().count();
        assert_eq!(left, usize::from(plant == "leftovers"), "{plant}");
    }
}

fn planted_state() {
    let files =
        [("history.json", WorkerCode::InvalidHistory), ("memory.json", WorkerCode::InvalidMemory)];
    for (name, code) in files {
        for plant in
            ["link", "dangling", "directory", "pipe", "large", "not UTF-8 key", "byte order mark"]
        {
            let stage = Stage::new();
            let path = stage.workspace().join(name);
            fs::write(stage.channel().join("x"), "[]").unwrap();
            match plant {
                "link" => symlink(stage.channel().join("x"), &path).unwrap(),
                "dangling" => symlink("nowhere", &path).unwrap(),
                "directory" => fs::create_dir(&path).unwrap(),
                "pipe" => pipe(&path),
                "large" => fs::write(&path, " ".repeat(5 << 20) + "[]").unwrap(),
                "byte order mark" => fs::write(&path, "\u{feff}[]").unwrap(),
                _ => fs::write(&path, b"[{\"\xff\":1}]").unwrap(),
            }
            let before = fs::symlink_metadata(&path).unwrap().file_type();
            let ended = run(&stage, &turn(), vec![]);
            assert_failed(&ended, code);
            assert_eq!(fs::symlink_metadata(&path).unwrap().file_type(), before, "{name}: {plant}");
        }
    }
}

fn planted_beside() {
    let stage = Stage::new();
    fs::write(stage.channel().join("x"), "secret").unwrap();
    symlink(stage.channel().join("x"), stage.workspace().join("history.json.tmp")).unwrap();
    fs::create_dir(stage.workspace().join("memory.json.tmp")).unwrap();
    fs::write(stage.workspace().join("memory.json.tmp/kept"), "kept").unwrap();
    let set = ("memory_set", json!({"scope": "channel", "key": "k", "text": "t"}));
    let ended = run(&stage, &turn(), vec![Response::calls(&[set]), Response::text("Done.")]);
    assert_done(&ended);
    assert_eq!(ended.results(), ["Saved."]);
    assert_eq!(fs::read_to_string(stage.channel().join("x")).unwrap(), "secret");
    let memory = fs::read_to_string(stage.workspace().join("memory.json")).unwrap();
    assert_eq!(memory, r#"[{"scope":"channel","key":"k","text":"t"}]"#);
    let aside: Vec<_> = fs::read_dir(stage.workspace())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    assert_eq!(aside.len(), 1);
    assert_eq!(fs::read_to_string(aside[0].join("kept")).unwrap(), "kept");
}

fn directory_in_the_way() {
    let stage = Stage::new();
    fs::create_dir_all(stage.workspace().join("files/d")).unwrap();
    fs::write(stage.workspace().join("files/f"), "x").unwrap();
    let results = call(
        &stage,
        &[
            ("files_write", json!({"path": "d", "text": "x"})),
            ("files_write", json!({"path": "f/x", "text": "x"})),
            ("files_read", json!({"path": "d"})),
            ("files_read", json!({"path": "f/x"})),
        ],
    );
    assert_eq!(error(&results[0]), "files/d is a directory");
    assert!(error(&results[1]).contains("leads through one"));
    assert_eq!(error(&results[2]), "files/d is a directory; list it");
    assert!(error(&results[3]).contains("leads through one"));
}

fn names() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let stage = Stage::new();
    let files = stage.workspace().join("files");
    fs::create_dir(&files).unwrap();
    let hostile: [&[u8]; 6] =
        [b"\x1b[2J", b"a\nb", b"\xff\xfe", "\u{202e}".as_bytes(), b"\"", &[b'\x07'; 255]];
    for name in hostile {
        fs::write(files.join(OsStr::from_bytes(name)), "x").unwrap();
    }
    let listed = call(&stage, &[("files_list", json!({}))]).remove(0);
    let listing: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
    assert_eq!(listing["entries"].as_array().map(Vec::len), Some(6), "{listed}");
    assert!(!listed.bytes().any(|byte| byte < b' '), "control characters are escaped");
}

fn closed() {
    let stage = Stage::new();
    let files = stage.workspace().join("files");
    fs::create_dir_all(files.join("d")).unwrap();
    fs::write(files.join("f"), "x").unwrap();
    for name in ["d", "f"] {
        fs::set_permissions(files.join(name), fs::Permissions::from_mode(0o000)).unwrap();
    }
    let results = call(
        &stage,
        &[
            ("files_read", json!({"path": "f"})),
            ("files_list", json!({"path": "d"})),
            ("files_write", json!({"path": "d/x", "text": "x"})),
        ],
    );
    fs::set_permissions(files.join("d"), fs::Permissions::from_mode(0o700)).unwrap();
    for result in results {
        assert!(error(&result).contains("permission denied"), "{result}");
    }
    let ended =
        run(&stage, &turn_with(json!({"historyDir": "/channel"})), vec![Response::text("Done.")]);
    assert_done(&ended);
    fs::set_permissions(stage.channel(), fs::Permissions::from_mode(0o500)).unwrap();
    let ended =
        run(&stage, &turn_with(json!({"historyDir": "/channel"})), vec![Response::text("Done.")]);
    assert_failed(&ended, WorkerCode::Io);
    fs::set_permissions(stage.channel(), fs::Permissions::from_mode(0o700)).unwrap();
}
