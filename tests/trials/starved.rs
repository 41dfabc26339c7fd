//! A host or a warden that has no room for what it is given: descriptors that are cut off on the way, and
//! jails whose end nobody could be told of. No such jail may run on, and the turn fails with a cause.

use std::fs;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use turnjail_driver::ExitReason;
use turnjail_jail::{Ended, JailDriver, JailOptions, JailSpec, Profile, StartError, run};
use turnjail_tests::jails::{Bench, private_dir};
use turnjail_tests::unique_word;

use crate::hosts;

/// More than any process here has open.
const FREE: u64 = 64;

fn each_way(part: &str, more: &[(&str, &str)]) {
    for way in ["prepared", "direct"] {
        let home = private_dir();
        let mut command = hosts::host(part, home.path());
        command.env("TURNJAIL_TEST_WAY", way).envs(more.iter().copied());
        hosts::assert_good(&mut command, &format!("{part} {more:?}, {way}"));
    }
}

pub fn descriptors_to_the_host() {
    each_way("cut-off", &[]);
}

pub fn descriptors_to_the_warden() {
    each_way("few-files", &[]);
}

pub fn ends_that_cannot_be_watched() {
    // EPOLL_CTL_ADD, and EPOLL_CTL_MOD by which a prepared jail is handed over.
    each_way("unwatched", &[(OPERATION, "1")]);
    each_way("unwatched", &[(OPERATION, "3")]);
}

/// With room for few network namespaces there are as many jails at a time, whatever waits.
pub fn few_networks() {
    let home = private_dir();
    for (count, part) in [(1, "one-network"), (3, "three-networks")] {
        let limit = format!("echo {count} > /proc/sys/user/max_net_namespaces");
        hosts::assert_good(&mut hosts::host_after(&limit, part, home.path()), &limit);
    }
}

/// One after the other, and the warden idle between them; before that everything that must fail in jails.
pub fn one_network() {
    let bench = Bench::new();
    let options = JailOptions::new(bench.path("store"));
    drop(bench.runtime().block_on(JailDriver::start(options)).expect("every wall is tried"));
    // What another warden's jail leaves is not waited for.
    std::thread::sleep(Duration::from_millis(300));
    let spec = bench.spec_for(Profile::Sealed, &[json!(["print", "a"])]);
    for round in 0..8 {
        assert_eq!(at_once(&bench, [&spec])[0].reason, ExitReason::Ok);
        // What a jail leaves is gone a moment after it.
        std::thread::sleep(Duration::from_millis(if round < 4 { 200 } else { 0 }));
    }
}

/// What waits was prepared for others than those that come, and has to give way.
pub fn three_networks() {
    let bench = Bench::new();
    let first = bench.spec_for(Profile::Sealed, &[json!(["print", "a"])]);
    let then = bench.spec_for(Profile::Sealed, &[json!(["spin", 300])]);
    let leave = || std::thread::sleep(Duration::from_millis(300));
    // Beside what two leave for a moment there is room for one that waits.
    at_once(&bench, [&first, &first]);
    leave();
    for ended in at_once(&bench, [&then, &then, &then]) {
        assert_eq!(ended.reason, ExitReason::Ok);
    }
    // The control: one waits here, sooner or later.
    within("one has waited", || {
        leave();
        at_once(&bench, [&first, &first]).iter().any(|ended| ended.timing.prepared)
    });
}

fn at_once<const N: usize>(bench: &Bench, specs: [&JailSpec; N]) -> Vec<Ended> {
    let (runtime, client, never) = (bench.runtime(), bench.client(), CancellationToken::new());
    let start = |spec| runtime.block_on(run(client, spec, b"", &never, || {})).expect("a jail");
    std::thread::scope(|scope| {
        let threads = specs.map(|spec| scope.spawn(move || start(spec)));
        threads.map(|thread| thread.join().expect("no panic")).into()
    })
}

/// A turn that would go on, and the word by which it can be found.
fn lasting(bench: &Bench, name: &str) -> (JailSpec, String) {
    let word = unique_word(format_args!("starved-{name}"));
    let mut spec = bench.spec_for(Profile::Sealed, &[bench.sleep()]);
    spec.command.push(json!(["print", word]).to_string());
    spec.limits.time_ms = 120_000;
    (spec, word)
}

