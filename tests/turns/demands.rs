//! The suite that every driver is held to.

use std::sync::Arc;

use turnjail_driver::ContainerDriver;
use turnjail_driver::conformance::{Setting, cases};
use turnjail_images::BUILTIN;
use turnjail_jail::{JailDriver, JailOptions};
use turnjail_tests::jails::private_dir;

pub fn jail() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let store = private_dir();
        let driver = JailDriver::start(JailOptions::new(store.path().to_owned())).await;
        let driver: Arc<dyn ContainerDriver> = Arc::new(driver.expect("a driver"));
        let place = private_dir();
        let setting = Setting::new(BUILTIN, place.path());
        let mut faults = Vec::new();
        for case in cases() {
            if let Err(fault) = case.check(driver.clone(), &setting).await {
                faults.push(format!("{}: {fault}", case.name()));
            }
        }
        assert!(faults.is_empty(), "{faults:#?}");
    });
}
