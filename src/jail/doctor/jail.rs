//! Real jails with the built-in image: the worker's own program, then everything that must fail.

use std::time::Instant;

use tokio_util::sync::CancellationToken;
use turnjail_driver::{ExitReason, Limits};
use turnjail_images::Image;
use turnjail_warden::step::Step;
use turnjail_warden::wire::Facts;

use super::{Check, Report, State, inside};
use crate::causes::evidence::Evidence;
use crate::causes::{Advice, advise, table};
use crate::client::Client;
use crate::plan::JailSpec;
use crate::{Isolation, StartError, canary, receipt, run};

/// The name of the check that a sealed jail was made.
pub(super) const SEALED: &str = "jail";

pub(super) fn landlock(facts: &Facts, here: &Evidence) -> Check {
    let name = "landlock";
    match landlock_advice(facts.landlock_abi, here) {
        None => Check::ok(name, format!("ABI {}", facts.landlock_abi)),
        Some(advice) => Check::of(name, advice),
    }
}

/// What landlock lacks here, and why; none where it has all that turnjail uses.
pub(crate) fn landlock_advice(abi: u32, here: &Evidence) -> Option<Advice> {
    let lacks = receipt::landlock_lacks(abi).join(", ");
    let modules = here.text("/sys/kernel/security/lsm");
    match (abi, modules.as_deref()) {
        (0, Some(modules)) if !modules.contains("landlock") => {
            Some(advise(&table::LANDLOCK_OFF, here, &[("lsm", modules.trim())]))
        }
        (0, _) => Some(advise(&table::LANDLOCK_ABSENT, here, &[])),
        _ if lacks.is_empty() => None,
        _ => {
            let words = [("abi", &*abi.to_string()), ("lacks", &*lacks)];
            Some(advise(&table::LANDLOCK_OLD, here, &words))
        }
    }
}

pub(super) fn executable_memory(facts: &Facts, here: &Evidence) -> Check {
    let name = "executable memory";
    if facts.mdwe {
        return Check::ok(name, "PR_SET_MDWE");
    }
    Check::of(name, advise(&table::MDWE, here, &[]))
}

/// The built-in image in a jail of its own, as turns run it.
fn spec(image: &Image, arguments: &[&str]) -> JailSpec {
    let command = std::iter::once("/worker").chain(arguments.iter().copied());
    JailSpec {
        rootfs: image.rootfs.clone(),
        command: command.map(str::to_owned).collect(),
        environment: Vec::new(),
        working_dir: String::new(),
        mounts: Vec::new(),
        isolation: Isolation::SEALED,
        limits: Limits::default(),
        landlock: true,
        attempt: None,
        bounds: None,
    }
}

/// Runs the worker, tries what must fail, and looks at a worker that waits.
pub(super) async fn examine(client: &Client, image: &Image, here: &Evidence, report: &mut Report) {
    let never = CancellationToken::new();
    let ended = match run(client, &spec(image, &["--version"]), b"", &never, || {}).await {
        Err(error) => return report.checks.push(Check::failed(SEALED, &error)),
        Ok(ended) => ended,
    };
    if ended.reason != ExitReason::Ok {
        let remedy = "report this with the output of turnjail doctor --json".to_owned();
        return report.checks.push(Check {
            code: "jail",
            state: State::Failed,
            consequence: Some("no turn can run".to_owned()),
            remedy: Some(remedy),
            ..Check::ok(SEALED, ended.cause())
        });
    }
    let version = String::from_utf8_lossy(&ended.stdout).trim().to_owned();
    let start = ended.timing.start_us as f64 / 1000.0;
    let evidence = format!("{version} ran in a sealed jail, started in {start:.1} ms");
    report.checks.push(Check::ok(SEALED, evidence));
    let told = |step| ended.missing.iter().any(|missing| missing.step == step);
    let tried = report.checks.iter().any(|check| check.code == table::NAMESPACE_LIMITS.code);
    if told(Step::NamespaceLimit) && !tried {
        let advice = advise(&table::NAMESPACE_LIMITS, here, &[]);
        report.checks.push(Check::of("nested namespaces", advice));
    }
    let sealed = walls("walls", client, image, Isolation::SEALED).await;
    report.checks.push(sealed.unwrap_or_else(|error| Check::failed("walls", &error)));
    report.checks.push(general_walls(client, image).await);
    report.checks.extend(general_proc(client, image, here, &report.checks).await);
    match inside::look(client, &spec(image, &[])).await {
        Ok(inside) => {
            report.checks.push(inside.check());
            report.inside = Some(inside);
        }
        Err(error) => report.checks.push(Check::failed("inside", &error)),
    }
}

/// A general jail that has no /proc although the block alone could be had; none where it has one, or that
/// is said already.
async fn general_proc(
    client: &Client,
    image: &Image,
    here: &Evidence,
    said: &[Check],
) -> Option<Check> {
    let general = JailSpec { isolation: Isolation::GENERAL, ..spec(image, &["--version"]) };
    let never = CancellationToken::new();
    let ended = run(client, &general, b"", &never, || {}).await.ok()?;
    let lacks = ended.missing.iter().any(|missing| missing.step == Step::Proc);
    let known = said.iter().any(|check| check.code == table::MASKED_PROC.code);
    (lacks && !known).then(|| Check::of("own /proc", advise(&table::MASKED_PROC, here, &[])))
}

/// Everything that must fail, in jails of this isolation.
async fn walls(
    name: &'static str,
    client: &Client,
    image: &Image,
    isolation: Isolation,
) -> Result<Check, StartError> {
    let began = Instant::now();
    canary::prove_profile(client, image, isolation).await?;
    let took = began.elapsed().as_secs_f64() * 1000.0;
    let tried = canary::attempts(isolation).len();
    let evidence = format!("{tried} forbidden acts were refused in {tried} jails, {took:.0} ms");
    Ok(Check::ok(name, evidence))
}

/// General images are not what most turns run: without them the built-in worker goes on, but not where a
/// wall of theirs is absent.
async fn general_walls(client: &Client, image: &Image) -> Check {
    let name = "walls, general";
    match walls(name, client, image, Isolation::GENERAL).await {
        Ok(check) => check,
        Err(error @ StartError::Breach { .. }) => Check::failed(name, &error),
        Err(error) => Check {
            state: State::Degraded,
            consequence: Some("general images cannot be used".to_owned()),
            ..Check::failed(name, &error)
        },
    }
}