/// Whether a process with this word in its command line is there.
fn is_there(word: &str) -> bool {
    fs::read_dir("/proc").expect("/proc").flatten().any(|entry| {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(word)
    })
}

fn within(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < end, "not in ten seconds: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn assert_works(bench: &Bench, when: &str) {
    let ended = bench.run(&bench.spec_for(Profile::Sealed, &[json!(["exit", 0])]), b"");
    let ended = ended.unwrap_or_else(|error| panic!("{when}: {error}"));
    assert_eq!(ended.reason, ExitReason::Ok, "{when}: {}", ended.cause());
}

fn assert_said(error: &StartError, code: &str, remedy: &str) {
    assert_eq!(error.code(), code, "{error}");
    let said = error.remedy().unwrap_or_default();
    assert!(said.contains(remedy), "{error}: {said}");
}

/// The process below the keeper.
fn warden(bench: &Bench) -> i32 {
    let keeper = bench.client().keeper().as_raw_nonzero();
    let children = fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children"));
    let children = children.expect("the children of a process");
    let first = children.split_whitespace().next().expect("a warden");
    first.parse().expect("a number")
}

/// This process can take so many descriptors of those that the warden sends, of which there are two: the
/// jail's process and its status.
pub fn cut_off() {
    for room in [2, 1, 0] {
        let bench = Bench::new();
        assert_works(&bench, "before");
        let (spec, word) = lasting(&bench, &room.to_string());
        let warden = Pid::from_raw(warden(&bench));
        let cancel = CancellationToken::new();
        let before = open_files();
        // The request waits until there is no more room for its answer than that.
        let stopped = Stopped::by_signal(warden);
        let ended = std::thread::scope(|scope| {
            // What fails here must not wait for a turn that goes on.
            let (stopped, _cancelled) = (stopped, cancel.clone().drop_guard());
            let running = scope.spawn(|| {
                bench.runtime().block_on(run(bench.client(), &spec, b"", &cancel, || {}))
            });
            // Of the ends of three pipes, which were ready before, the warden's have been handed over.
            let sent = || open_files() == before - 3;
            within("the request is sent", || {
                sent() && {
                    std::thread::sleep(Duration::from_millis(50));
                    sent()
                }
            });
            let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("the limit");
            setrlimit(Resource::RLIMIT_NOFILE, FREE, hard).expect("lowered");
            let mut all = fill();
            let free: Vec<String> = all.drain(..room).map(|file| link(&file)).collect();
            drop(stopped);
            let taken = || free.iter().all(|link| fs::symlink_metadata(link).is_ok());
            within("the answer comes", || running.is_finished() || room == 2 && taken());
            setrlimit(Resource::RLIMIT_NOFILE, hard, hard).expect("raised");
            drop(all);
            if room == 2 {
                // The control: it runs, for as long as it is let.
                within("it runs", || is_there(&word));
                cancel.cancel();
            }
            running.join().expect("a turn")
        });
        within("nothing of it is left", || !is_there(&word));
        match (room, ended) {
            (2, Ok(ended)) => assert_eq!(ended.reason, ExitReason::Cancelled),
            (1, Err(error)) => {
                assert_said(&error, "open-files", "ulimit -n");
                // The jail was killed by its descriptor: no other need suffer.
                assert_works(&bench, "afterwards");
            }
            (0, Err(error)) => {
                assert_said(&error, "open-files", "ulimit -n");
                // Nobody could kill that jail, so that its warden had to go.
                within("the warden is gone", || {
                    !bench.client().alive() && fs::read_link(format!("/proc/{warden}/exe")).is_err()
                });
                let again = bench.run(&spec, b"").expect_err("there is no warden");
                assert_eq!(again, StartError::WardenDied);
            }
            (_, ended) => panic!("with room for {room}: {ended:?}"),
        }
    }
}

/// A process that is stopped and goes on when this is dropped.
struct Stopped(Pid);

impl Stopped {
    fn by_signal(process: Pid) -> Self {
        kill(process, Signal::SIGSTOP).expect("stopped");
        Self(process)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // It may be gone.
        let _ = kill(self.0, Signal::SIGCONT);
    }
}

fn open_files() -> usize {
    fs::read_dir("/proc/self/fd").expect("/proc/self/fd").count()
}

