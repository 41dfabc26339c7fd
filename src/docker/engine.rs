//! Which engine answers, whether a turn may run in it, and what it can enforce.

use serde::Deserialize;
use turnjail_driver::DriverError;

use crate::client::Client;
use crate::fault;

/// Which engine it is, as far as that changes what it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Docker, as root, with the host's own user ids.
    Docker,
    /// turnjail's docker command, which answers as Docker does.
    Turnjail,
    /// Podman as root.
    Podman,
    /// Podman as an ordinary user.
    RootlessPodman,
}

/// What the engine says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Engine {
    pub kind: Kind,
    /// For people: name and version.
    pub shown: String,
    /// Whether its default system call filter is applied.
    pub seccomp: bool,
    /// Whether limits of memory, swap, CPU and processes are enforced.
    pub enforces: Enforces,
}

/// Which limits an engine can enforce on this kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Enforces {
    pub memory: bool,
    pub swap: bool,
    pub cpus: bool,
    pub pids: bool,
}

/// What `info --format '{{json .}}'` answers, of either engine.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Info {
    Podman { host: PodmanHost },
    Docker(DockerInfo),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DockerInfo {
    /// Empty when the client alone has answered.
    server_version: String,
    #[serde(rename = "OSType")]
    os_type: String,
    #[serde(default)]
    driver: String,
    #[serde(default)]
    security_options: Option<Vec<String>>,
    #[serde(default)]
    memory_limit: bool,
    #[serde(default)]
    swap_limit: bool,
    #[serde(default)]
    cpu_cfs_quota: bool,
    #[serde(default)]
    pids_limit: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodmanHost {
    #[serde(default)]
    cgroup_version: String,
    #[serde(default)]
    cgroup_controllers: Option<Vec<String>>,
    #[serde(default)]
    service_is_remote: bool,
    security: PodmanSecurity,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodmanSecurity {
    rootless: bool,
    #[serde(default)]
    seccomp_enabled: bool,
}

impl Engine {
    /// Asks the engine, and refuses one in which a turn cannot run or would not be what it should be.
    pub async fn ask(client: &Client) -> Result<Self, DriverError> {
        let answer = client.ask(&["info", "--format", "{{json .}}"]).await?;
        if let Some(error) = fault::known(&answer.stderr) {
            return Err(error);
        }
        if !answer.ok() {
            return Err(fault::start(
                "docker-unreachable",
                format!("{} info fails: {}", client.shown(), fault::first_line(&answer.stderr)),
                "start the engine, or set docker.host to its socket",
            ));
        }
        Self::parse(&answer.stdout)
    }

    fn parse(json: &[u8]) -> Result<Self, DriverError> {
        match serde_json::from_slice::<Info>(json) {
            Ok(Info::Docker(info)) => Self::of_docker(info),
            Ok(Info::Podman { host }) => Self::of_podman(&host),
            Err(_) => Err(fault::start(
                "docker-answer",
                "what the docker program says of its engine is neither Docker's nor podman's",
                "name Docker's or podman's own program as docker.program",
            )),
        }
    }

    fn of_docker(info: DockerInfo) -> Result<Self, DriverError> {
        let options = info.security_options.unwrap_or_default();
        let has = |name: &str| {
            options
                .iter()
                .any(|option| option.split(',').any(|part| part == format!("name={name}")))
        };
        // An engine can be told to apply no filter, and then still names seccomp.
        let unfiltered = options.iter().any(|option| option == "name=seccomp,profile=unconfined");
        if info.server_version.is_empty() {
            return Err(fault::start(
                "docker-unreachable",
                "the Docker engine does not answer",
                "start it (systemctl start docker), or set docker.host to its socket",
            ));
        }
        if info.os_type != "linux" {
            return Err(fault::policy(
                format!("the Docker engine runs {} containers", info.os_type),
                "use an engine that runs on this Linux host itself",
            ));
        }
        if has("rootless") {
            return Err(fault::policy(
                "this Docker engine is rootless: a container's user is another one on the host and cannot enter a turn's private directories",
                "use an engine that runs as root, rootless podman, or driver = \"jail\", which needs neither",
            ));
        }
        if has("userns") {
            return Err(fault::policy(
                "this Docker engine remaps user ids (userns-remap): a container's user cannot enter a turn's private directories",
                "remove userns-remap from the engine's configuration, or set driver = \"jail\"",
            ));
        }
        // Before SELinux and others it is the one option that every Docker names when it is on.
        let own = info.driver == "turnjail";
        let name = if own { "turnjail" } else { "Docker" };
        Ok(Self {
            kind: if own { Kind::Turnjail } else { Kind::Docker },
            shown: format!("{name} {}", info.server_version),
            seccomp: has("seccomp") && !unfiltered,
            enforces: Enforces {
                memory: info.memory_limit,
                swap: info.swap_limit,
                cpus: info.cpu_cfs_quota,
                pids: info.pids_limit,
            },
        })
    }

    fn of_podman(host: &PodmanHost) -> Result<Self, DriverError> {
        if host.service_is_remote {
            return Err(fault::policy(
                "this podman is a client of a service elsewhere",
                "use podman on this host itself: a turn's directories are mounted from it",
            ));
        }
        let rootless = host.security.rootless;
        let controllers = host.cgroup_controllers.as_deref().unwrap_or_default();
        let has = |name: &str| controllers.iter().any(|controller| controller == name);
        // On cgroups of version 1 podman as root has all of them and rootless podman none.
        let enforced = |name| if host.cgroup_version == "v2" { has(name) } else { !rootless };
        Ok(Self {
            kind: if rootless { Kind::RootlessPodman } else { Kind::Podman },
            shown: if rootless { "rootless podman" } else { "podman" }.to_owned(),
            seccomp: host.security.seccomp_enabled,
            enforces: Enforces {
                memory: enforced("memory"),
                swap: enforced("memory"),
                cpus: enforced("cpu"),
                pids: enforced("pids"),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn docker(options: &str, version: &str) -> Result<Engine, DriverError> {
        let json = format!(
            "{{\"ServerVersion\":\"{version}\",\"OSType\":\"linux\",\"SecurityOptions\":{options},\
             \"MemoryLimit\":true,\"SwapLimit\":false,\"CpuCfsQuota\":true,\"PidsLimit\":true,\"Other\":1}}"
        );
        Engine::parse(json.as_bytes())
    }

    fn podman(rootless: bool, version: &str, controllers: &str) -> Engine {
        let json = format!(
            "{{\"host\":{{\"cgroupVersion\":\"{version}\",\"cgroupControllers\":{controllers},\
             \"security\":{{\"rootless\":{rootless},\"seccompEnabled\":true}}}},\"store\":{{}}}}"
        );
        Engine::parse(json.as_bytes()).expect(&json)
    }

    #[test]
    fn an_engine_as_root_is_taken_with_what_it_can_enforce() {
        let engine =
            docker("[\"name=apparmor\",\"name=seccomp,profile=default\"]", "20.10.24").unwrap();
        assert_eq!((engine.kind, engine.seccomp), (Kind::Docker, true));
        assert_eq!(engine.shown, "Docker 20.10.24");
        let all_but_swap = Enforces { memory: true, swap: false, cpus: true, pids: true };
        assert_eq!(engine.enforces, all_but_swap);
        assert!(!docker("null", "27").unwrap().seccomp);
        assert!(!docker("[\"name=seccomp,profile=unconfined\"]", "27").unwrap().seccomp);
    }

    #[test]
    fn engines_with_other_user_ids_are_refused_with_the_reason() {
        for (option, says) in [("name=rootless", "rootless"), ("name=userns", "remaps user ids")] {
            let options = format!("[\"name=seccomp,profile=builtin\",\"{option}\"]");
            let error = docker(&options, "27.0.1").unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
            assert_eq!(error.code(), "docker-policy");
            assert!(error.remedy().is_some_and(|remedy| remedy.contains("jail")));
        }
    }

    #[test]
    fn a_client_without_an_engine_is_told_apart() {
        assert_eq!(docker("null", "").unwrap_err().code(), "docker-unreachable");
        assert_eq!(Engine::parse(b"{}").unwrap_err().code(), "docker-answer");
        assert_eq!(Engine::parse(b"hello").unwrap_err().code(), "docker-answer");
    }

    #[test]
    fn podman_is_known_by_its_answer_and_so_is_its_root() {
        let engine = podman(true, "v1", "[]");
        assert_eq!(engine.kind, Kind::RootlessPodman);
        assert!(!engine.enforces.memory && !engine.enforces.pids);
        let engine = podman(true, "v2", "[\"memory\",\"pids\"]");
        assert!(engine.enforces.memory && engine.enforces.pids && !engine.enforces.cpus);
        let engine = podman(false, "v1", "null");
        assert_eq!(engine.kind, Kind::Podman);
        assert!(engine.enforces.memory && engine.enforces.cpus);
    }
}
