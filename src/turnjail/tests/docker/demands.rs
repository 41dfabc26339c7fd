//! turnjail's own Docker driver, told that this program is its docker.

use std::sync::Arc;

use turnjail_docker::{DockerDriver, DockerOptions, Kind};
use turnjail_driver::ContainerDriver;
use turnjail_driver::conformance::{Setting, cases};
use turnjail_tests::image_checks;
use turnjail_tests::jails::private_dir;

use crate::account::{Account, program};

async fn start(account: &Account) -> DockerDriver {
    let options = DockerOptions {
        program: program().to_owned(),
        home: Some(account.path("home")),
        runtime_dir: Some(account.path("runtime")),
        ..DockerOptions::new()
    };
    DockerDriver::start(options).await.expect("a driver")
}

pub fn driver() {
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let account = Account::new();
        let driver = start(&account).await;
        assert_eq!(driver.kind(), Kind::Turnjail);
        let driver: Arc<dyn ContainerDriver> = Arc::new(driver);
        let place = private_dir();
        let setting = Setting::new("turnjail-worker", place.path());
        let mut faults = Vec::new();
        for case in cases() {
            if let Err(fault) = case.check(driver.clone(), &setting).await {
                faults.push(format!("{}: {fault}", case.name()));
            }
        }
        assert!(faults.is_empty(), "{faults:#?}");
    });
}

pub fn images() {
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let account = Account::new();
        let driver = start(&account).await;
        let load = |archive: &[u8]| {
            let loaded = account.run(&["load"], archive);
            if loaded.code == 0 { Ok(()) } else { Err(loaded.err) }
        };
        image_checks::hold(&driver, &load).await;
    });
}
