//! How a program in a jail can end, and what the host makes of it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};
use turnjail_driver::{ExitReason, Limits};
use turnjail_jail::{Ended, Profile, StartError};
use turnjail_protocol::limits::EXIT_OUT_OF_MEMORY;
use turnjail_tests::acts::call;
use turnjail_tests::jails::Bench;
use turnjail_warden::seccomp::numbers;
use turnjail_warden::wire::Status;

const EFBIG: i64 = 27;

fn ended(bench: &Bench, limits: Limits, acts: &[Value]) -> Ended {
    let mut spec = bench.spec_for(Profile::Sealed, acts);
    spec.limits = limits;
    bench.run(&spec, b"").expect("a jail")
}

fn limits() -> Limits {
    Limits { time_ms: 10_000, ..Limits::default() }
}

pub fn exit_code() {
    let ended = ended(&Bench::new(), limits(), &[json!(["exit", 7])]);
    assert_eq!((ended.reason, ended.exit.status), (ExitReason::WorkerFailed, Status::Code(7)));
    assert!(ended.cause().contains('7'), "{}", ended.cause());
}

/// A fault ends even the first process of a pid namespace, which ignores other signals' defaults.
pub fn signal() {
    const SIGSEGV: i32 = 11;
    let ended = ended(&Bench::new(), limits(), &[json!(["crash"])]);
    assert_eq!(ended.reason, ExitReason::WorkerFailed, "{ended:?}");
    assert_eq!(ended.exit.status, Status::Signal(SIGSEGV), "{ended:?}");
}

/// Where the kernel's log can be read.
pub fn forbidden_call() {
    let bench = Bench::new();
    let open = call(numbers::FSOPEN, json!(["tmpfs", 0]));
    let ended = ended(&bench, limits(), &[open]);
    assert_eq!(ended.reason, ExitReason::Filter, "{ended:?}");
    assert_eq!(ended.forbidden_call.as_deref(), Some("fsopen"));
    assert!(ended.cause().ends_with("forbids (fsopen)"), "{}", ended.cause());
}

pub fn output() {
    let bench = Bench::new();
    for (descriptor, limit) in [(1, 2 * 1024 * 1024), (2, 128 * 1024)] {
        let ended = ended(&bench, limits(), &[json!(["flood", descriptor, 1 << 30])]);
        assert_eq!(ended.reason, ExitReason::Output, "descriptor {descriptor}");
        let read = if descriptor == 1 { &ended.stdout } else { &ended.stderr };
        assert_eq!(read.len(), limit, "what is kept of descriptor {descriptor}");
    }
}

pub fn output_at_the_limit() {
    let ended = ended(&Bench::new(), limits(), &[json!(["flood", 2, 128 * 1024])]);
    assert_eq!(ended.reason, ExitReason::Ok, "{}", ended.cause());
    assert_eq!(ended.stderr.len(), 128 * 1024);
}

/// The probe asks for memory until it is refused, and goes on; the worker ends as the last line says.
pub fn memory() {
    let bench = Bench::new();
    let mut spec = bench.spec_for(Profile::Sealed, &[json!(["touch", 256])]);
    spec.limits.memory_mb = 64;
    let report = bench.acts_in(&spec, b"");
    assert!(report.met_memory_limit(32..64, &bench), "{report:?}");
    let ended = ended(&bench, limits(), &[json!(["exit", EXIT_OUT_OF_MEMORY])]);
    assert_eq!(ended.reason, ExitReason::Memory);
}

pub fn cpu() {
    let bench = Bench::new();
    let short = Limits { time_ms: 1_000, ..Limits::default() };
    let within = ended(&bench, short, &[json!(["spin", 200])]);
    assert_eq!(within.reason, ExitReason::Ok, "{}", within.cause());
    let over = ended(&bench, short, &[json!(["spin", 20_000])]);
    assert_eq!(over.reason, ExitReason::Cpu, "{:?}", over.exit);
}

pub fn file_size() {
    let bench = Bench::new();
    let within = ended(&bench, limits(), &[json!(["fill", "/workspace/small", 1])]);
    assert_eq!(within.reason, ExitReason::Ok, "{}", within.cause());
    // Sparse: the size counts, not the blocks.
    let large = fs::File::create(bench.path("workspace").join("large")).expect("a file");
    large.set_len(1 << 30).expect("its size");
    // O_WRONLY and O_APPEND.
    let open = call(numbers::OPENAT, json!([-100, "/workspace/large", 0o2001, 0]));
    let write = call(numbers::WRITE, json!([{"of": 0}, "x", 1]));
    let report = bench.acts(Profile::Sealed, &[open, write]);
    assert_eq!(report.last_error(), Some(EFBIG), "{report:?}");
    let size = fs::metadata(bench.path("workspace").join("large")).map_or(0, |m| m.len());
    assert_eq!(size, 1 << 30);
}

pub fn tmp() {
    let ended = ended(&Bench::new(), limits(), &[json!(["fill", "/tmp/file", 65])]);
    let last = String::from_utf8_lossy(&ended.stdout);
    assert!(last.contains("\"errno\":28"), "no ENOSPC: {last}");
}

pub fn unread_input() {
    let bench = Bench::new();
    let spec = bench.spec_for(Profile::Sealed, &[json!(["exit", 0])]);
    let input = vec![b' '; 256 * 1024];
    let ended = bench.run(&spec, &input).expect("a jail");
    assert_eq!(ended.reason, ExitReason::Ok, "{}", ended.cause());
}

fn refused(bench: &Bench, program: &str) -> StartError {
    let mut spec = bench.spec(Profile::Sealed, &[]);
    spec.command = vec![program.to_owned()];
    bench.run(&spec, b"").expect_err("a refusal")
}

pub fn missing_program() {
    let error = refused(&Bench::new(), "/missing");
    let text = error.to_string();
    assert!(text.contains("/missing"), "{text}");
    assert!(error.remedy().is_some(), "{text}");
}

pub fn not_a_program() {
    let bench = Bench::new();
    let path = bench.path("root").join("text");
    fs::write(&path, "not a program").expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o555)).expect("chmod");
    let error = refused(&bench, "/text");
    assert_eq!(error.code(), "exec-format", "{error}");
}

pub fn missing_mount_point() {
    let bench = Bench::new();
    fs::remove_dir(bench.path("root").join("channel")).expect("removed");
    let error = refused(&bench, "/worker");
    assert_eq!(error.code(), "mount-point", "{error}");
    let channel = bench.path("channel");
    assert!(error.to_string().contains(&channel.display().to_string()), "{error}");
}

/// Between the host's check and the mount, somebody puts a link or another directory in the place of a
/// source: the path is not followed.
pub fn replaced_source() {
    let bench = Bench::new();
    let workspace = bench.path("workspace");
    fs::remove_dir(&workspace).expect("removed");
    std::os::unix::fs::symlink("/", &workspace).expect("a link");
    let error = refused(&bench, "/worker");
    assert_eq!(error.code(), "mount-source", "{error}");
    assert!(error.to_string().contains("workspace"), "{error}");
}
