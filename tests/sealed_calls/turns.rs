//! The turns: those recorded, and some with the file tools and a shared workspace.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};
use turnjail_protocol::errand::Errand;
use turnjail_tests::script::Response;
use turnjail_tests::vectors;

/// A turn of the worker.
pub struct Turn {
    pub name: String,
    /// The files of the workspace before it.
    pub files: BTreeMap<String, Vec<u8>>,
    /// A directory that is closed even to its owner.
    pub closed: Option<&'static str>,
    /// It clears the workspace for the host.
    pub clears: bool,
    pub stdin: Vec<u8>,
    pub answers: Vec<Response>,
    pub exit_code: i32,
}

/// Every turn.
pub fn all() -> Vec<Turn> {
    let recorded = vectors::worker().into_iter().map(|(name, vector)| Turn {
        name,
        files: vectors::files(&vector, "workspace_before"),
        closed: None,
        clears: false,
        stdin: vectors::stdin(&vector),
        answers: vectors::answers(&vector),
        exit_code: vector["exit_code"].as_i64().expect("an exit code") as i32,
    });
    recorded.chain([files(), channel()]).chain(errands()).collect()
}

fn turn(name: &str, fields: Value, answers: Vec<Response>) -> Turn {
    let mut turn = json!({
        "text": "Hello",
        "speaker": {"id": "alice", "name": "Alice"},
        "model": "test-model",
        "prompt": "Be helpful.",
        "timeZone": "Europe/Berlin",
        "tools": [],
        "mcp": [],
    });
    let Value::Object(fields) = fields else { panic!("fields are an object") };
    turn.as_object_mut().expect("an object").extend(fields);
    Turn {
        name: name.to_owned(),
        files: BTreeMap::new(),
        closed: None,
        clears: false,
        stdin: turn.to_string().into_bytes(),
        answers,
        exit_code: 0,
    }
}

fn files() -> Turn {
    let write = |path: &str, text: &str| ("files_write", json!({"path": path, "text": text}));
    let long = "x".repeat(100_000);
    let first = [
        write("a/b/c.txt", "text"),
        write("a/b/c.txt", &long),
        ("files_write", json!({"path": "a/b/c.txt", "text": "more", "append": true})),
        ("files_read", json!({"path": "a/b/c.txt", "offset": 10})),
        ("files_list", json!({})),
        ("files_list", json!({"path": "a/b"})),
        ("files_delete", json!({"path": "a/b/c.txt"})),
        ("files_delete", json!({"path": "a/b"})),
    ];
    let second = [
        ("files_read", json!({"path": "../escape"})),
        ("files_read", json!({"path": "missing"})),
        write("large", &"y".repeat(400_000)),
        ("files_delete", json!({"path": "a"})),
        ("files_delete", json!({"path": "a"})),
    ];
    let answers = vec![Response::calls(&first), Response::calls(&second), Response::text("Done.")];
    turn("file tools", json!({"files": {}}), answers)
}

fn channel() -> Turn {
    let answers = vec![Response::text("Done.")];
    turn("shared workspace", json!({"files": {}, "historyDir": "/channel"}), answers)
}

/// What a worker does for the host instead of a turn.
fn errands() -> impl Iterator<Item = Turn> {
    [Errand::Measure, Errand::Repair, Errand::Clear].into_iter().map(|errand| Turn {
        name: format!("{errand:?}"),
        files: [("history.json".to_owned(), b"{".to_vec())].into(),
        closed: Some("closed"),
        clears: errand == Errand::Clear,
        stdin: errand.to_json().into_bytes(),
        answers: Vec::new(),
        exit_code: 0,
    })
}

impl Turn {
    /// Writes the workspace as it is before the turn.
    pub fn lay_out(&self, workspace: &Path) {
        for (name, content) in &self.files {
            fs::write(workspace.join(name), content).expect("a file");
        }
        if let Some(closed) = self.closed {
            let closed = workspace.join(closed);
            fs::create_dir(&closed).expect("a directory");
            fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).expect("chmod");
        }
    }
    /// Lets the workspace be removed, where the worker has not done it.
    pub fn open_again(&self, workspace: &Path) {
        let closed = self.closed.map(|name| workspace.join(name));
        if let Some(closed) = closed.filter(|path| path.exists()) {
            fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).expect("chmod");
        }
    }
}
