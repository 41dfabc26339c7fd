//! Which isolation a driver gives an image, and that its receipt says so.

use tokio_util::sync::CancellationToken;
use turnjail_driver::{
    ContainerDriver as _, ContainerSpec, DriverError, Limits, Receipt, WallState,
};
use turnjail_jail::{ImageSettings, JailDriver, JailOptions, Profile};
use turnjail_tests::jails::Bench;

const BUILTIN: &str = "turnjail-worker";
const GENERAL: ImageSettings = ImageSettings {
    profile: Some(Profile::General),
    loopback: false,
    address_space_limit: None,
    data_limit: None,
};

fn driver(bench: &Bench, settings: ImageSettings) -> JailDriver {
    let mut options = JailOptions::new(bench.path("store"));
    options.images.set(BUILTIN, settings);
    bench.runtime().block_on(JailDriver::start(options)).expect("a driver")
}

/// The receipt of the real worker, which finds that what it was given is no turn and says so.
fn receipt(bench: &Bench, driver: &JailDriver) -> Receipt {
    let spec = ContainerSpec {
        name: "roundtable-sandbox-0123456789abcdef-01234567".to_owned(),
        image: BUILTIN.to_owned(),
        run_dir: bench.path("run"),
        workspace_dir: bench.path("workspace"),
        channel_dir: None,
        uid: nix::unistd::geteuid().as_raw(),
        gid: nix::unistd::getegid().as_raw(),
        limits: Limits::default(),
    };
    let never = CancellationToken::new();
    let error = bench.runtime().block_on(driver.run(&spec, b"{}", &never, &()));
    let error = error.expect_err("no turn");
    let DriverError::Worker { worker_code, receipt, .. } = error else { panic!("{error:?}") };
    assert_eq!(worker_code.as_deref(), Some("invalid_turn"));
    *receipt
}

fn wall<'r>(receipt: &'r Receipt, name: &str) -> &'r str {
    &receipt.walls.iter().find(|wall| wall.name == name).expect(name).by
}

pub fn builtin() {
    let bench = Bench::new();
    let sealed = receipt(&bench, &driver(&bench, ImageSettings::default()));
    assert_eq!((sealed.profile, sealed.loopback), (Some("sealed"), Some(false)));
    let general = receipt(&bench, &driver(&bench, GENERAL));
    assert_eq!((general.profile, general.loopback), (Some("general"), Some(false)));
    assert!(wall(&general, "system calls").contains("general list"), "{general:?}");
    assert_ne!(wall(&general, "system calls"), wall(&sealed, "system calls"));
}

pub fn loopback() {
    let bench = Bench::new();
    let with = receipt(&bench, &driver(&bench, ImageSettings { loopback: true, ..GENERAL }));
    assert_eq!((with.profile, with.loopback), (Some("general"), Some(true)));
    let files = with.walls.iter().find(|wall| wall.name == "file access").expect("a wall");
    assert_ne!(files.state, WallState::Enforced, "landlock leaves the network out: {files:?}");
    assert!(wall(&with, "network").contains("loopback"), "{with:?}");
    let without = receipt(&bench, &driver(&bench, GENERAL));
    assert!(!wall(&without, "network").contains("loopback"), "{without:?}");
    assert_ne!(wall(&with, "system calls"), wall(&without, "system calls"));
}

pub fn memory() {
    let bench = Bench::new();
    let by = |settings| {
        let receipt = receipt(&bench, &driver(&bench, settings));
        receipt.limits.into_iter().find(|limit| limit.name == "memory").expect("a line").by
    };
    let names = |by: Option<String>, word: &str| by.is_some_and(|by| by.contains(word));
    assert!(names(by(ImageSettings::default()), "RLIMIT_AS"));
    assert!(!names(by(GENERAL), "RLIMIT_AS"));
    let free = ImageSettings { address_space_limit: Some(false), ..ImageSettings::default() };
    assert!(!names(by(free), "RLIMIT_AS"));
    assert!(names(by(ImageSettings { address_space_limit: Some(true), ..GENERAL }), "RLIMIT_AS"));
    assert!(names(by(ImageSettings { data_limit: Some(true), ..GENERAL }), "RLIMIT_DATA"));
}

/// A loopback alone does not make a sealed image general.
pub fn refused() {
    let bench = Bench::new();
    let settings = ImageSettings { loopback: true, ..ImageSettings::default() };
    let driver = driver(&bench, settings);
    let error = bench.runtime().block_on(driver.verify(BUILTIN)).expect_err("refused");
    assert!(matches!(error, DriverError::Start { code: "policy", .. }), "{error:?}");
    assert!(error.remedy().is_some_and(|remedy| remedy.contains("general")), "{error:?}");
}
