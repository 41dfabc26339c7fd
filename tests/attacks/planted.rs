//! A32 to A40: what a guest leaves in its workspace for the host to fall over: links, swaps, special
//! files, configurations of tools, hostile names, deep trees. The host measures, mends and removes it.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use turnjail_driver::ExitReason;
use turnjail_jail::{Bounds, JailDriver, JailOptions, Profile, Target};
use turnjail_runtime::{TurnDirectories, Workspaces, channel_workspace};
use turnjail_tests::Test;
use turnjail_tests::acts::call;
use turnjail_tests::jails::{Bench, private_dir};
use turnjail_warden::seccomp::numbers;

use crate::support::HERE;

pub const TESTS: &[Test] = &[
    Test::new("a32_a_deep_tree_of_long_names_is_measured_and_removed", a32),
    Test::new("a35_links_that_a_guest_planted_lead_the_host_nowhere", a35),
    Test::new("a36_a_swap_while_the_host_looks_leads_nowhere", a36),
    Test::new("a37_special_files_hang_nothing_and_are_removed", a37),
    Test::new("a39_configurations_of_tools_are_never_read", a39),
    Test::new("a40_hostile_names_are_measured_and_removed", a40),
];

/// Workspaces of a host, one of them a guest's, beside a directory that nothing may touch.
struct Host {
    dir: TempDir,
    runtime: Runtime,
    workspaces: Workspaces,
    directories: TurnDirectories,
}

impl Host {
    fn new() -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let dir = private_dir();
        let path = |name: &str| dir.path().join(name);
        let workspaces = runtime.block_on(async {
            let driver = JailDriver::start(JailOptions::new(path("images"))).await.expect("jails");
            let (run, root) = (path("run"), path("workspaces"));
            let image = turnjail_images::BUILTIN;
            Workspaces::open(&run, &root, image, Arc::new(driver)).await.expect("workspaces")
        });
        let workspace = channel_workspace("test:attack");
        let host = Self {
            runtime,
            workspaces,
            directories: TurnDirectories { workspace, state: None },
            dir,
        };
        fs::create_dir(host.guest()).expect("a directory");
        fs::set_permissions(host.guest(), fs::Permissions::from_mode(0o700)).expect("chmod");
        fs::create_dir_all(host.outside().join("inner")).expect("directories");
        fs::write(host.outside().join("secret"), "secret").expect("a file");
        host
    }

    /// The guest's workspace.
    fn guest(&self) -> PathBuf {
        self.workspaces.path(&self.directories.workspace)
    }

    /// What nothing may touch.
    fn outside(&self) -> PathBuf {
        self.dir.path().join("outside")
    }

    /// A general image does these acts in the workspace, as a guest's program would.
    fn plant(&self, acts: &[Value]) {
        let bench = Bench::new();
        let mut spec = bench.spec(Profile::General, &["-"]);
        for mount in spec.mounts.iter_mut().filter(|mount| mount.target == Target::Workspace) {
            mount.source = self.guest();
        }
        let input = serde_json::to_vec(acts).expect("JSON");
        let report = bench.acts_in(&spec, &input);
        assert!(report.worked() && report.lines.len() == acts.len(), "{:?}", report.lines.last());
    }

    /// Everything that the host does with a workspace when nobody runs in it. Then it is gone, and what
    /// lies outside is as it was.
    fn handle(&self) {
        let before = snapshot(&self.outside());
        let list = self.runtime.block_on(self.workspaces.list()).expect("a list");
        assert_eq!(list.len(), 1);
        self.runtime.block_on(self.workspaces.repair(&self.directories)).expect("mended");
        let removed = self.runtime.block_on(self.workspaces.remove(&self.directories));
        assert!(removed.expect("removed"));
        assert!(!self.guest().exists(), "it is still there");
        assert_eq!(snapshot(&self.outside()), before, "something outside was changed");
    }
}

/// Every name below a directory with mode, size and time of change.
fn snapshot(dir: &Path) -> Vec<(PathBuf, u32, u64, i64, i64)> {
    use std::os::unix::fs::MetadataExt as _;
    let mut all = Vec::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(path) = todo.pop() {
        let found = fs::symlink_metadata(&path).expect("it is there");
        all.push((path.clone(), found.mode(), found.len(), found.ctime(), found.ctime_nsec()));
        if found.is_dir() {
            todo.extend(fs::read_dir(&path).expect("a list").flatten().map(|entry| entry.path()));
        }
    }
    all.sort();
    all
}

