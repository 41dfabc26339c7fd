//! The suite that every driver is held to, on the namespace driver and on the example's.

use std::path::Path;
use std::sync::Arc;

use turnjail_driver::ContainerDriver;
use turnjail_driver::conformance::{Setting, cases};
use turnjail_images::BUILTIN;
use turnjail_jail::{JailDriver, JailOptions};
use turnjail_tests::jails::private_dir;

#[path = "../../examples/bubblewrap/driver.rs"]
mod bubblewrap;

pub fn jail() {
    demand(async |store| {
        JailDriver::start(JailOptions::new(store.to_owned())).await.expect("a driver")
    });
}

pub fn bubblewrap() {
    demand(async |store| bubblewrap::BubblewrapDriver::new(store).expect("a driver"));
}

/// Holds a driver to every demand.
fn demand<D: ContainerDriver>(start: impl AsyncFnOnce(&Path) -> D) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let store = private_dir();
        let driver: Arc<dyn ContainerDriver> = Arc::new(start(store.path()).await);
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
