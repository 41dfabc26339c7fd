//! Proves that the walls stand: what must fail is tried in finished jails, and must fail.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use turnjail_driver::Limits;
use turnjail_images::Image;
use turnjail_warden::canary::Attempt;
use turnjail_warden::seccomp::Profile;
use turnjail_warden::wire::Way;

use crate::client::Client;
use crate::plan::JailSpec;
use crate::{Isolation, StartError};

/// Tries every act that this isolation forbids, each in a jail of its own. Any that is not refused is an
/// error: then no turn may run. `image` is the built-in one: what is proved is the jail, and another
/// image's files could look like the host's.
pub(crate) async fn prove_profile(
    client: &Client,
    image: &Image,
    isolation: Isolation,
) -> Result<(), StartError> {
    let spec = JailSpec {
        rootfs: image.rootfs.clone(),
        command: vec!["/worker".to_owned()],
        environment: Vec::new(),
        working_dir: String::new(),
        mounts: Vec::new(),
        isolation,
        limits: Limits::default(),
        bounds: None,
        landlock: true,
        attempt: None,
    };
    for &way in ways(isolation) {
        for &attempt in attempts(isolation) {
            prove_by(way, client, &spec, attempt).await?;
        }
    }
    Ok(())
}

/// What is tried in a jail of this isolation.
pub fn attempts(isolation: Isolation) -> &'static [Attempt] {
    match isolation {
        Isolation { profile: Profile::Sealed, .. } => Attempt::SEALED,
        Isolation { loopback: false, .. } => Attempt::GENERAL,
        Isolation { loopback: true, .. } => Attempt::LOOPBACK,
    }
}

/// Every way in which such a jail may come about.
fn ways(isolation: Isolation) -> &'static [Way] {
    match isolation.profile {
        Profile::Sealed => &[Way::Direct, Way::Prepared],
        Profile::General => &[Way::Direct],
    }
}

/// Tries one act in a jail for `spec`; an error when it is not refused.
pub async fn prove(client: &Client, spec: &JailSpec, attempt: Attempt) -> Result<(), StartError> {
    prove_by(Way::Any, client, spec, attempt).await
}

async fn prove_by(
    way: Way,
    client: &Client,
    spec: &JailSpec,
    attempt: Attempt,
) -> Result<(), StartError> {
    let mut plan = spec.plan()?;
    plan.attempt = Some(attempt);
    plan.way = way;
    let mut jail = client.jail(plan, nothing()?).await?;
    jail.ready().await?;
    let status = jail.ended().await?.status;
    if attempt.refused(spec.isolation.profile, status, client.facts().landlock_abi > 0) {
        return Ok(());
    }
    Err(StartError::Breach { attempt, status })
}

/// Standard streams that lead nowhere.
pub(crate) fn nothing() -> Result<[OwnedFd; 3], StartError> {
    let open = || {
        rustix::fs::open(c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .map_err(|e| StartError::host("open /dev/null", e))
    };
    Ok([open()?, open()?, open()?])
}