fn a32() {
    let host = Host::new();
    let name = "d".repeat(255);
    let down = |name: &str| {
        [call(numbers::MKDIRAT, json!([HERE, name, 0o700])), call(numbers::CHDIR, json!([name]))]
    };
    let start = [call(numbers::CHDIR, json!(["/workspace"]))];
    let deep: Vec<Value> = start.into_iter().chain((0..1_500).flat_map(|_| down(&name))).collect();
    host.plant(&deep);
    // A path like that cannot even be named: the control is removing it by one.
    let by_path = host.guest().join(&name).join(vec![name.as_str(); 20].join("/"));
    assert!(fs::remove_dir_all(by_path).is_err(), "the control removes it");
    let files = json!(["files", "/workspace", 20_000]);
    host.plant(&[files]);
    host.handle();
}

fn a35() {
    let host = Host::new();
    let outside = host.outside();
    let targets = [
        outside.join("secret"),
        outside.join("inner"),
        PathBuf::from("../../outside/secret"),
        PathBuf::from("/proc/self/environ"),
        PathBuf::from("loop"),
        PathBuf::from("/nowhere"),
    ];
    let places = ["history.json", "memory.json", "files", ".turnjail-lock", "loop", "plain"];
    for (place, target) in places.iter().zip(&targets) {
        let link = format!("/workspace/{place}");
        host.plant(&[call(numbers::SYMLINKAT, json!([target, HERE, link]))]);
    }
    let control = fs::read_to_string(host.guest().join("history.json"));
    assert_eq!(control.expect("whoever follows it gets there"), "secret");
    host.handle();
}

/// Swaps two names in a loop, and counts.
fn swapper(dir: &Path, one: &str, other: &str, stop: &AtomicBool, swaps: &AtomicU64) {
    let (one, other) = (dir.join(one), dir.join(other));
    while !stop.load(Ordering::Relaxed) {
        if renameat2(AT_FDCWD, &one, AT_FDCWD, &other, RenameFlags::RENAME_EXCHANGE).is_ok() {
            swaps.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The walk that measures a workspace, and the one that removes it, against names that are a directory at
/// one moment and a link to a large one outside at the next.
fn a36() {
    let host = Host::new();
    let (guest, outside) = (host.guest(), host.outside());
    for number in 0..2_000 {
        fs::write(outside.join("inner").join(number.to_string()), "").expect("a file");
    }
    let before = snapshot(&outside);
    fs::create_dir(guest.join("dir")).expect("a directory");
    fs::write(guest.join("dir/file"), "x").expect("a file");
    symlink(outside.join("inner"), guest.join("link")).expect("a link");
    let followed = fs::read_dir(guest.join("link")).expect("the control follows it").count();
    assert_eq!(followed, 2_000);
    let (stop, swaps) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| swapper(&guest, "dir", "link", &stop, &swaps));
        let bench = Bench::new();
        let mut spec = bench.spec_for(Profile::Sealed, &[json!(["exit", 0])]);
        spec.bounds = Some(Bounds { bytes: 0, entries: 100, reserve: 0 });
        for mount in spec.mounts.iter_mut().filter(|mount| mount.target == Target::Workspace) {
            mount.source.clone_from(&guest);
        }
        let mut rounds = 0;
        while rounds < 50 || swaps.load(Ordering::Relaxed) < 100_000 {
            // Over its bounds only if the link was followed.
            let ended = bench.run(&spec, b"").expect("within its bounds");
            assert_eq!(ended.reason, ExitReason::Ok, "{}", ended.cause());
            rounds += 1;
        }
        let list = host.runtime.block_on(host.workspaces.list()).expect("a list");
        let size = list.first().and_then(|info| info.size).expect("a size");
        assert!(size.entries < 100, "the link was followed: {size:?}");
        let removed = host.runtime.block_on(host.workspaces.remove(&host.directories));
        stop.store(true, Ordering::Relaxed);
        // It may fail while somebody goes on swapping; it may not go astray.
        drop(removed);
    });
    assert_eq!(snapshot(&outside), before, "something outside was changed");
}