/// The name by which a descriptor's number can be asked for without another.
fn link(file: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Every descriptor below the limit.
fn fill() -> Vec<OwnedFd> {
    let null = fs::File::open("/dev/null").expect("a file");
    let mut all = Vec::new();
    while let Ok(copy) = null.try_clone() {
        all.push(OwnedFd::from(copy));
    }
    all.push(null.into());
    all
}

/// The warden may open a few files more than it has, from none on: each turn works or is refused for
/// that, none hangs, and nothing is left in the warden.
pub fn few_files() {
    let bench = Bench::new();
    assert_works(&bench, "before");
    let warden = warden(&bench);
    let open = || fs::read_dir(format!("/proc/{warden}/fd")).map_or(0, Iterator::count);
    // What is prepared ahead comes when nothing happens.
    std::thread::sleep(Duration::from_millis(100));
    let before = open();
    let limit = |limit: &str| {
        let status = Command::new("prlimit")
            .args([format!("--pid={warden}"), format!("--nofile={limit}")])
            .status()
            .expect("prlimit");
        assert!(status.success(), "its limit cannot be set");
    };
    let (mut refused, mut worked) = (0, 0);
    for more in 0..24 {
        limit(&format!("{}:", before + more));
        let (spec, word) = lasting(&bench, &more.to_string());
        let cancel = CancellationToken::new();
        let late = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            cancel.cancel();
        };
        let running = run(bench.client(), &spec, b"", &cancel, || {});
        let (ended, ()) = bench.runtime().block_on(async { tokio::join!(running, late) });
        match ended {
            Ok(ended) => {
                worked += 1;
                assert_eq!(ended.reason, ExitReason::Cancelled, "{more}: {}", ended.cause());
            }
            Err(error) => {
                refused += 1;
                assert_said(&error, "open-files", "ulimit -n");
            }
        }
        assert!(bench.client().alive(), "the warden died of {more} descriptors more");
        within("nothing of it is left", || !is_there(&word));
    }
    assert!(refused > 3 && worked > 0, "{refused} were refused and {worked} worked");
    limit("1024:");
    assert_works(&bench, "with room again");
    within("the warden holds no more than before", || open() <= before + 16);
}

/// The operation of epoll_ctl(2) that is refused to the warden.
const OPERATION: &str = "TURNJAIL_TRIAL_OPERATION";

/// The warden cannot watch its jails, as where the limit fs.epoll.max_user_watches is reached.
pub fn unwatched() {
    let operation: u64 = std::env::var(OPERATION).ok().and_then(|v| v.parse().ok()).expect("one");
    // The runtime's own descriptor gets a number that the filter does not mean.
    let low: Vec<_> = (0..FREE).map(|_| fs::File::open("/dev/null").expect("a file")).collect();
    let bench_runs_first = Bench::new();
    assert_works(&bench_runs_first, "before there is a filter");
    refuse(operation);
    let bench = Bench::new();
    drop(low);
    let prepared = std::env::var("TURNJAIL_TEST_WAY").is_ok_and(|way| way == "prepared");
    if operation == 3 && !prepared {
        // Nothing is handed over.
        return assert_works(&bench, "directly");
    }
    for round in 0..5 {
        let (spec, word) = lasting(&bench, &round.to_string());
        let error = bench.run(&spec, b"").expect_err("nobody would hear of its end");
        assert_said(&error, "watch-limit", "fs.epoll.max_user_watches");
        within("nothing of it is left", || !is_there(&word));
        assert!(bench.client().alive(), "the warden died of it");
    }
    assert_works(&bench_runs_first, "another warden");
}

/// From here on, for what is started, epoll_ctl(2) of a low descriptor refuses an operation, but for the
/// first that a warden asks for: that of its socket, whose number is the lowest.
fn refuse(operation: u64) {
    let is = |argument, operation_: SeccompCmpOp, value| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operation_, value).expect("one")
    };
    let rule = SeccompRule::new(vec![
        is(0, SeccompCmpOp::Lt, FREE),
        is(1, SeccompCmpOp::Eq, operation),
        is(2, SeccompCmpOp::Gt, 3),
    ]);
    let rules = [(nix::libc::SYS_epoll_ctl, vec![rule.expect("a rule")])].into();
    let refused = SeccompAction::Errno(nix::libc::ENOSPC as u32);
    let machine = std::env::consts::ARCH.try_into().expect("an architecture");
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, machine);
    let filter: BpfProgram = filter.expect("a filter").try_into().expect("a program");
    apply_filter(&filter).expect("applied");
}
