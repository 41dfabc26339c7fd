//! The canary of the general profile.

use std::process::{Command, ExitCode};

use tokio_util::sync::CancellationToken;
use turnjail_driver::{ContainerDriver as _, DriverError};
use turnjail_jail::{
    ImageSettings, Isolation, JailDriver, JailOptions, JailSpec, Profile, StartError, canary,
};
use turnjail_tests::jails::Bench;
use turnjail_warden::canary::Attempt;

use crate::store;

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

/// Tells this program to be a host under a filter that has bind(2) succeed without being done.
pub const UNDER_A_LIE: &str = "--under-a-filter-that-lies";

/// A wall that does not answer as it must stops the driver for good, also for images that it is not about.
pub fn breach() {
    let program = std::env::current_exe().expect("this program");
    let run = Command::new(program).arg(UNDER_A_LIE).output().expect("a host");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}

/// The host of that test: under the filter every jail's landlock seems to let sockets be made.
pub fn host() -> ExitCode {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};
    let bench = Bench::new();
    let target: TargetArch = std::env::consts::ARCH.try_into().expect("an architecture");
    let (allow, succeed) = (SeccompAction::Allow, SeccompAction::Errno(0));
    let rules = [(nix::libc::SYS_bind, Vec::new())].into();
    let filter = SeccompFilter::new(rules, allow, succeed, target).expect("a filter");
    let filter: BpfProgram = filter.try_into().expect("a program");
    apply_filter(&filter).expect("applied");
    let mut options = JailOptions::new(bench.path("store"));
    let general = ImageSettings { profile: Some(Profile::General), ..ImageSettings::default() };
    options.images.set("turnjail-worker:latest", general);
    let image = "turnjail-worker";
    let start = |options| bench.runtime().block_on(JailDriver::start(options));
    let sealed = start(JailOptions::new(bench.path("store"))).expect("a driver");
    let driver = start(options).expect("a driver: only the sealed walls are tried at the start");
    let never = CancellationToken::new();
    let spec = store::spec(&bench, image);
    let run = |driver: &JailDriver| bench.runtime().block_on(driver.run(&spec, b"{}", &never, &()));
    let is_breach = |error| matches!(error, Err(DriverError::Start { code: "breach", .. }));
    assert!(is_breach(run(&driver).map(drop)), "the first general turn");
    assert!(is_breach(run(&driver).map(drop)), "and every turn after it");
    // The control: where no general image is run, nothing is missing.
    assert!(!is_breach(run(&sealed).map(drop)), "a sealed turn of another driver");
    ExitCode::SUCCESS
}
