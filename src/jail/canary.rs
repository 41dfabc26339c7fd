//! Proves at start that the walls stand: what must fail is tried in finished jails, and must fail.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use turnjail_driver::Limits;
use turnjail_images::Image;
use turnjail_warden::canary::Attempt;

use crate::client::Client;
use crate::plan::JailSpec;
use crate::{Isolation, StartError};

/// Tries every forbidden act, each in a jail of its own, on the root filesystem of `image`. Any that is
/// not refused is an error: then no turn may run.
pub(crate) async fn prove_walls(client: &Client, image: &Image) -> Result<(), StartError> {
    let spec = JailSpec {
        rootfs: image.rootfs.clone(),
        command: vec!["/worker".to_owned()],
        environment: Vec::new(),
        working_dir: String::new(),
        mounts: Vec::new(),
        isolation: Isolation::SEALED,
        limits: Limits::default(),
        landlock: true,
    };
    for attempt in Attempt::ALL {
        prove(client, &spec, attempt).await?;
    }
    Ok(())
}

/// Tries one act in a jail for `spec`; an error when it is not refused.
pub async fn prove(client: &Client, spec: &JailSpec, attempt: Attempt) -> Result<(), StartError> {
    let mut plan = spec.plan()?;
    plan.attempt = Some(attempt);
    let mut jail = client.jail(plan, nothing()?).await?;
    jail.ready().await?;
    let status = jail.ended().await?.status;
    if attempt.refused(status, client.facts().landlock_abi > 0) {
        return Ok(());
    }
    Err(StartError::Breach { attempt, status })
}

/// Standard streams that lead nowhere.
fn nothing() -> Result<[OwnedFd; 3], StartError> {
    let open = || {
        rustix::fs::open(c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .map_err(|e| StartError::host("open /dev/null", e))
    };
    Ok([open()?, open()?, open()?])
}

/// How many acts are tried.
pub(crate) fn count() -> usize {
    Attempt::ALL.len()
}
