//! Programs that others wrote, unmodified, doing ordinary work in general jails.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Value, json};
use turnjail_driver::ExitReason;
use turnjail_jail::{Ended, JailSpec, Profile, Status};
use turnjail_tests::general::General;
use turnjail_tests::jails::Bench;
use turnjail_tests::script::{Broker, Response};

/// A jail on the root of a general image, with a program of `programs/` in the workspace.
fn spec(
    bench: &Bench,
    image: General,
    command: &[&str],
    program: Option<(&str, &str)>,
) -> JailSpec {
    if let Some((name, text)) = program {
        fs::write(bench.path("workspace").join(name), text).expect("a program");
    }
    let mut spec = bench.spec(Profile::General, &[]);
    spec.rootfs = image.root();
    spec.command = command.iter().map(|&word| word.to_owned()).collect();
    "/workspace".clone_into(&mut spec.working_dir);
    spec.limits.time_ms = 60_000;
    spec
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn assert_ended(ended: &Ended, reason: ExitReason, code: i32) {
    let (out, err) = (text(&ended.stdout), text(&ended.stderr));
    assert_eq!((ended.reason, ended.exit.status), (reason, Status::Code(code)), "{out}\n{err}");
}

/// Runs it with a broker that answers one call, and reads its lines of JSON.
fn work(bench: &Bench, spec: &JailSpec) -> BTreeMap<String, Value> {
    let broker = Broker::listen(&bench.path("run").join("broker.sock"), vec![Response::text("hi")]);
    let ended = bench.run(spec, b"").expect("a jail");
    let calls = broker.stop();
    assert_ended(&ended, ExitReason::Ok, 0);
    assert_eq!(calls.iter().filter(|call| call.route() == "/model").count(), 1);
    let lines = text(&ended.stdout);
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    lines
        .map(|line| (line["name"].as_str().expect("a name").to_owned(), line["value"].clone()))
        .collect()
}

fn assert_values(found: &BTreeMap<String, Value>, wanted: &[(&str, Value)]) {
    for (name, value) in wanted {
        assert_eq!(found.get(*name), Some(value), "{name}");
    }
    assert_eq!(found.len(), wanted.len(), "{found:?}");
}

fn answer() -> Value {
    json!([200, {"choices": [{"message": {"content": "hi"}}]}])
}

pub fn python() {
    let bench = Bench::new();
    let program = ("work.py", include_str!("programs/work.py"));
    let spec = spec(&bench, General::Python, &["python3", "-I", "work.py"], Some(program));
    assert_values(
        &work(&bench, &spec),
        &[
            ("threads", json!([[0, 1, 2, 3, 4, 5, 6, 7], 64])),
            ("processes", json!([[0, 1, 4, 9, 16], "HELLO"])),
            ("files", json!([6000, 1_048_576, 4950, "Read-only file system"])),
            ("broker", answer()),
            ("waits", json!([20, true, "child"])),
            ("names", json!("failed cleanly")),
            ("network", json!("Address family not supported by protocol")),
            ("proc", json!(["python3", "0000000000000000", "2", ["self", "thread-self"]])),
            ("shared", json!(["hello", true])),
            ("identity", json!(["/workspace", "/tmp/home", "sandbox", 0o022])),
        ],
    );
}

fn javascript(image: General) {
    let bench = Bench::new();
    let program = ("work.mjs", include_str!("programs/work.mjs"));
    let spec = spec(&bench, image, &[image.name(), "work.mjs"], Some(program));
    assert_values(
        &work(&bench, &spec),
        &[
            ("threads", json!([1, 4, 9])),
            ("processes", json!(["sync", "piped", "SIGTERM"])),
            ("files", json!([8000, ["copy", "note.txt", "note.txt.old"], "EROFS"])),
            ("broker", answer()),
            ("waits", json!([5, true])),
            ("names", json!("failed cleanly")),
            ("network", json!("refused")),
            ("proc", json!(["0000000000000000", "2", ["self", "thread-self"]])),
            ("compute", json!([7_u64 * 3_000_000 * 2_999_999 / 2 % 1_000_003, 64])),
            ("identity", json!(["/workspace", "/tmp/home", "sandbox", 0o022])),
        ],
    );
}

pub fn node() {
    javascript(General::Node);
}

pub fn bun() {
    javascript(General::Bun);
}

fn shell(image: General) {
    let bench = Bench::new();
    let program = ("work.sh", include_str!("programs/work.sh"));
    let spec = spec(&bench, image, &["sh", "work.sh"], Some(program));
    let ended = bench.run(&spec, b"").expect("a jail");
    assert_ended(&ended, ExitReason::WorkerFailed, 7);
    let uid = nix::unistd::geteuid();
    let wanted = format!(
        "sorted: line 1 line 2 line 3 \n\
         linked: line 3 deep/list\n\
         sum: 2cf24dba\n\
         mode: 700\n\
         set-id: refused\n\
         pipe: 65536\n\
         background: late\n\
         where: /workspace /tmp/home {uid}\n\
         random: 8\n\
         shared: x\n\
         root: refused\n\
         trapped: yes\n\
         left: 1\n"
    );
    assert_eq!(text(&ended.stdout), wanted, "{}", text(&ended.stderr));
}

pub fn busybox() {
    shell(General::Busybox);
}

pub fn coreutils() {
    shell(General::Coreutils);
}

/// Go's own runtime: threads, futexes, its poller, and no C library.
pub fn go() {
    let bench = Bench::new();
    for number in 0..40 {
        let name = format!("part{number}.ts");
        let text = format!("export const value{number}: number = {number};\n");
        fs::write(bench.path("workspace").join(name), text).expect("a module");
    }
    let imports = (0..40)
        .map(|n| format!("import {{ value{n} }} from './part{n}';\nconsole.log(value{n});\n"));
    let main: String = imports.collect();
    let arguments = ["esbuild", "main.ts", "--bundle", "--minify", "--outfile=out/all.js"];
    let spec = spec(&bench, General::Esbuild, &arguments, Some(("main.ts", &main)));
    let ended = bench.run(&spec, b"").expect("a jail");
    assert_ended(&ended, ExitReason::Ok, 0);
    let bundle = fs::read_to_string(bench.path("workspace").join("out/all.js")).expect("a bundle");
    assert_eq!(bundle.matches("console.log").count(), 40, "{bundle}");
    assert!(!bundle.contains("import"), "{bundle}");
}

/// More processes than allowed are refused, nobody dies of it, and all end with the program.
pub fn fork_bomb() {
    let bench = Bench::new();
    let bomb = "bomb() { sleep 60 & bomb; }\n(bomb) 2>/dev/null\n\
                echo \"alive: $(ls -d /proc/[0-9]* 2>/dev/null | wc -l)\"";
    let mut spec = spec(&bench, General::Busybox, &["sh", "-c", bomb], None);
    spec.limits.pids = 16;
    let ended = bench.run(&spec, b"").expect("a jail");
    let (out, err) = (text(&ended.stdout), text(&ended.stderr));
    // Where even the last command cannot be forked, the shell says so and fails.
    let held = out.starts_with("alive: ") || err.contains("fork");
    assert!(held, "{ended:?}\n{out}\n{err}");
    assert!(matches!(ended.exit.status, Status::Code(_)), "{ended:?}");
}

/// What a program makes of a stop signal is its own business; it ends as it says.
pub fn stop_signal() {
    let bench = Bench::new();
    let script = "import os, signal, sys\n\
                  signal.signal(signal.SIGTERM, lambda *_: (print('stopping'), sys.exit(3)))\n\
                  os.kill(1, signal.SIGTERM)\n\
                  signal.pause()\n";
    let spec = spec(&bench, General::Python, &["python3", "-Ic", script], None);
    let ended = bench.run(&spec, b"").expect("a jail");
    assert_ended(&ended, ExitReason::WorkerFailed, 3);
    assert_eq!(text(&ended.stdout), "stopping\n");
}
