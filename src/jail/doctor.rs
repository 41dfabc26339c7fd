//! Finds out what this host can do for jails, by doing it: the same code path as a turn.
//!
//! The causes and remedies are those of start-up errors ([`crate::stage`]), with the same codes.

use std::time::Instant;

use serde::Serialize;
use tokio_util::sync::CancellationToken;
use turnjail_driver::{ExitReason, Limits};
use turnjail_images::{BUILTIN, Image, ImageStore};
use turnjail_warden::step::Step;
use turnjail_warden::wire::Facts;

use crate::client::Client;
use crate::driver::{JailOptions, LANDLOCK_MINIMUM, Policy, check_capabilities, check_root};
use crate::plan::JailSpec;
use crate::{Isolation, StartError, canary, host, receipt, run};

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

impl Check {
    fn ok(name: &'static str, evidence: impl Into<String>) -> Self {
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

    fn degraded(
        code: &'static str,
        name: &'static str,
        evidence: impl Into<String>,
        consequence: &str,
        remedy: &str,
    ) -> Self {
        Self {
            code,
            state: State::Degraded,
            consequence: Some(consequence.to_owned()),
            remedy: Some(remedy.to_owned()),
            ..Self::ok(name, evidence)
        }
    }

    fn failed(name: &'static str, error: &StartError) -> Self {
        Self {
            code: error.code(),
            state: State::Failed,
            consequence: Some("no turn can run".to_owned()),
            remedy: error.remedy(),
            ..Self::ok(name, error.to_string())
        }
    }

    /// As failed when the operator requires what is degraded here.
    fn required(mut self, policy: Policy) -> Self {
        if policy == Policy::Required && self.state == State::Degraded {
            self.state = State::Failed;
            self.policy = true;
        }
        self
    }
}

/// Tries every building block of a jail, with the policies of `options`. What stands on a failed one is
/// not tried. Must be called within a tokio runtime.
pub async fn doctor(options: &JailOptions) -> Vec<Check> {
    let mut checks = vec![platform(), process(), groups(options)];
    if let Err(error) = check_root() {
        // Root's answers about namespaces are not those that a service user would get.
        checks.push(Check::failed("ordinary user", &error));
        return checks;
    }
    let (store, image) = image(options);
    checks.push(store);
    let client = match Client::start().await {
        Ok(client) => client,
        Err(error) => {
            checks.push(Check::failed("user namespace and warden", &error));
            return checks;
        }
    };
    checks.push(Check::ok(
        "user namespace and warden",
        "a warden runs as PID 1 of its own namespaces",
    ));
    checks.push(landlock(client.facts(), options));
    checks.push(executable_memory(client.facts()));
    checks.push(limits().required(options.limits));
    if let Some(image) = image {
        checks.extend(jail(&client, &image).await);
    }
    checks
}

fn platform() -> Check {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy().into_owned();
    let evidence = format!("Linux {release} on {}", uname.machine().to_string_lossy());
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    let version: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version >= (5, 12) {
        return Check::ok("kernel", evidence);
    }
    let remedy = "use Linux 5.12 or newer";
    let consequence = "mounts cannot be restricted before they are attached";
    Check {
        state: State::Failed,
        ..Check::degraded("old-kernel", "kernel", evidence, consequence, remedy)
    }
}

fn process() -> Check {
    match check_capabilities() {
        Ok(()) => Check::ok("process", "no capabilities"),
        Err(error) => Check::failed("process", &error),
    }
}

fn groups(options: &JailOptions) -> Check {
    let name = "supplementary groups";
    match host::privileged_groups() {
        Ok(groups) if groups.is_empty() => Check::ok(name, "none that amounts to root"),
        Ok(groups) => Check::degraded(
            "groups",
            name,
            groups.join(", "),
            "they stay with a jailed process, which could use group-owned files if one were in view",
            "run turnjail as a user outside these groups",
        )
        .required(options.groups),
        Err(errno) => Check::degraded(
            "groups",
            name,
            errno.to_string(),
            "it is not known whether the user is in privileged groups",
            "make getgroups(2) work",
        ),
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

/// Required is from ABI 3 on: below it the start fails.
fn landlock(facts: &Facts, options: &JailOptions) -> Check {
    let check = landlock_of(facts);
    if facts.landlock_abi < LANDLOCK_MINIMUM { check.required(options.landlock) } else { check }
}

fn landlock_of(facts: &Facts) -> Check {
    let evidence = match facts.landlock_abi {
        0 => "landlock_create_ruleset: not available".to_owned(),
        abi => format!("ABI {abi}"),
    };
    let lacks = receipt::landlock_lacks(facts.landlock_abi);
    if facts.landlock_abi > 0 && lacks.is_empty() {
        return Check::ok("landlock", evidence);
    }
    let consequence = match facts.landlock_abi {
        0 => "files are walled off by mounts and seccomp alone".to_owned(),
        _ => format!("landlock does not mediate {}", lacks.join(", ")),
    };
    Check::degraded(
        "landlock",
        "landlock",
        evidence,
        &consequence,
        "use Linux 6.12 or newer and boot with landlock in the lsm= list",
    )
}

fn executable_memory(facts: &Facts) -> Check {
    let name = "executable memory";
    if facts.mdwe {
        return Check::ok(name, "PR_SET_MDWE");
    }
    Check::degraded(
        "mdwe",
        name,
        "PR_SET_MDWE: not available",
        "only the seccomp filter keeps a worker from making memory executable",
        "use Linux 6.3 or newer",
    )
}

fn limits() -> Check {
    Check::degraded(
        "no-cgroup",
        "limits",
        "resource limits per process",
        "memory, processes and CPU time are bounded for each process; there is no CPU share",
        "none needed for the built-in worker, which is a single process",
    )
}

/// Real jails with the built-in image: the worker's own program, then everything that must fail.
async fn jail(client: &Client, image: &Image) -> Vec<Check> {
    let name = "jail";
    let never = CancellationToken::new();
    let spec = JailSpec {
        rootfs: image.rootfs.clone(),
        command: vec!["/worker".to_owned(), "--version".to_owned()],
        environment: Vec::new(),
        working_dir: String::new(),
        mounts: Vec::new(),
        isolation: Isolation::SEALED,
        limits: Limits::default(),
        bounds: None,
        landlock: true,
    };
    let ended = match run(client, &spec, b"", &never, || {}).await {
        Err(error) => return vec![Check::failed(name, &error)],
        Ok(ended) => ended,
    };
    if ended.reason != ExitReason::Ok {
        let check = Check::ok(name, ended.cause());
        let remedy = "report this with the output of turnjail doctor --json".to_owned();
        return vec![Check {
            code: "jail",
            state: State::Failed,
            consequence: Some("no turn can run".to_owned()),
            remedy: Some(remedy),
            ..check
        }];
    }
    let version = String::from_utf8_lossy(&ended.stdout).trim().to_owned();
    let start = ended.timing.start_us as f64 / 1000.0;
    let evidence = format!("{version} ran in a sealed jail, started in {start:.1} ms");
    let mut checks = vec![Check::ok(name, evidence)];
    if ended.missing.iter().any(|missing| missing.step == Step::NamespaceLimit) {
        checks.push(Check::degraded(
            "namespace-limits",
            "nested namespaces",
            "/proc/sys/user cannot be written",
            "only the seccomp filter forbids namespaces inside a jail",
            "make /proc/sys writable in the surrounding container",
        ));
    }
    let began = Instant::now();
    checks.push(match canary::prove_walls(client, image).await {
        Ok(()) => {
            let took = began.elapsed().as_secs_f64() * 1000.0;
            let tried = canary::count();
            Check::ok(
                "walls",
                format!("{tried} forbidden acts were refused in {tried} jails, {took:.0} ms"),
            )
        }
        Err(error) => Check::failed("walls", &error),
    });
    checks
}