fn a37() {
    for place in ["history.json", "memory.json", "files"] {
        let host = Host::new();
        let guest = host.guest();
        let fifo = |name: &str| {
            nix::unistd::mkfifo(&guest.join(name), nix::sys::stat::Mode::S_IRWXU).expect("a FIFO");
        };
        fifo(place);
        fifo("another");
        let _listener = UnixListener::bind(guest.join("socket")).expect("a socket");
        fs::write(guest.join("secret"), "x").expect("a file");
        fs::set_permissions(guest.join("secret"), fs::Permissions::from_mode(0o000))
            .expect("chmod");
        assert!(fs::read(guest.join("secret")).is_err(), "the control reads it");
        host.handle();
    }
    let host = Host::new();
    fs::create_dir_all(host.guest().join("history.json/deeper")).expect("directories");
    host.handle();
    // A directory that its owner may not enter is opened again by the worker that removes it.
    let host = Host::new();
    let closed = host.guest().join("closed");
    fs::create_dir_all(closed.join("below")).expect("directories");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).expect("chmod");
    assert!(fs::read_dir(&closed).is_err(), "the control enters it");
    host.handle();
}

/// With the command line in such a directory: `command_line/workspace.rs`.
fn a39() {
    let host = Host::new();
    let (guest, canary) = (host.guest(), host.outside().join("canary"));
    let touch = format!("touch {}", canary.display());
    let write = |name: &str, text: &str| {
        let path = guest.join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        fs::write(&path, text).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("chmod");
    };
    for name in ["git", "sh", "tar", "docker", "turnjail", "worker"] {
        write(name, &format!("#!/bin/sh\n{touch}\n"));
    }
    write(".git/config", &format!("[core]\nfsmonitor = \"{touch}\"\nhooksPath = .\n"));
    write("post-checkout", &format!("#!/bin/sh\n{touch}\n"));
    write("bare/HEAD", "ref: refs/heads/x\n");
    write("bare/config", &format!("[core]\nbare = true\nfsmonitor = \"{touch}\"\n"));
    write(".gitattributes", "* filter=x\n");
    write(".cargo/config.toml", &format!("[build]\nrustc-wrapper = \"{touch}\"\n"));
    write("build.rs", "fn main() {}\n");
    write("package.json", &format!("{{\"scripts\":{{\"postinstall\":\"{touch}\"}}}}"));
    write(".npmrc", "script-shell=./sh\n");
    write(".envrc", &touch);
    write("sitecustomize.py", &format!("import os; os.system('{touch}')"));
    write("etc/ld.so.preload", "/workspace/x.so\n");
    write("turnjail.toml", &format!("[model.api_key]\ncommand = [\"sh\", \"-c\", \"{touch}\"]\n"));
    write(".config/turnjail/turnjail.toml", "nonsense = true\n");
    // The control: that a command that looks there does run it.
    let control =
        std::process::Command::new("./git").current_dir(&guest).status().expect("a shell");
    assert!(control.success() && canary.exists(), "the control leaves no mark");
    fs::remove_file(&canary).expect("removed");
    host.handle();
    assert!(!canary.exists(), "something of the workspace was run");
}

fn a40() {
    let host = Host::new();
    let guest = host.guest();
    let long = "n".repeat(255);
    let names: [&[u8]; 16] = [
        b"new\nline",
        b"\x1b[2J",
        b"bell\x07",
        "\u{202e}txt.exe".as_bytes(),
        b"\xff\xfe invalid",
        long.as_bytes(),
        b"-rf",
        b"--",
        b" spaces ",
        b"'\"`$(touch x)",
        b"*?[a-z]",
        b".wh.x",
        b".wh..wh..opq",
        b"\\",
        b"Case",
        b"case",
    ];
    for name in names {
        let path = guest.join(OsStr::from_bytes(name));
        fs::write(&path, "x").expect("a file");
        let dir = guest.join("dirs").join(OsStr::from_bytes(name));
        fs::create_dir_all(dir.join("below")).expect("directories");
    }
    let list = host.runtime.block_on(host.workspaces.list()).expect("a list");
    let size = list[0].size.expect("a size");
    assert_eq!(size.entries, names.len() as u64 * 3 + 1, "{size:?}");
    host.handle();
}
