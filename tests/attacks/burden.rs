//! A32 to A34: disk, time and output without end. The kinds of ends are in `jail/endings.rs`.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use turnjail_driver::ExitReason;
use turnjail_jail::{Profile, run};
use turnjail_protocol::Reply;
use turnjail_tests::acts::call;
use turnjail_tests::jails::Bench;
use turnjail_tests::{Test, unique_word};
use turnjail_warden::seccomp::numbers;
use turnjail_warden::wire::Status;

use crate::support::{HERE, PROFILES, Process, within};

pub const TESTS: &[Test] = &[
    Test::new("a32_no_file_is_larger_than_its_limit", a32_files),
    Test::new("a33_nothing_outlasts_the_deadline", a33),
    Test::new("a33_processor_time_passed_from_child_to_child_ends_with_the_turn", a33_relay),
    Test::new("a34_output_without_end_ends_the_run", a34_flood),
    Test::new("a34_garbage_is_no_reply", a34_garbage),
    Test::new("a34_a_stream_that_is_closed_or_will_not_block_hangs_nothing", a34_streams),
];

const EFBIG: i64 = 27;
/// O_CREAT and O_WRONLY.
const MAKE: i64 = 0o101;

fn a32_files() {
    let bench = Bench::new();
    let outside = bench.path("outside").to_string_lossy().into_owned();
    let open = |path: &str| call(numbers::OPENAT, json!([HERE, path, MAKE, 0o600]));
    let grow = |bytes: i64| call(numbers::FTRUNCATE, json!([{"of": 0}, bytes]));
    let control = bench.outside(&[open(&outside), grow(3 << 30)]);
    assert!(control.worked(), "the file system has a lower limit: {control:?}");
    for bytes in [3 << 30, i64::MAX] {
        // The signal that comes with the error is death, unless it is ignored.
        let ended = bench.acts(Profile::General, &[open("/workspace/file"), grow(bytes)]);
        assert_eq!(ended.reason, Some(ExitReason::Disk), "{ended:?}");
        let acts = [open("/workspace/file"), json!(["ignore"]), grow(bytes)];
        assert_eq!(bench.acts(Profile::General, &acts).last_error(), Some(EFBIG), "{bytes}");
        let room = call(numbers::FALLOCATE, json!([{"of": 0}, 0, 0, bytes]));
        let acts = [open("/workspace/file"), json!(["ignore"]), room];
        assert_eq!(bench.acts(Profile::General, &acts).last_error(), Some(EFBIG), "{bytes}");
        // Sealed, one byte far away.
        let far = call(numbers::LSEEK, json!([{"of": 0}, bytes - 1, 0]));
        let write = call(numbers::WRITE, json!([{"of": 0}, "x", 1]));
        let report = bench.acts(Profile::Sealed, &[open("/workspace/far"), far, write]);
        let refused = report.last_error() == Some(EFBIG) || report.filtered_at(1);
        assert!(refused, "{report:?}");
    }
    let largest = std::fs::read_dir(bench.path("workspace")).expect("it").flatten();
    let largest = largest.map(|entry| entry.metadata().map_or(0, |m| m.len())).max();
    assert!(largest.is_some_and(|bytes| bytes <= 1 << 30), "{largest:?}");
}

/// Runs acts in a jail until a deadline comes, as the runtime's does, while they go on.
fn deadline(bench: &Bench, profile: Profile, acts: &[Value]) {
    let word = unique_word("burden");
    let mut spec = bench.spec_for(profile, acts);
    // An argument that the probe never comes to.
    spec.command.push(json!(["print", word]).to_string());
    let cancel = CancellationToken::new();
    let late = async {
        tokio::time::sleep(Duration::from_millis(400)).await;
        cancel.cancel();
    };
    let running = run(bench.client(), &spec, b"", &cancel, || {});
    let (ended, ()) = bench.runtime().block_on(async { tokio::join!(running, late) });
    assert_eq!(ended.expect("a jail").reason, ExitReason::Cancelled, "{acts:?} under {profile}");
    assert!(Process::find_by(&word, |_| true).is_none(), "{acts:?} is left");
}

