//! A driver of one's own: turns in bubblewrap instead of turnjail's jails.
//!
//! `cargo run --example bubblewrap` holds the driver to the demands that every driver must meet, and
//! prints one line for each. It needs the program `bwrap`, and an ordinary user.

mod driver;

use std::process::ExitCode;
use std::sync::Arc;

use turnjail::{BUILTIN_IMAGE, ContainerDriver};
use turnjail_driver::conformance::{Setting, cases};

use driver::BubblewrapDriver;

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let directory = tempfile::Builder::new().prefix("tj-").tempdir()?;
    let images = directory.path().join("images");
    let driver: Arc<dyn ContainerDriver> = Arc::new(BubblewrapDriver::new(&images)?);
    let setting = Setting::new(BUILTIN_IMAGE, directory.path());
    let mut faults = 0;
    for case in cases() {
        match case.check(driver.clone(), &setting).await {
            Ok(()) => println!("ok    {}", case.name()),
            Err(fault) => {
                faults += 1;
                println!("FAULT {}: {fault}", case.name());
            }
        }
    }
    Ok(if faults == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
