//! The same checks of images by containers as by jails.

use turnjail_images::{ImageStore, ImportOptions, Source};
use turnjail_jail::{JailDriver, JailOptions};
use turnjail_tests::jails::private_dir;
use turnjail_tests::{engine, image_checks};

use crate::docker::{block_on, driver};

pub fn docker() {
    block_on(async {
        let driver = driver().await;
        image_checks::hold(&driver, &|archive| engine::try_docker(&["load"], archive).map(drop))
            .await;
    });
}

pub fn jail() {
    block_on(async {
        let directory = private_dir();
        let store = ImageStore::open(directory.path()).expect("a store");
        let driver = JailDriver::start(JailOptions::new(directory.path().to_owned())).await;
        let load = |archive: &[u8]| {
            let source = Source::Stream(Box::new(std::io::Cursor::new(archive.to_vec())));
            let loaded = store.load(source, &ImportOptions::default());
            loaded.map(drop).map_err(|error| error.to_string())
        };
        image_checks::hold(&driver.expect("jails"), &load).await;
    });
}
