//! What only a cgroup does.

use std::fs;

use serde_json::{Value, json};
use turnjail_driver::ExitReason;
use turnjail_jail::{JailDriver, JailOptions, Policy, Profile};
use turnjail_tests::jails::Bench;

use crate::share::{PROFILES, run, small};

const MIB: u64 = 1 << 20;

/// Its address space is within the limit, and so is /tmp; both together are not.
pub fn memory() {
    let bench = Bench::new();
    let acts = [json!(["fill", "/tmp/file", 40]), json!(["touch", 40]), json!(["print", "beyond"])];
    let ended = run(&bench, &small(&bench, Profile::Sealed, &acts));
    assert_eq!(ended.reason, ExitReason::Memory, "{ended:?}");
    assert!(ended.cause().contains("memory"), "{}", ended.cause());
}

pub fn usage() {
    let bench = Bench::new();
    for profile in PROFILES {
        let ended =
            run(&bench, &small(&bench, profile, &[json!(["touch", 30]), json!(["spin", 200])]));
        assert_eq!(ended.reason, ExitReason::Ok, "{ended:?}");
        // Linux 5.19.
        if let Some(peak) = ended.usage.peak_memory_bytes {
            assert!((30 * MIB..=64 * MIB).contains(&peak), "{profile}: {peak}");
        }
        assert!(ended.usage.cpu_us.is_some_and(|used| used > 50_000), "{profile}: {ended:?}");
    }
}

/// A quarter of a processor leaves a busy program waiting for most of the time.
pub fn cpu_share() {
    let bench = Bench::new();
    if !bench.client().limiter().has_cpu_share() {
        eprintln!("the cpu controller is not delegated here: nothing to be seen");
        return;
    }
    for profile in PROFILES {
        let mut spec = small(&bench, profile, &[json!(["spin", 2_000])]);
        spec.limits.cpus = 0.25;
        let ended = run(&bench, &spec);
        assert_eq!(ended.reason, ExitReason::Ok, "{ended:?}");
        let used = ended.usage.cpu_us.expect("counted");
        assert!(used * 2 < ended.timing.run_us, "{profile}: {used} of {}", ended.timing.run_us);
    }
}

pub fn view() {
    let bench = Bench::new();
    let ended =
        run(&bench, &small(&bench, Profile::General, &[json!(["read", "/proc/self/cgroup"])]));
    let line: Value = serde_json::from_slice(&ended.stdout).expect("a line");
    if line["errno"].is_null() {
        let unified = line["text"].as_str().and_then(|text| {
            text.lines().find_map(|line| line.strip_prefix("0::").map(str::to_owned))
        });
        assert_eq!(unified.as_deref(), Some("/"), "{line}");
    }
}

pub fn none_left() {
    let bench = Bench::new();
    for profile in PROFILES {
        run(&bench, &small(&bench, profile, &[json!(["print", "x"])]));
    }
    let path = bench.client().limiter().path().expect("a delegated cgroup").to_owned();
    // Groups for jails to come are there as long as their warden.
    drop(bench);
    let own = format!("jail-{}-", std::process::id());
    let left = || {
        // A scope of the user manager's goes with its warden.
        let entries = fs::read_dir(&path).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with(&own)).count()
    };
    // Other tests of this program have jails at the same time; each is gone in a moment.
    for _ in 0..1_000 {
        if left() == 0 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{} groups are left in {}", left(), path.display());
}

pub fn required() {
    let bench = Bench::new();
    let options = JailOptions { limits: Policy::Required, ..JailOptions::new(bench.path("store")) };
    let driver = bench.runtime().block_on(JailDriver::start(options)).expect("cgroups are there");
    assert!(driver.limiter().has_cgroups(), "{}", driver.limiter().describe());
}
