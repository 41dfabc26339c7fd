//! Nothing outlives its reason to be there: jails, wardens, descriptors, mounts.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use turnjail_driver::ExitReason;
use turnjail_jail::{JailSpec, Profile, StartError, run};
use turnjail_tests::jails::{Bench, private_dir};
use turnjail_tests::{unique_word, ways};

use crate::pool;

/// Tells this program to be a host.
pub const AS_HOST: &str = "--as-host";

/// A jail that sleeps, and the word by which its process can be found.
pub fn sleeper(bench: &Bench) -> (JailSpec, String) {
    let word = unique_word("sleeper");
    let mut spec = bench.spec_for(Profile::Sealed, &[bench.sleep()]);
    // An argument that the probe never comes to.
    spec.command.push(json!(["print", word]).to_string());
    spec.limits.time_ms = 120_000;
    (spec, word)
}

/// The processes of this machine whose command line has this word.
pub fn processes(word: &str) -> Vec<i32> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("/proc").flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse() else { continue };
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if line.windows(word.len()).any(|part| part == word.as_bytes()) {
            found.push(pid);
        }
    }
    found
}

/// Waits for a condition, so that a slow machine is not a failure; gives up after ten seconds.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < deadline, "not in ten seconds: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn cancel() {
    let bench = Bench::new();
    let (spec, word) = sleeper(&bench);
    let cancel = CancellationToken::new();
    let started = || {
        let (cancel, word) = (cancel.clone(), word.clone());
        std::thread::spawn(move || {
            wait_until("the sleeper runs", || !processes(&word).is_empty());
            cancel.cancel();
        });
    };
    let ended = bench.runtime().block_on(run(bench.client(), &spec, b"", &cancel, started));
    assert_eq!(ended.expect("a jail").reason, ExitReason::Cancelled);
    // Not eventually but now: the run ends when nothing is left.
    assert_eq!(processes(&word), [0_i32; 0]);
}

/// Also before the program runs, or the jail is even cloned.
pub fn cancel_at_any_moment() {
    let bench = Bench::new();
    for delay_us in (0..40).map(|step| step * 100) {
        let (spec, word) = sleeper(&bench);
        let cancel = CancellationToken::new();
        let soon = async {
            tokio::time::sleep(Duration::from_micros(delay_us)).await;
            cancel.cancel();
        };
        let running = run(bench.client(), &spec, b"", &cancel, || {});
        let (ended, ()) = bench.runtime().block_on(async { tokio::join!(running, soon) });
        assert_eq!(ended.expect("no failure").reason, ExitReason::Cancelled, "{delay_us} us");
        assert_eq!(processes(&word), [0_i32; 0], "{delay_us} us");
    }
}

pub fn dropped() {
    let bench = Bench::new();
    let (spec, word) = sleeper(&bench);
    let never = CancellationToken::new();
    bench.runtime().block_on(async {
        let run = run(bench.client(), &spec, b"", &never, || {});
        let found = async {
            while processes(&word).is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            ended = run => panic!("ended: {ended:?}"),
            () = found => {}
        }
    });
    wait_until("the dropped jail is gone", || processes(&word).is_empty());
}

/// The warden that made the process `pid`: its parent.
pub fn parent(pid: i32) -> i32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:")).expect("PPid");
    line.trim().parse().expect("a number")
}

pub fn warden_dies() {
    let bench = Bench::new();
    let (spec, word) = sleeper(&bench);
    let never = CancellationToken::new();
    let started = || {
        let word = word.clone();
        std::thread::spawn(move || {
            wait_until("the sleeper runs", || !processes(&word).is_empty());
            let warden = parent(processes(&word)[0]);
            kill(Pid::from_raw(warden), Signal::SIGKILL).expect("killed");
        });
    };
    let ended = bench.runtime().block_on(run(bench.client(), &spec, b"", &never, started));
    assert_eq!(ended.expect_err("the warden died"), StartError::WardenDied);
    wait_until("the jail of the dead warden is gone", || processes(&word).is_empty());
    assert!(!bench.client().alive());
}

/// The parts that need a process of their own: a host to be killed, and one whose descriptors and
/// children are counted.
pub fn host(part: &str) -> ExitCode {
    match part {
        "sleep" => {
            let bench = Bench::new();
            let (spec, word) = sleeper(&bench);
            println!("{word}");
            let _ = bench.run(&spec, b"");
            ExitCode::FAILURE
        }
        "count" => count(),
        "small" => small(),
        "tight" => tight(),
        "soak" => {
            pool::soak();
            ExitCode::SUCCESS
        }
        _ => ExitCode::from(2),
    }
}

/// This program as a host of its own. One that is killed leaves its files: in `home`, which is removed.
pub fn as_host(part: &str, home: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    let (name, value) = ways::environment();
    command.args([AS_HOST, part]).env("TMPDIR", home).env(name, value);
    command
}

