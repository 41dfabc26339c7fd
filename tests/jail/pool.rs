//! Jails that are prepared before their plans are known.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use turnjail_driver::ExitReason;
use turnjail_jail::client::{Client, ClientOptions};
use turnjail_jail::{Ended, JailSpec, Profile, run};
use turnjail_tests::acts::call;
use turnjail_tests::jails::Bench;
use turnjail_warden::seccomp::numbers;
use turnjail_warden::wire::Way;

use crate::lifecycle::{descriptors, processes, sleeper, wait_until, zombies_of};

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

    /// The process that makes the jails: the only child of its keeper.
    fn warden(&self) -> i32 {
        let keeper = self.client.keeper().as_raw_nonzero().get();
        let children = fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children"));
        children.expect("the children of a process").trim().parse().expect("one process")
    }

    /// Runs a program once and waits until as many jails as may be wait for the next run of it.
    fn filled_for(&self, spec: &JailSpec) -> i32 {
        self.run(spec);
        let warden = self.warden();
        wait_until("the pool is full", || parked(warden).len() == POOL);
        warden
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
            && held(*pid).len() == 5 + rulesets()
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
    let warden = pooled.warden();
    wait_until("the pool is full", || parked(warden).len() == POOL);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(parked(warden).len(), POOL, "no more than that");
    for _ in 0..5 {
        let ended = pooled.run(&pooled.says_x());
        assert_eq!(ended.reason, ExitReason::Ok);
        assert!(ended.stdout.starts_with(b"x"), "{ended:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(pooled.run(&pooled.says_x()).timing.prepared);
}

/// A parked jail holds three streams that lead nowhere, its status pipe, its socket and its ruleset; it has
/// no capability in its bounding set, cannot gain privileges, has a filter, and sees nothing of the host.
pub fn parked_is_closed() {
    let pooled = Pooled::new(POOL, Way::Any);
    for pid in parked(pooled.filled_for(&pooled.says_x())) {
        let held = held(pid);
        let count = |what: &str| held.iter().filter(|link| link.starts_with(what)).count();
        assert_eq!(count("/dev/null"), 3, "{held:?}");
        assert_eq!((count("pipe:"), count("socket:")), (1, 1), "{held:?}");
        assert_eq!(count("anon_inode:"), rulesets(), "{held:?}");
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
}

/// How many rulesets a parked jail holds on this kernel.
fn rulesets() -> usize {
    usize::from(turnjail_warden::sys::landlock_abi() > 0)
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
    let read = pooled.bench.spec_for(Profile::Sealed, &[json!(["read", "/workspace/mine"])]);
    let workspace = pooled.bench.path("workspace");
    let spec = |name: &str| {
        let source = workspace.with_file_name(name);
        fs::create_dir(&source).expect("a directory");
        fs::set_permissions(&source, fs::Permissions::from_mode(0o700)).expect("chmod");
        fs::write(source.join("mine"), name).expect("a file");
        let mut spec = read.clone();
        spec.mounts[0].source = source;
        spec
    };
    let specs = ["one", "two", "three"].map(spec);
    pooled.run(&read);
    for (spec, name) in specs.iter().zip(["one", "two", "three"]) {
        // Idle for long enough.
        std::thread::sleep(Duration::from_millis(200));
        let ended = pooled.run(spec);
        assert!(ended.timing.prepared, "{name}");
        assert!(String::from_utf8_lossy(&ended.stdout).contains(name), "{ended:?}");
    }
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
        // Where a group counts them, the kernel's own limit lies one higher.
        let limit = if pooled.client.limiter().has_cgroups() { "8" } else { "7" };
        assert_eq!(line.split_whitespace().nth(2), Some(limit), "{line}");
    });
}

/// The groups of jails below the delegated one, where there is one.
fn groups(client: &Client) -> usize {
    let Some(path) = client.limiter().path() else { return 0 };
    let entries = fs::read_dir(path).expect("the delegated cgroup").flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let own = format!("jail-{}-", std::process::id());
    names.filter(|name| name.starts_with(&own)).count()
}

/// A jail that waits is in a group of its own already, which has its plan's limits.
pub fn in_a_group_of_its_own() {
    let pooled = Pooled::new(POOL, Way::Any);
    let mut spec = pooled.says_x();
    (spec.limits.memory_mb, spec.limits.pids) = (77, 11);
    let warden = pooled.filled_for(&spec);
    let group = |pid: i32| {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("its cgroup");
        let line = groups.lines().find_map(|line| line.strip_prefix("0::"));
        line.and_then(|path| path.rsplit('/').next()).expect("one of version 2").to_owned()
    };
    let home = pooled.client.limiter().path().expect("a delegated cgroup");
    let mut groups: Vec<String> = parked(warden).into_iter().map(group).collect();
    for group in &groups {
        let set = |name: &str| fs::read_to_string(home.join(group).join(name)).expect("a limit");
        let set = (set("memory.max"), set("pids.max"));
        assert_eq!(set, (format!("{}\n", 77 << 20), "11\n".to_owned()), "{group}");
    }
    groups.push(group(warden));
    groups.sort();
    groups.dedup();
    assert_eq!(groups.len(), POOL + 1, "{groups:?}");
    let ended = pooled.run(&spec);
    assert!(ended.timing.prepared && ended.usage.refused_forks.is_some(), "{ended:?}");
}

/// Another root, another program, other limits, fewer directories, or the general profile get no jail that
/// was prepared for something else.
pub fn only_what_fits() {
    let pooled = Pooled::new(POOL, Way::Any);
    pooled.filled_for(&pooled.says_x());
    let other = Bench::new();
    let changed = |change: &dyn Fn(&mut JailSpec)| {
        let mut spec = pooled.says_x();
        change(&mut spec);
        spec
    };
    let all = [
        pooled.bench.spec_for(Profile::General, &[json!(["print", "x"])]),
        other.spec_for(Profile::Sealed, &[json!(["print", "x"])]),
        pooled.bench.spec_for(Profile::Sealed, &[json!(["print", "y"])]),
        changed(&|spec| spec.limits.pids -= 1),
        changed(&|spec| spec.limits.memory_mb -= 1),
        changed(&|spec| spec.environment.push("MORE=1".to_owned())),
        changed(&|spec| "/tmp".clone_into(&mut spec.working_dir)),
        changed(&|spec| spec.mounts.truncate(1)),
        changed(&|spec| spec.landlock = false),
    ];
    let comes = |what: &str, spec: &JailSpec| {
        wait_until(what, || {
            std::thread::sleep(Duration::from_millis(20));
            pooled.run(spec).timing.prepared
        });
    };
    for (number, spec) in all.iter().enumerate() {
        assert!(!pooled.run(spec).timing.prepared, "{number}");
        // What waits for one, and the groups it waits in, is in nobody else's way for long.
        if spec.isolation.profile == Profile::Sealed {
            comes(&format!("one for {number}"), spec);
        }
        comes(&format!("what fits is there again after {number}"), &pooled.says_x());
    }
}

/// Two programs with the same limits, and so the same kind of group, one after the other.
pub fn turns_of_two_programs() {
    let pooled = Pooled::new(POOL, Way::Any);
    let says = |word| pooled.bench.spec_for(Profile::Sealed, &[json!(["print", word])]);
    let both = [says("x"), says("y")];
    wait_until("both are prepared, three times in a row", || {
        (0..3).all(|_| {
            both.iter().all(|spec| {
                std::thread::sleep(Duration::from_millis(20));
                pooled.run(spec).timing.prepared
            })
        })
    });
}

/// The image's link leads to the plan's directory, which comes after the jail was prepared.
pub fn in_a_linked_directory() {
    let pooled = Pooled::new(POOL, Way::Any);
    std::os::unix::fs::symlink("workspace", pooled.bench.path("root").join("work"))
        .expect("a link");
    fs::write(pooled.bench.path("workspace").join("here"), "x").expect("a file");
    let open = call(numbers::OPENAT, json!([nix::libc::AT_FDCWD, "here", 0, 0]));
    let mut spec = pooled.bench.spec_for(Profile::Sealed, &[open]);
    "/work".clone_into(&mut spec.working_dir);
    pooled.filled_for(&spec);
    let ended = pooled.run(&spec);
    assert!(ended.timing.prepared, "it was not handed one");
    let line: Value = serde_json::from_slice(&ended.stdout).expect("one line");
    assert!(line["value"].as_i64().is_some_and(|fd| fd > 2), "{line}");
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
    let there = |pid: &i32| fs::exists(format!("/proc/{pid}")).unwrap_or(true);
    let pooled = Pooled::new(POOL, Way::Any);
    let warden = pooled.filled_for(&pooled.says_x());
    let waiting = parked(warden);
    kill(Pid::from_raw(warden), Signal::SIGKILL).expect("killed");
    wait_until("no jail waits any more", || !waiting.iter().any(there));
    let pooled = Pooled::new(POOL, Way::Any);
    let waiting = parked(pooled.filled_for(&pooled.says_x()));
    drop(pooled);
    wait_until("nor after its host has let go", || !waiting.iter().any(there));
}

/// One that is killed while it waits is not handed a turn, and is not missed.
pub fn killed_while_waiting() {
    let pooled = Pooled::new(POOL, Way::Any);
    for pid in parked(pooled.filled_for(&pooled.says_x())) {
        kill(Pid::from_raw(pid), Signal::SIGKILL).expect("killed");
        // Until then it is as if the turn's own process had been killed.
        let gone = || !fs::exists(format!("/proc/{pid}")).unwrap_or(true);
        wait_until("the warden has seen its end", gone);
    }
    for _ in 0..3 {
        assert_eq!(pooled.run(&pooled.says_x()).reason, ExitReason::Ok);
    }
}

/// The variable that asks for a number of jails.
const COUNT: &str = "TURNJAIL_TEST_JAILS";

/// The part that needs a process of its own: many jails, from the pool where it has one, after which host
/// and warden hold what they held before.
pub fn soak() {
    let count: usize = std::env::var(COUNT).ok().and_then(|text| text.parse().ok()).unwrap_or(400);
    let pooled = Pooled::new(4, Way::Any);
    let spec = pooled.says_x();
    pooled.run(&spec);
    let warden = pooled.warden();
    let memory = || {
        let pages = fs::read_to_string(format!("/proc/{warden}/statm")).expect("statm");
        pages.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("pages")
    };
    let mounts =
        || fs::read_to_string(format!("/proc/{warden}/mountinfo")).map(|m| m.lines().count());
    let wardens = || fs::read_dir(format!("/proc/{warden}/fd")).map_or(0, Iterator::count);
    let full = || wait_until("the pool is full", || parked(warden).len() == 4);
    let burst = |count: usize| {
        let mut prepared = 0;
        for number in 0..count {
            let ended = pooled.run(&spec);
            assert_eq!(ended.reason, ExitReason::Ok);
            prepared += usize::from(ended.timing.prepared);
            if number % 8 == 0 {
                std::thread::sleep(Duration::from_millis(3));
            }
        }
        prepared
    };
    burst(50);
    full();
    // Until all that is prepared ahead is there: it stays.
    let mut before = (0, 0, 0);
    while before != (descriptors(), wardens(), mounts().expect("mounts")) {
        before = (descriptors(), wardens(), mounts().expect("mounts"));
        std::thread::sleep(Duration::from_millis(300));
    }
    let pages = memory();
    let prepared = burst(count);
    full();
    // In its own process there are none but those of jails that wait, and one for the next request.
    wait_until("no group of a jail is left", || groups(&pooled.client) <= 4 + 1);
    wait_until("host and warden hold no more descriptors than before", || {
        descriptors() <= before.0 && wardens() <= before.1
    });
    assert_eq!(mounts().expect("mounts"), before.2);
    assert_eq!(zombies_of(warden), 0);
    assert_eq!(zombies_of(std::process::id().cast_signed()), 0);
    assert!(memory() <= pages + 64, "{} pages, before {pages}", memory());
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
