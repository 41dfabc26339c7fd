//! What was in force around a worker, in words: what the engine was told, and can enforce.

use turnjail_driver::{ContainerSpec, Limit, Receipt, Timing, Usage, Wall, WallState};
use turnjail_protocol::limits::{STDERR_BYTES, STDOUT_BYTES};

use crate::attend::Verdict;
use crate::driver::NAME;
use crate::engine::{Engine, Kind};

/// The walls that an engine builds, and those that turnjail's own jails have beside them.
fn walls(engine: &Engine) -> Vec<Wall> {
    let enforced = |name, by: &str| Wall { name, state: WallState::Enforced, by: by.to_owned() };
    if engine.kind == Kind::Turnjail {
        let by = "a jail of turnjail; `turnjail doctor` says what is in force".to_owned();
        return vec![Wall { name: "jail", state: WallState::Enforced, by }];
    }
    let absent = |name, by: &str| Wall { name, state: WallState::Absent, by: by.to_owned() };
    vec![
        match engine.kind {
            Kind::RootlessPodman => enforced("user", "user namespace (--userns=keep-id)"),
            Kind::Docker | Kind::Turnjail | Kind::Podman => Wall {
                name: "user",
                state: WallState::Degraded,
                by: "an ordinary uid of the host, without a user namespace".to_owned(),
            },
        },
        enforced("files", "mount namespace, read-only root (--read-only), private mounts"),
        enforced("processes", "pid namespace"),
        enforced("network", "network namespace with a loopback alone (--network none)"),
        enforced("ipc", "IPC namespace"),
        enforced("host name", "UTS namespace"),
        enforced("privileges", "--cap-drop ALL, no-new-privileges"),
        if engine.seccomp {
            enforced("system calls", "seccomp, the engine's default list")
        } else {
            absent("system calls", "the engine applies no seccomp filter")
        },
        absent("file access", "landlock is not used by container engines"),
    ]
}

fn limits(spec: &ContainerSpec, engine: &Engine) -> Vec<Limit> {
    let limit =
        |name, asked: String, by: Option<&str>| Limit { name, asked, by: by.map(str::to_owned) };
    let (asked, enforces) = (&spec.limits, engine.enforces);
    let cgroup = match engine.kind {
        // Which it is each run says on standard error.
        Kind::Turnjail => "a cgroup or turnjail's fallback",
        _ => "cgroup",
    };
    let memory = if engine.kind == Kind::Turnjail {
        cgroup
    } else if enforces.swap {
        "cgroup, no swap"
    } else {
        "cgroup, without the swap limit"
    };
    // Which turnjail has only with a cgroup, and it is not known here whether there is one.
    let cpus = enforces.cpus && engine.kind != Kind::Turnjail;
    vec![
        limit("memory", format!("{} MiB", asked.memory_mb), enforces.memory.then_some(memory)),
        limit("processes", asked.pids.to_string(), enforces.pids.then_some(cgroup)),
        limit("cpu share", asked.cpus.to_string(), cpus.then_some(cgroup)),
        limit("wall time", format!("{} ms", asked.time_ms), Some("the runtime's deadline")),
        limit("/tmp", "64 MiB".to_owned(), Some("tmpfs size")),
        limit("open files", "256".to_owned(), Some("RLIMIT_NOFILE")),
        limit("output", format!("{STDOUT_BYTES} bytes"), Some("the host's reader")),
        limit("errors", format!("{STDERR_BYTES} bytes"), Some("the host's reader")),
    ]
}

/// The record of a run.
pub(crate) fn receipt(
    spec: &ContainerSpec,
    engine: &Engine,
    image_digest: Option<String>,
    verdict: &Verdict,
    timing: Timing,
) -> Receipt {
    Receipt {
        driver: NAME,
        image: spec.image.clone(),
        image_digest,
        profile: None,
        loopback: (engine.kind != Kind::Turnjail).then_some(true),
        walls: walls(engine),
        limits: limits(spec, engine),
        exit: verdict.reason,
        timing,
        // The container is gone with its counters when its client ends (--rm).
        usage: Usage::default(),
    }
}