pub fn host_dies() {
    let home = private_dir();
    for delay_ms in [0, 1, 2, 3, 5, 8, 50, 100] {
        let mut host = as_host("sleep", home.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a host");
        let mut word = String::new();
        let stdout = host.stdout.take().expect("its output");
        BufReader::new(stdout).read_line(&mut word).expect("a word");
        let word = word.trim().to_owned();
        if delay_ms >= 50 {
            wait_until("the sleeper runs", || !processes(&word).is_empty());
        }
        std::thread::sleep(Duration::from_millis(delay_ms));
        host.kill().expect("killed");
        host.wait().expect("reaped");
        // A jail that is just being made may appear a moment later: look until none is left, for long
        // enough that one would have appeared.
        std::thread::sleep(Duration::from_millis(50));
        wait_until("the killed host's jail is gone", || processes(&word).is_empty());
    }
}

/// Whoever dies first, nobody is left to clean up but the kernel.
pub fn host_and_warden_die() {
    let home = private_dir();
    for warden_first in [false, true] {
        let mut host = as_host("sleep", home.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a host");
        let mut word = String::new();
        let stdout = host.stdout.take().expect("its output");
        BufReader::new(stdout).read_line(&mut word).expect("a word");
        let word = word.trim().to_owned();
        wait_until("the sleeper runs", || !processes(&word).is_empty());
        let warden = Pid::from_raw(parent(processes(&word)[0]));
        let keeper = parent(warden.as_raw());
        if warden_first {
            kill(warden, Signal::SIGKILL).expect("killed");
            host.kill().expect("killed");
        } else {
            host.kill().expect("killed");
            let _ = kill(warden, Signal::SIGKILL);
        }
        host.wait().expect("reaped");
        let there = |pid: i32| fs::exists(format!("/proc/{pid}")).unwrap_or(true);
        wait_until("no jail, no warden and no keeper is left", || {
            processes(&word).is_empty() && !there(warden.as_raw()) && !there(keeper)
        });
    }
}

/// Open descriptors of this process.
pub fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").expect("/proc/self/fd").count()
}

/// How many children of a process have ended and were not waited for.
pub fn zombies_of(pid: i32) -> usize {
    let mut zombies = 0;
    for entry in fs::read_dir("/proc").expect("/proc").flatten() {
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let Some((_, rest)) = stat.rsplit_once(") ") else { continue };
        let mut fields = rest.split(' ');
        let (state, parent) = (fields.next(), fields.next());
        if parent == Some(&pid.to_string()) && state == Some("Z") {
            zombies += 1;
        }
    }
    zombies
}

pub fn many() {
    let home = private_dir();
    let output = as_host("count", home.path()).output().expect("a host");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
}

fn count() -> ExitCode {
    let bench = Bench::new();
    let spec = bench.spec_for(Profile::Sealed, &[json!(["exit", 0])]);
    let once = || assert_eq!(bench.run(&spec, b"").expect("a jail").reason, ExitReason::Ok);
    once();
    let (sleeper, word) = sleeper(&bench);
    let cancel = CancellationToken::new();
    let keeper = cancel.clone();
    bench.runtime().block_on(async {
        let running = run(bench.client(), &sleeper, b"", &keeper, || {});
        let counting = async {
            while processes(&word).is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let warden = parent(processes(&word)[0]);
            let wardens = || fs::read_dir(format!("/proc/{warden}/fd")).map_or(0, Iterator::count);
            // Until what is prepared ahead is there: it stays.
            let mut before = (0, 0);
            while before != (descriptors(), wardens()) {
                before = (descriptors(), wardens());
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
            for _ in 0..300 {
                let never = CancellationToken::new();
                let ended = run(bench.client(), &spec, b"", &never, || {}).await.expect("a jail");
                assert_eq!(ended.reason, ExitReason::Ok);
            }
            // The warden closes the last pidfd a moment after it has said that its jail is gone.
            wait_until("host and warden hold no more descriptors than before", || {
                descriptors() <= before.0 && wardens() <= before.1
            });
            assert_eq!(zombies_of(warden), 0);
            assert_eq!(zombies_of(std::process::id().cast_signed()), 0);
            cancel.cancel();
        };
        let (ended, ()) = tokio::join!(running, counting);
        assert_eq!(ended.expect("a jail").reason, ExitReason::Cancelled);
    });
    ExitCode::SUCCESS
}

/// A host with a smaller hard limit and a higher nice value than a jail's own.
pub fn tighter_limits() {
    let home = private_dir();
    let program = std::env::current_exe().expect("this program");
    let output = Command::new("sh")
        .args(["-c", "ulimit -f 20000; exec nice -n 15 \"$@\"", "sh"])
        .arg(program)
        .args([AS_HOST, "tight"])
        .env("TMPDIR", home.path())
        .envs([ways::environment()])
        .output()
        .expect("a host");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A host whose files may be smaller than the warden's program says so instead of dying of it.
pub fn small_files() {
    let home = private_dir();
    let program = std::env::current_exe().expect("this program");
    let output = Command::new("sh")
        .args(["-c", "ulimit -f 100; exec \"$@\"", "sh"])
        .arg(program)
        .args([AS_HOST, "small"])
        .env("TMPDIR", home.path())
        .output()
        .expect("a host");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("ulimit -f"), "{said}");
}

fn small() -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let started = runtime.block_on(turnjail_jail::client::Client::start());
    let Err(error) = started else { return ExitCode::FAILURE };
    eprintln!("{error}; {}", error.remedy().unwrap_or_default());
    ExitCode::SUCCESS
}

fn tight() -> ExitCode {
    let bench = Bench::new();
    let ended = bench.run(&bench.spec_for(Profile::Sealed, &[json!(["exit", 0])]), b"");
    match ended {
        Ok(ended) if ended.reason == ExitReason::Ok => ExitCode::SUCCESS,
        other => {
            eprintln!("{other:?}");
            ExitCode::FAILURE
        }
    }
}

pub fn at_once() {
    let bench = Bench::new();
    let spec = bench.spec_for(Profile::Sealed, &[json!(["print", "x"])]);
    let never = CancellationToken::new();
    bench.runtime().block_on(async {
        let runs = (0..64).map(|_| run(bench.client(), &spec, b"", &never, || {}));
        let mut set: Vec<_> = runs.map(Box::pin).collect();
        for ended in futures(&mut set).await {
            assert_eq!(ended.expect("a jail").reason, ExitReason::Ok);
        }
    });
}

/// The warden holds a descriptor for each jail, and a jail starts with all of them: more than it may have.
pub fn more_than_its_files() {
    const JAILS: usize = 270;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    // Each jail takes the host five.
    setrlimit(Resource::RLIMIT_NOFILE, hard.min(4096).max(soft), hard).expect("room for files");
    let bench = Bench::new();
    let (sleeper, _) = sleeper(&bench);
    let cancel = CancellationToken::new();
    let started = AtomicU32::new(0);
    let start = || {
        if started.fetch_add(1, Ordering::Relaxed) as usize + 1 == JAILS {
            cancel.cancel();
        }
    };
    bench.runtime().block_on(async {
        let one = async || {
            let ended = run(bench.client(), &sleeper, b"", &cancel, start).await;
            // One that fails is never started, and the others would wait for it.
            ended.inspect_err(|_| cancel.cancel())
        };
        let mut set: Vec<_> = (0..JAILS).map(|_| Box::pin(one())).collect();
        for ended in futures(&mut set).await {
            assert_eq!(ended.expect("a jail").reason, ExitReason::Cancelled);
        }
    });
    assert_eq!(started.into_inner() as usize, JAILS);
}

/// More requests than the socket of a warden that is held up takes: the rest waits for it.
pub fn warden_held_up() {
    let bench = Bench::new();
    let keeper = bench.client().keeper().as_raw_nonzero();
    let children = fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children"));
    let warden = children.expect("the keeper's child").trim().parse().expect("one number");
    let mut spec = bench.spec_for(Profile::Sealed, &[json!(["print", "x"])]);
    spec.environment.push(format!("LONG={}", "x".repeat(20_000)));
    let never = CancellationToken::new();
    kill(Pid::from_raw(warden), Signal::SIGSTOP).expect("stopped");
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        kill(Pid::from_raw(warden), Signal::SIGCONT).expect("continued");
    });
    bench.runtime().block_on(async {
        let runs = (0..64).map(|_| run(bench.client(), &spec, b"", &never, || {}));
        let mut set: Vec<_> = runs.map(Box::pin).collect();
        for ended in futures(&mut set).await {
            assert_eq!(ended.expect("a jail").reason, ExitReason::Ok);
        }
    });
}

/// Polls all at once, so that all are under way together.
async fn futures<F: Future + Unpin>(set: &mut [F]) -> Vec<F::Output> {
    let mut done: Vec<Option<F::Output>> = set.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, slot) in set.iter_mut().zip(&mut done) {
            if slot.is_none()
                && let std::task::Poll::Ready(value) = std::pin::Pin::new(future).poll(context)
            {
                *slot = Some(value);
            }
        }
        if done.iter().all(Option::is_some) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    done.into_iter().flatten().collect()
}

pub fn no_mounts() {
    let mounts = || fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
    let bench = Bench::new();
    let before = mounts();
    let (spec, word) = sleeper(&bench);
    let cancel = CancellationToken::new();
    let during = std::cell::RefCell::new(String::new());
    bench.runtime().block_on(async {
        let running = run(bench.client(), &spec, b"", &cancel, || {});
        let looking = async {
            while processes(&word).is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            during.replace(mounts());
            cancel.cancel();
        };
        let (ended, ()) = tokio::join!(running, looking);
        ended.expect("a jail");
    });
    assert_eq!(during.into_inner(), before);
    assert_eq!(mounts(), before);
}
