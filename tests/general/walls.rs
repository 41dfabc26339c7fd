//! The canary of the general profile.

use turnjail_jail::{Isolation, JailDriver, JailOptions, JailSpec, Profile, StartError, canary};
use turnjail_tests::jails::Bench;
use turnjail_warden::canary::Attempt;

fn prove(bench: &Bench, spec: &JailSpec, attempt: Attempt) -> Result<(), StartError> {
    bench.runtime().block_on(canary::prove(bench.client(), spec, attempt))
}

pub fn standing() {
    let bench = Bench::new();
    let mut spec = bench.spec(Profile::General, &[]);
    for loopback in [false, true] {
        spec.isolation = Isolation { loopback, ..Isolation::GENERAL };
        for &attempt in canary::attempts(spec.isolation) {
            let proof = prove(&bench, &spec, attempt);
            proof.unwrap_or_else(|e| panic!("{attempt:?}, loopback {loopback}: {e}"));
        }
    }
}

/// Walls that are absent on purpose: landlock is switched off, and there are network sockets where there
/// should be none.
pub fn missing() {
    let bench = Bench::new();
    let spec = bench.spec(Profile::General, &[]);
    let breach = |spec: &JailSpec, attempt| {
        let error = prove(&bench, spec, attempt).expect_err("a breach");
        assert_eq!(error.code(), "breach", "{attempt:?}: {error}");
    };
    breach(&JailSpec { landlock: false, ..spec.clone() }, Attempt::SocketFile);
    let loopback = Isolation { loopback: true, ..Isolation::GENERAL };
    breach(&JailSpec { isolation: loopback, ..spec.clone() }, Attempt::Socket);
}

/// A second process of the same user, boot and program need not try everything again; a record that says
/// anything else is no pass.
pub fn kept() {
    let bench = Bench::new();
    let passes = bench.path("passes");
    let start = || {
        let mut options = JailOptions::new(bench.path("store"));
        options.passes = Some(passes.clone());
        bench.runtime().block_on(JailDriver::start(options)).expect("a driver")
    };
    drop(start());
    let file = passes.join("canary-sealed");
    let pass = std::fs::read_to_string(&file).expect("a record");
    let written = || std::fs::metadata(&file).and_then(|found| found.modified()).expect("a time");
    let first = written();
    drop(start());
    assert_eq!(written(), first, "a pass was not reused");
    std::fs::write(&file, pass.replace("landlock_abi", "something_else")).expect("a file");
    drop(start());
    assert_eq!(std::fs::read_to_string(&file).expect("a record"), pass, "no new canary was run");
}
