//! Jails that are prepared before their plans are known.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use turnjail_driver::ExitReason;
use turnjail_jail::client::{Client, ClientOptions};
use turnjail_jail::{Ended, JailSpec, Profile, run};
use turnjail_tests::jails::Bench;
use turnjail_warden::wire::Way;

use crate::lifecycle::{descriptors, parent, processes, sleeper, wait_until, zombies_of};

/// A warden with a pool of two, beside the one of the bench, whose directories its jails use.
struct Pooled {
    bench: Bench,
    runtime: Runtime,
    client: Client,
}

const POOL: usize = 2;

impl Pooled {
    fn new(pool: usize, way: Way) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let options = ClientOptions { pool: pool as u16, way };
        let client = runtime.block_on(Client::start_with(options)).expect("a warden");
        Self { bench: Bench::new(), runtime, client }
    }

    fn run(&self, spec: &JailSpec) -> Ended {
        let never = CancellationToken::new();
        let running = run(&self.client, spec, b"", &never, || {});
        self.runtime.block_on(running).expect("a jail")
    }

    fn says_x(&self) -> JailSpec {
        self.bench.spec_for(Profile::Sealed, &[json!(["print", "x"])])
    }

    /// Does something while a jail of this warden sleeps, with the number of the warden.
    fn beside_a_sleeper<T>(&self, act: impl AsyncFnOnce(i32) -> T) -> T {
        let (mut spec, word) = sleeper(&self.bench);
        // So that the same jails fit.
        spec.limits = self.says_x().limits;
        let cancel = CancellationToken::new();
        let acting = async {
            while processes(&word).is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let done = act(parent(processes(&word)[0])).await;
            cancel.cancel();
            done
        };
        self.runtime.block_on(async {
            let running = run(&self.client, &spec, b"", &cancel, || {});
            tokio::join!(running, acting).1
        })
    }
}

/// The jails of a warden that wait for a plan: its children that have not executed anything.
fn parked(warden: i32) -> Vec<i32> {
    let children = fs::read_to_string(format!("/proc/{warden}/task/{warden}/children"));
    let children = children.expect("the children of a process");
    let waits = |pid: &i32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        // Blocked in its socket, with everything done that it can do ahead.
        status.starts_with("Name:\tturnjail-warden\n")
            && status.contains("\nState:\tS")
            && held(*pid).len() == 5
    };
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).filter(waits).collect()
}

/// What the descriptors of a process lead to.
fn held(pid: i32) -> Vec<String> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let links = entries.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    let mut links: Vec<String> = links.map(|link| link.to_string_lossy().into_owned()).collect();
    links.sort();
    links
}

