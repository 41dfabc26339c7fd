//! Memory, processor, output and processes, with whatever enforces them here.

use serde_json::{Value, json};
use turnjail_driver::ExitReason;
use turnjail_jail::{Ended, JailSpec, Profile};
use turnjail_tests::jails::Bench;

const EAGAIN: i64 = 11;
const ENOMEM: i64 = 12;

pub const PROFILES: [Profile; 2] = [Profile::Sealed, Profile::General];

/// A jail with 64 MiB that does the acts.
pub fn small(bench: &Bench, profile: Profile, acts: &[Value]) -> JailSpec {
    let mut spec = bench.spec_for(profile, acts);
    spec.limits.memory_mb = 64;
    spec.limits.time_ms = 60_000;
    spec
}

pub fn run(bench: &Bench, spec: &JailSpec) -> Ended {
    bench.run(spec, b"").expect("a jail")
}

fn assert_stopped(bench: &Bench, spec: &JailSpec, reason: ExitReason) {
    let ended = run(bench, spec);
    let limits = bench.client().limiter().describe();
    assert_eq!(ended.reason, reason, "{limits}: {ended:?}");
    let text = String::from_utf8_lossy(&ended.stdout);
    assert!(!text.contains("beyond"), "it went on: {text}");
}

/// Under the sealed profile the kernel refuses it, and the worker's own end says so (`jail/endings.rs`).
pub fn memory() {
    let bench = Bench::new();
    let acts = [json!(["touch", 256]), bench.sleep(), json!(["print", "beyond"])];
    assert_stopped(&bench, &small(&bench, Profile::General, &acts), ExitReason::Memory);
    let sealed = run(&bench, &small(&bench, Profile::Sealed, &acts[..1]));
    let line: Value = serde_json::from_slice(&sealed.stdout).expect("a line");
    assert_eq!(line["errno"].as_i64(), Some(ENOMEM), "{sealed:?}");
}

/// Each is within the limit; pages that two share count once.
pub fn memory_together() {
    let bench = Bench::new();
    let second = json!(["child", [["touch", 40], bench.sleep()]]);
    let acts = [json!(["child", [["touch", 40], second]]), json!(["print", "beyond"])];
    assert_stopped(&bench, &small(&bench, Profile::General, &acts), ExitReason::Memory);
}

pub fn memory_of_files() {
    let bench = Bench::new();
    let acts = [
        json!(["fill", "/tmp/file", 40]),
        json!(["touch", 40]),
        bench.sleep(),
        json!(["print", "beyond"]),
    ];
    assert_stopped(&bench, &small(&bench, Profile::General, &acts), ExitReason::Memory);
}

pub fn memory_hidden() {
    let bench = Bench::new();
    let acts = [json!(["hide", 200]), bench.sleep(), json!(["print", "beyond"])];
    assert_stopped(&bench, &small(&bench, Profile::General, &acts), ExitReason::Memory);
}

pub fn memory_within() {
    let bench = Bench::new();
    let acts = [json!(["touch", 20]), json!(["spin", 400]), json!(["fill", "/tmp/file", 10])];
    for profile in PROFILES {
        let ended = run(&bench, &small(&bench, profile, &acts));
        assert_eq!(ended.reason, ExitReason::Ok, "{profile}: {ended:?}");
    }
}

pub fn cpu_time() {
    let bench = Bench::new();
    for profile in PROFILES {
        let acts = [json!(["spin", 60_000]), json!(["print", "beyond"])];
        let mut spec = small(&bench, profile, &acts);
        spec.limits.time_ms = 1_000;
        assert_stopped(&bench, &spec, ExitReason::Cpu);
    }
}

pub fn output() {
    let bench = Bench::new();
    for profile in PROFILES {
        for descriptor in [1, 2] {
            let acts = [json!(["flood", descriptor, 1 << 30])];
            let ended = run(&bench, &small(&bench, profile, &acts));
            assert_eq!(ended.reason, ExitReason::Output, "{profile}: {:?}", ended.exit);
        }
    }
}

/// A limit of processes kills nobody: it is counted where the kernel counts it.
pub fn processes() {
    let bench = Bench::new();
    let mut spec = small(&bench, Profile::General, &[json!(["forks", 200])]);
    spec.limits.pids = 16;
    let ended = run(&bench, &spec);
    assert_eq!(ended.reason, ExitReason::Ok, "{ended:?}");
    let line: Value = serde_json::from_slice(&ended.stdout).expect("a line");
    assert_eq!(line["errno"].as_i64(), Some(EAGAIN), "{line}");
    assert!(line["made"].as_u64().is_some_and(|made| (8..16).contains(&made)), "{line}");
    let counted = bench.client().limiter().has_cgroups();
    assert_eq!(ended.usage.refused_forks.is_some_and(|refused| refused > 0), counted, "{ended:?}");
}