/// Whether a plain process that does these acts survives SIGTERM.
fn survives(bench: &Bench, acts: &[Value]) -> bool {
    let word = unique_word("burden");
    let mut command = Command::new(bench.path("root").join("worker"));
    command.args(acts.iter().map(Value::to_string)).arg(json!(["print", word]).to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
    let mut child = command.spawn().expect("the control");
    let pid = Pid::from_raw(child.id() as i32);
    std::thread::sleep(Duration::from_millis(200));
    kill(pid, Signal::SIGTERM).expect("it is there");
    std::thread::sleep(Duration::from_millis(100));
    let survived = child.try_wait().expect("wait").is_none();
    kill(pid, Signal::SIGKILL).ok();
    child.wait().expect("reaped");
    survived
}

fn a33() {
    let bench = Bench::new();
    let stop = [
        call(numbers::GETPID, json!([])),
        call(numbers::KILL, json!([{"of": 0}, Signal::SIGSTOP as i32])),
        json!(["sleep", 60_000]),
    ];
    let deaf = [json!(["ignore"]), json!(["spin", 60_000])];
    let asleep = [json!(["ignore"]), json!(["sleep", 60_000])];
    for acts in [&stop[..], &deaf, &asleep] {
        assert!(survives(&bench, acts), "{acts:?} ends by itself");
        deadline(&bench, Profile::General, acts);
    }
    // In the sealed profile, what it can: wait for ever, or never.
    deadline(&bench, Profile::Sealed, &[bench.sleep()]);
    deadline(&bench, Profile::Sealed, &[json!(["spin", 60_000])]);
}

/// The limit of processor time is of one process, so that this would go on for ever: the deadline ends it.
fn a33_relay() {
    let bench = Bench::new();
    let mut limited = Command::new("prlimit");
    limited.arg("--cpu=1").arg(bench.path("root").join("worker"));
    limited.arg(json!(["relay", 3_000]).to_string());
    let control = turnjail_tests::acts::control(limited);
    assert_eq!(control.end, Status::Code(0), "a limit of the process stops it: {control:?}");
    deadline(&bench, Profile::General, &[json!(["relay", 60_000])]);
    let sealed = bench.acts(Profile::Sealed, &[json!(["relay", 100])]);
    assert!(sealed.filtered_at(0), "{sealed:?}");
}

fn a34_flood() {
    let bench = Bench::new();
    let control = bench.outside(&[json!(["flood", 1, 8 << 20])]);
    assert_eq!(control.end, Status::Code(0), "nobody can write that much: {control:?}");
    for &profile in PROFILES {
        for (descriptor, most) in [(1, 2 << 20), (2, 128 << 10)] {
            let spec = bench.spec_for(profile, &[json!(["flood", descriptor, 10_u64 << 30])]);
            let ended = bench.run(&spec, b"").expect("a jail");
            assert_eq!(ended.reason, ExitReason::Output, "{descriptor} under {profile}");
            let kept = if descriptor == 1 { ended.stdout.len() } else { ended.stderr.len() };
            assert_eq!(kept, most, "what is kept of {descriptor}");
        }
    }
}

fn a34_garbage() {
    let bench = Bench::new();
    let good = r#"{"ok":true,"text":"hi"}"#;
    let deep = "[".repeat(1_000_000);
    let nested = format!(r#"{{"ok":true,"text":{}1{}}}"#, "[".repeat(500), "]".repeat(500));
    let garbage: &[&[u8]] = &[
        b"",
        b"\0",
        b"\xff\xfe\xfd",
        b"\x1b[2J\x1b]0;title\x07",
        deep.as_bytes(),
        nested.as_bytes(),
        br#"{"ok":true,"text":"hi"}{"ok":true,"text":"ho"}"#,
        br#"{"ok":true,"text":"hi"} and more"#,
        br#"{"ok":"true","text":"hi"}"#,
        br#"{"ok":true}"#,
        br#"["ok"]"#,
    ];
    for &profile in PROFILES {
        let spec = bench.spec_for(profile, &[json!(["echo"])]);
        let said = |input: &[u8]| {
            let ended = bench.run(&spec, input).expect("a jail");
            assert_eq!(ended.reason, ExitReason::Ok, "{:?}", ended.cause());
            let end = ended.stdout.len().saturating_sub(input.len());
            // The probe's own line, that it worked, comes after.
            ended.stdout[..ended.stdout.len() - end].to_vec()
        };
        let control = said(good.as_bytes());
        assert!(Reply::parse(&control).is_ok_and(|reply| reply.text == "hi"), "{control:?}");
        for input in garbage {
            let heard = said(input);
            assert_eq!(&heard, input);
            let error = Reply::parse(&heard).expect_err("no reply");
            assert!(!error.to_string().contains('\x1b'), "{error}");
        }
    }
}

fn a34_streams() {
    let bench = Bench::new();
    let close = |stream: i64| call(numbers::CLOSE, json!([stream]));
    // F_SETFL, O_NONBLOCK.
    let hurry = |stream: i64| call(numbers::FCNTL, json!([stream, 4, 0o4000]));
    for &profile in PROFILES {
        for acts in
            [vec![close(1), close(2), json!(["exit", 0])], vec![close(0), json!(["exit", 0])]]
        {
            let spec = bench.spec_for(profile, &acts);
            let ended = bench.run(&spec, &vec![b' '; 200_000]).expect("a jail");
            assert_eq!(ended.reason, ExitReason::Ok, "{acts:?}: {}", ended.cause());
        }
    }
    let acts = [hurry(1), hurry(2), json!(["flood", 1, 10_u64 << 30])];
    let ended = bench.run(&bench.spec_for(Profile::General, &acts), b"").expect("a jail");
    // Either it runs into a full pipe or writes too much; both end.
    assert!([ExitReason::Output, ExitReason::Ok].contains(&ended.reason), "{}", ended.cause());
    // A child that keeps the streams open does not keep the run.
    let word = unique_word("burden");
    let acts = [
        json!(["child", [["ignore"]]]),
        call(numbers::CLONE, json!([17, 0, 0, 0, 0])),
        json!(["print", word]),
        json!(["exit", 0]),
    ];
    let spec = bench.spec_for(Profile::General, &acts);
    bench.run(&spec, b"").expect("a jail");
    within("nothing is left", || Process::find_by(&word, |_| true).is_none().then_some(()));
}
