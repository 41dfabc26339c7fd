//! Finds out what this host can do for jails, by doing it: the same code path as a turn.
//!
//! - [`host`]: what files of this host say (versions, limits, what surrounds it, cgroups)
//! - [`places`]: the directories that turns use
//! - `blocks`: each building block of a jail, tried on its own
//! - `jail`: a real warden and real jails, in which what must fail is tried
//! - [`inside`]: what a worker in such a jail is, as the kernel says
//!
//! The causes and remedies are those of start-up errors ([`crate::causes`]), with the same codes.

mod blocks;
pub mod host;
pub mod inside;
mod jail;
pub mod places;

use std::path::PathBuf;

use serde::Serialize;
use turnjail_images::{BUILTIN, Image, ImageStore};

use crate::causes::evidence::Evidence;
use crate::causes::table::Verdict;
use crate::causes::{Advice, advise, table};
use crate::client::Client;
use crate::driver::{
    JailOptions, check_capabilities, check_facts, check_groups, check_limits, check_root,
};
use crate::{Limiter, StartError};
use inside::Inside;
pub(crate) use jail::landlock_advice;

/// The verdict on a building block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// As designed.
    Ok,
    /// Jails can be made, with something lost.
    Degraded,
    /// No jail can be made, or a required policy is not met.
    Failed,
}

/// One building block: what was found and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// A stable word, the same as the code of the error that a start would give.
    pub code: &'static str,
    /// The building block.
    pub name: &'static str,
    /// The verdict.
    pub state: State,
    /// What was tried or read, and the answer.
    pub evidence: String,
    /// What is lost, unless the verdict is ok.
    pub consequence: Option<String>,
    /// What to do, when something can be done.
    pub remedy: Option<String>,
    /// The failure is of a policy that the operator set, not of the host.
    pub policy: bool,
}

/// Everything that was found out.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// A verdict on each building block.
    pub checks: Vec<Check>,
    /// What a worker in a sealed jail is; none where no jail could be made.
    pub inside: Option<Inside>,
}

impl Check {
    pub(crate) fn ok(name: &'static str, evidence: impl Into<String>) -> Self {
        Self {
            code: "ok",
            name,
            state: State::Ok,
            evidence: evidence.into(),
            consequence: None,
            remedy: None,
            policy: false,
        }
    }

    /// A cause of the table.
    pub(crate) fn of(name: &'static str, advice: Advice) -> Self {
        let state = match advice.verdict {
            Verdict::Failed => State::Failed,
            Verdict::Degraded => State::Degraded,
        };
        Self {
            code: advice.code,
            state,
            consequence: Some(advice.lost),
            remedy: Some(advice.remedy),
            ..Self::ok(name, advice.why)
        }
    }

    /// What a start would stop with.
    pub(crate) fn failed(name: &'static str, error: &StartError) -> Self {
        Self {
            code: error.code(),
            state: State::Failed,
            consequence: Some("no turn can run".to_owned()),
            remedy: error.remedy(),
            policy: matches!(error, StartError::Policy { .. }),
            ..Self::ok(name, error.to_string())
        }
    }
}

/// Tries every building block of a jail, with the policies of `options`, and looks at the directories
/// that turns use, by name. What stands on a failed one is not tried. Must be called within a tokio
/// runtime.
pub async fn doctor(options: &JailOptions, places: &[(&'static str, PathBuf)]) -> Report {
    let here = Evidence::here();
    let mut checks = host::checks(&here);
    checks.push(process());
    let groups = check_groups(options.groups);
    checks.push(refused("supplementary groups", groups).unwrap_or_else(|| host::groups(&here)));
    checks.extend(places::checks(&here, places));
    let mut report = Report { checks, inside: None };
    if let Err(error) = check_root() {
        // Root's answers about namespaces are not those that a service user would get.
        report.checks.push(Check::failed("ordinary user", &error));
        return report;
    }
    let (store, image) = image(options);
    report.checks.push(store);
    let tried = blocks::checks(&here).await;
    let client = match Client::start().await {
        Ok(client) => client,
        Err(error) => {
            report.checks.extend(tried);
            report.checks.push(Check::failed("warden", &error));
            return report;
        }
    };
    report.checks.extend(tried);
    report.checks.push(Check::ok("warden", "runs as PID 1 of namespaces of its own"));
    let landlock = refused("landlock", check_facts(options, client.facts()));
    report.checks.push(landlock.unwrap_or_else(|| jail::landlock(client.facts(), &here)));
    report.checks.push(jail::executable_memory(client.facts(), &here));
    let limited = refused("limits", check_limits(options.limits, client.limiter()));
    report.checks.push(limited.unwrap_or_else(|| limits(client.limiter(), &here)));
    if let Some(image) = image {
        jail::examine(&client, &image, &here, &mut report).await;
    }
    excuse_what_is_not_needed(&mut report.checks, &here);
    report
}

/// What a start refuses, in its own words.
fn refused(name: &'static str, verdict: Result<(), StartError>) -> Option<Check> {
    verdict.err().map(|error| Check::failed(name, &error))
}

/// A block without which a jail was made all the same has an older way that was taken instead.
fn excuse_what_is_not_needed(checks: &mut [Check], here: &Evidence) {
    let made = checks.iter().any(|check| check.name == jail::SEALED && check.state == State::Ok);
    for check in checks.iter_mut().filter(|check| made && check.state == State::Failed) {
        if let Some(excused) = blocks::excused(check, here) {
            *check = excused;
        }
    }
}

/// What a warden got says more than files do; why it got none is in files.
fn limits(limiter: &Limiter, here: &Evidence) -> Check {
    let evidence = limiter.describe();
    match limiter.undelegated() {
        None if limiter.has_cpu_share() => Check::ok("limits", evidence),
        None => {
            let advice = advise(&table::CGROUP_CONTROLLERS, here, &[("value", "memory pids")]);
            Check { evidence, ..Check::of("limits", advice) }
        }
        Some(_) => Check { evidence, ..host::cgroup(here) },
    }
}

fn process() -> Check {
    match check_capabilities() {
        Ok(()) => Check::ok("process", "no capabilities"),
        Err(error) => Check::failed("process", &error),
    }
}

fn image(options: &JailOptions) -> (Check, Option<Image>) {
    let name = "image store";
    match ImageStore::open(&options.store).and_then(|store| store.resolve(BUILTIN)) {
        Ok(image) => {
            let digest = image.digest.get(..19).unwrap_or(&image.digest);
            let evidence = format!("{}: {BUILTIN} {digest}...", options.store.display());
            (Check::ok(name, evidence), Some(image))
        }
        Err(error) => {
            let check = Check {
                code: error.code(),
                state: State::Failed,
                consequence: Some("no worker can be started".to_owned()),
                remedy: Some(error.remedy()),
                ..Check::ok(name, error.to_string())
            };
            (check, None)
        }
    }
}
