//! `version` and `info`: what programs look at before they use an engine.

use serde_json::{Value, json};

use super::failure::Failure;
use super::flags::{Flag, Until, parse};
use super::registry::Registry;
use super::{Done, Here, template};

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The version of Docker's interface whose answers these are.
const API: &str = "1.41";

const KNOWN: &[Flag] = &[Flag::value("format").short('f')];

/// The line of `--version`.
pub fn version_line() -> String {
    format!("Docker version {VERSION}, build turnjail\n")
}

/// The client is the engine: both are this program.
pub fn version(arguments: &[String]) -> Result<Done, Failure> {
    let typed = parse(KNOWN, arguments, Until::End)?;
    let part = json!({
        "Version": VERSION,
        "ApiVersion": API,
        "Os": "linux",
        "Arch": turnjail_driver::image::host_architecture(),
    });
    let mut server = part.clone();
    server["Platform"] = json!({"Name": "turnjail"});
    server["MinAPIVersion"] = API.into();
    answer(typed.last("format"), &json!({"Client": part, "Server": server}), || {
        let arch = turnjail_driver::image::host_architecture();
        let lines =
            format!(" Version:     {VERSION}\n API version: {API}\n OS/Arch:     linux/{arch}\n");
        format!("Client: turnjail\n{lines}\nServer: turnjail\n{lines}")
    })
}

/// What there is and what it enforces.
pub fn info(here: &Here, arguments: &[String]) -> Result<Done, Failure> {
    let typed = parse(KNOWN, arguments, Until::End)?;
    let running = Registry::open()?.list().map_or(0, |list| list.len());
    let images = here.store()?.list()?.len();
    let info = json!({
        "ID": "turnjail",
        "Name": "turnjail",
        "Driver": "turnjail",
        "ServerVersion": VERSION,
        "OSType": "linux",
        "Architecture": std::env::consts::ARCH,
        "Containers": running,
        "ContainersRunning": running,
        "ContainersPaused": 0,
        "ContainersStopped": 0,
        "Images": images,
        "SecurityOptions": ["name=seccomp,profile=turnjail"],
        // With whichever back end there is: each run says on standard error when it is no cgroup.
        "MemoryLimit": true,
        "SwapLimit": true,
        "CpuCfsPeriod": true,
        "CpuCfsQuota": true,
        "PidsLimit": true,
        "Warnings": null,
    });
    answer(typed.last("format"), &info, || {
        format!(
            "Client: turnjail\n\nServer: turnjail\n Containers: {running}\n  Running: {running}\n \
             Images: {images}\n Server Version: {VERSION}\n Security Options:\n  seccomp\n   \
             Profile: turnjail\n"
        )
    })
}

fn answer(
    format: Option<&str>,
    value: &Value,
    text: impl FnOnce() -> String,
) -> Result<Done, Failure> {
    match format {
        None => Ok(Done::said(text())),
        Some("json") => Ok(Done::said(format!("{value}\n"))),
        Some(format) => template::lines(format, std::slice::from_ref(value)),
    }
}