pub fn filled_when_idle() {
    let pooled = Pooled::new(POOL, Way::Any);
    assert!(!pooled.run(&pooled.says_x()).timing.prepared, "the first cannot be");
    pooled.beside_a_sleeper(async |warden| {
        wait_until("the pool is full", || parked(warden).len() == POOL);
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(parked(warden).len(), POOL, "no more than that");
    });
    for _ in 0..5 {
        let ended = pooled.run(&pooled.says_x());
        assert_eq!(ended.reason, ExitReason::Ok);
        assert!(ended.stdout.starts_with(b"x"), "{ended:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(pooled.run(&pooled.says_x()).timing.prepared);
}

/// A parked jail holds three streams that lead nowhere, its status pipe and its socket; it has no
/// capability in its bounding set, cannot gain privileges, has a filter, and sees nothing of the host.
pub fn parked_is_closed() {
    let pooled = Pooled::new(POOL, Way::Any);
    pooled.beside_a_sleeper(async |warden| {
        wait_until("the pool is full", || parked(warden).len() == POOL);
        for pid in parked(warden) {
            let held = held(pid);
            assert_eq!(held.iter().filter(|link| *link == "/dev/null").count(), 3, "{held:?}");
            assert_eq!(held.iter().filter(|link| link.starts_with("pipe:")).count(), 1, "{held:?}");
            assert_eq!(held.iter().filter(|link| link.starts_with("socket:")).count(), 1);
            let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("its status");
            for line in ["CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"] {
                assert!(status.contains(line), "{line} is not in {status}");
            }
            let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).expect("its mounts");
            let mut places: Vec<&str> =
                mounts.lines().filter_map(|line| line.split(' ').nth(4)).collect();
            places.sort_unstable();
            assert_eq!(places, ["/", "/tmp"], "{mounts}");
        }
    });
}

pub fn used_once() {
    let pooled = Pooled::new(POOL, Way::Prepared);
    let mark = [
        json!(["write", "/tmp/mark", "x"]),
        json!(["write", "/tmp/home/mark", "x"]),
        json!(["list", "/tmp"]),
    ];
    let spec = pooled.bench.spec_for(Profile::Sealed, &mark[..2]);
    let look = pooled.bench.spec_for(Profile::Sealed, &mark[2..]);
    for _ in 0..4 {
        assert!(pooled.run(&spec).timing.prepared);
        let ended = pooled.run(&look);
        assert!(ended.timing.prepared);
        let seen = String::from_utf8_lossy(&ended.stdout).into_owned();
        assert!(seen.contains("home") && !seen.contains("mark"), "{seen}");
    }
}

/// What belongs to a turn is the turn's own, whatever the jail was prepared after.
pub fn follows_its_own_plan() {
    let pooled = Pooled::new(POOL, Way::Any);
    let mut spec = pooled.bench.spec_for(Profile::Sealed, &[json!(["read", "/workspace/mine"])]);
    let other = pooled.bench.path("workspace").with_file_name("other");
    fs::create_dir(&other).expect("a directory");
    fs::set_permissions(&other, fs::Permissions::from_mode(0o700)).expect("chmod");
    fs::write(other.join("mine"), "this one").expect("a file");
    spec.mounts[0].source = other;
    pooled.beside_a_sleeper(async |warden| {
        wait_until("the pool is full", || parked(warden).len() == POOL);
    });
    let ended = pooled.run(&spec);
    assert!(ended.timing.prepared);
    assert!(String::from_utf8_lossy(&ended.stdout).contains("this one"), "{ended:?}");
    let without = JailSpec { mounts: Vec::new(), ..spec.clone() };
    let ended = pooled.run(&without);
    assert!(ended.timing.prepared && !String::from_utf8_lossy(&ended.stdout).contains("this one"));
}

/// The limits of a jail that is prepared are its plan's, though they are set before it is handed over.
pub fn has_its_plans_limits() {
    let pooled = Pooled::new(POOL, Way::Prepared);
    pooled.run(&pooled.says_x());
    let (mut sleeping, word) = sleeper(&pooled.bench);
    sleeping.limits.pids = 7;
    let cancel = CancellationToken::new();
    pooled.runtime.block_on(async {
        let looking = async {
            while processes(&word).is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let limits = fs::read_to_string(format!("/proc/{}/limits", processes(&word)[0]));
            cancel.cancel();
            limits.expect("its limits")
        };
        let running = run(&pooled.client, &sleeping, b"", &cancel, || {});
        let limits = tokio::join!(running, looking).1;
        let line = limits.lines().find(|line| line.starts_with("Max processes")).expect("a limit");
        assert_eq!(line.split_whitespace().nth(2), Some("7"), "{line}");
    });
}

/// Another root, other limits, or the general profile get no jail that was prepared for something else.
pub fn only_what_fits() {
    let pooled = Pooled::new(POOL, Way::Any);
    pooled.beside_a_sleeper(async |warden| {
        wait_until("the pool is full", || parked(warden).len() == POOL);
    });
    let general = pooled.bench.spec_for(Profile::General, &[json!(["print", "x"])]);
    assert!(!pooled.run(&general).timing.prepared);
    assert!(pooled.run(&pooled.says_x()).timing.prepared, "what fits is still there");
    let mut fewer = pooled.says_x();
    fewer.limits.pids -= 1;
    assert!(!pooled.run(&fewer).timing.prepared);
    let mut less = pooled.says_x();
    less.limits.memory_mb -= 1;
    assert!(!pooled.run(&less).timing.prepared);
    let other = Bench::new();
    let spec = other.spec_for(Profile::Sealed, &[json!(["print", "x"])]);
    assert!(!pooled.run(&spec).timing.prepared);
}

/// A root that is gone fails the request, not the warden, and nothing is tried again and again.
pub fn a_failure_is_the_requests() {
    let pooled = Pooled::new(POOL, Way::Any);
    let spec = pooled.says_x();
    pooled.run(&spec);
    let root = pooled.bench.path("root");
    let away = root.with_file_name("away");
    fs::rename(&root, &away).expect("renamed");
    let never = CancellationToken::new();
    // Those that were prepared by then have the old root, and are right: its directory is the same.
    std::thread::sleep(Duration::from_millis(50));
    let mut missing = spec.clone();
    missing.rootfs = away.with_file_name("missing");
    let failed = pooled.runtime.block_on(run(&pooled.client, &missing, b"", &never, || {}));
    assert_eq!(failed.expect_err("no root").code(), "mount-source");
    fs::rename(&away, &root).expect("renamed");
    assert_eq!(pooled.run(&spec).reason, ExitReason::Ok);
}

pub fn parked_ones_die_with_their_warden() {
    let pooled = Pooled::new(POOL, Way::Any);
    let (warden, waiting) = pooled.beside_a_sleeper(async |warden| {
        wait_until("the pool is full", || parked(warden).len() == POOL);
        (warden, parked(warden))
    });
    kill(Pid::from_raw(warden), Signal::SIGKILL).expect("killed");
    let there = |pid: &i32| fs::exists(format!("/proc/{pid}")).unwrap_or(true);
    wait_until("no jail waits any more", || !waiting.iter().any(there));
    let pooled = Pooled::new(POOL, Way::Any);
    let waiting = pooled.beside_a_sleeper(async |warden| {
        wait_until("the pool is full", || parked(warden).len() == POOL);
        parked(warden)
    });
    drop(pooled);
    wait_until("nor after its host has let go", || !waiting.iter().any(there));
}

/// One that is killed while it waits is not handed a plan, and is not missed.
pub fn killed_while_waiting() {
    let pooled = Pooled::new(POOL, Way::Any);
    pooled.beside_a_sleeper(async |warden| {
        wait_until("the pool is full", || parked(warden).len() == POOL);
        for pid in parked(warden) {
            kill(Pid::from_raw(pid), Signal::SIGKILL).expect("killed");
            // Until then it is as if the turn's own process had been killed.
            let gone = || !fs::exists(format!("/proc/{pid}")).unwrap_or(true);
            wait_until("the warden has seen its end", gone);
        }
    });
    for _ in 0..3 {
        assert_eq!(pooled.run(&pooled.says_x()).reason, ExitReason::Ok);
    }
}

/// The variable that asks for a number of jails.
const COUNT: &str = "TURNJAIL_TEST_JAILS";

/// The part that needs a process of its own: many jails, from the pool where it has one, after which host and warden hold
/// what they held before.
pub fn soak() {
    let count: usize = std::env::var(COUNT).ok().and_then(|text| text.parse().ok()).unwrap_or(400);
    let pooled = Pooled::new(4, Way::Any);
    let spec = pooled.says_x();
    pooled.run(&spec);
    let mut prepared = 0;
    pooled.beside_a_sleeper(async |warden| {
        let memory = || {
            let pages = fs::read_to_string(format!("/proc/{warden}/statm")).expect("statm");
            pages.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("pages")
        };
        let mounts =
            || fs::read_to_string(format!("/proc/{warden}/mountinfo")).map(|m| m.lines().count());
        let wardens = || fs::read_dir(format!("/proc/{warden}/fd")).map_or(0, Iterator::count);
        let full = || wait_until("the pool is full", || parked(warden).len() == 4);
        let burst = async |count: usize| {
            let mut prepared = 0;
            for number in 0..count {
                let never = CancellationToken::new();
                let ended = run(&pooled.client, &spec, b"", &never, || {}).await.expect("a jail");
                assert_eq!(ended.reason, ExitReason::Ok);
                prepared += usize::from(ended.timing.prepared);
                if number % 8 == 0 {
                    tokio::time::sleep(Duration::from_millis(3)).await;
                }
            }
            prepared
        };
        burst(50).await;
        full();
        // Until all that is prepared ahead is there: it stays.
        let mut before = (0, 0, 0);
        while before != (descriptors(), wardens(), mounts().expect("mounts")) {
            before = (descriptors(), wardens(), mounts().expect("mounts"));
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        let pages = memory();
        prepared = burst(count).await;
        full();
        wait_until("host and warden hold no more descriptors than before", || {
            descriptors() <= before.0 && wardens() <= before.1
        });
        assert_eq!(mounts().expect("mounts"), before.2);
        assert_eq!(zombies_of(warden), 0);
        assert_eq!(zombies_of(std::process::id().cast_signed()), 0);
        assert!(memory() <= pages + 64, "{} pages, before {pages}", memory());
    });
    eprintln!("{count} jails, {prepared} of them from the pool: nothing is left of any");
    assert!(prepared > 0, "the pool was never used");
}

pub fn many() {
    let home = turnjail_tests::jails::private_dir();
    let mut host: Command = crate::lifecycle::as_host("soak", home.path());
    let output = host.output().expect("a host");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    eprint!("{errors}");
}
