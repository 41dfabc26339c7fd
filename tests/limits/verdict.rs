//! What doctor says about limits and about landlock is what holds here.

use serde_json::json;
use turnjail_jail::JailOptions;
use turnjail_jail::doctor::{Check, Report, State};
use turnjail_tests::acts::call;
use turnjail_tests::jails::Bench;
use turnjail_warden::seccomp::numbers::LANDLOCK_CREATE_RULESET;

use crate::place::{self, Place};

fn check(bench: &Bench, name: &str) -> Check {
    let options = JailOptions::new(bench.path("store"));
    let Report { checks, .. } =
        bench.runtime().block_on(turnjail_jail::doctor::doctor(&options, &[]));
    let found = checks.iter().find(|check| check.name == name);
    found.unwrap_or_else(|| panic!("nothing is said of {name}: {checks:?}")).clone()
}

/// A group of its own, or one by the user's manager, or none and the reason.
pub fn limits() {
    let place = place::here();
    let bench = Bench::new();
    let check = check(&bench, "limits");
    let says = |words: &[&str]| {
        for word in words {
            assert!(check.evidence.contains(word), "{word:?} in {place:?}: {check:?}");
        }
    };
    if bench.client().limiter().has_cgroups() {
        match &place {
            Place::Delegated(group) => says(&["by the service manager", &group.to_string_lossy()]),
            Place::Nowhere => panic!("there are no cgroups to be used: {check:?}"),
            _ => {
                assert!(place::has_manager(), "who gave it? {place:?} {check:?}");
                says(&["by the systemd user manager"]);
            }
        }
        says(&["cgroup v2", "memory, pids"]);
        let whole = bench.client().limiter().has_cpu_share();
        assert_eq!(check.state, if whole { State::Ok } else { State::Degraded }, "{check:?}");
        return;
    }
    says(&["resource limits of each process"]);
    match &place {
        Place::Delegated(_) => panic!("the delegated group is not used: {check:?}"),
        Place::Nowhere => says(&["cgroup"]),
        Place::Undelegated(_) => says(&["not delegated"]),
        Place::Shared(group) => says(&["holds other processes", &group.to_string_lossy()]),
        Place::Threaded(group) => says(&["type is \"domain threaded\"", &group.to_string_lossy()]),
    }
    assert_eq!((check.state, check.code), (State::Degraded, "no-cgroup"), "{check:?}");
    let lost = check.consequence.as_deref().unwrap_or_default();
    assert!(lost.contains("per process") && lost.contains("no CPU share"), "{check:?}");
    assert!(check.remedy.as_deref().is_some_and(|remedy| remedy.len() > 20), "{check:?}");
}

/// By the ABI that the kernel itself gives as an answer (landlock(7)).
pub fn landlock() {
    const VERSION: i64 = 1;
    let bench = Bench::new();
    let asked = bench.outside(&[call(LANDLOCK_CREATE_RULESET, json!([0, 0, VERSION]))]);
    let abi = if asked.last_error().is_some() { 0 } else { asked.value(0) };
    let check = check(&bench, "landlock");
    let lost = check.consequence.clone().unwrap_or_default();
    if abi == 0 {
        assert_eq!((check.state, check.code), (State::Degraded, "landlock"), "{check:?}");
        assert!(lost.contains("mounts and seccomp alone"), "{check:?}");
        return;
    }
    assert!(check.evidence.contains(&format!("ABI {abi}")), "ABI {abi}: {check:?}");
    let since = [
        (2, "renames between directories"),
        (3, "truncation"),
        (4, "TCP"),
        (5, "device ioctls"),
        (6, "signals and abstract sockets"),
    ];
    for (first, what) in since {
        assert_eq!(lost.contains(what), abi < first, "{what} at ABI {abi}: {check:?}");
    }
    let whole = if abi < 6 { State::Degraded } else { State::Ok };
    assert_eq!(check.state, whole, "{check:?}");
}
