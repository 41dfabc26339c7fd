//! The same driver with rootless podman.

use std::process::{Command, Stdio};

use turnjail_docker::{DockerDriver, DockerOptions, Kind};
use turnjail_tests::archive;
use turnjail_tests::jails::private_dir;

use crate::docker::{WORKER, block_on, demand};

pub fn demands() {
    block_on(async {
        // Podman keeps its images below these.
        let (home, runtime) = (private_dir(), private_dir());
        let podman = |arguments: &[&str]| {
            let mut command = Command::new("podman");
            command.args(arguments).env("HOME", home.path());
            command.env("XDG_RUNTIME_DIR", runtime.path()).current_dir("/");
            command
        };
        let file = home.path().join("worker.tar");
        std::fs::write(&file, archive::worker(WORKER)).expect("an archive");
        let loaded = podman(&["load", "--quiet", "--input"]).arg(&file).output().expect("podman");
        assert!(loaded.status.success(), "{loaded:?}");
        let options = DockerOptions {
            program: "podman".into(),
            home: Some(home.path().to_owned()),
            runtime_dir: Some(runtime.path().to_owned()),
            ..DockerOptions::new()
        };
        let driver = DockerDriver::start(options).await.expect("a driver");
        assert_eq!(driver.kind(), Kind::RootlessPodman);
        demand(driver, WORKER).await;
        // Its files belong to ids that this user cannot remove by itself.
        let _ = podman(&["system", "reset", "--force"]).stdout(Stdio::null()).status();
    });
}
