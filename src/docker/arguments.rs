//! From a specification to the arguments of the client, exactly those of the TypeScript system.

use std::ffi::OsString;
use std::path::Path;

use turnjail_driver::ContainerSpec;
use turnjail_protocol::{BROKER_DIR, CHANNEL_PATH, WORKSPACE_PATH};

use crate::Kind;

/// What follows the program's name to run `spec`, which has been [checked](ContainerSpec::check): a
/// comma in a path would otherwise be an option of its mount. Rootless podman gets `--userns=keep-id`
/// in addition, without which a container's uid is another one on the host.
pub fn run_arguments(spec: &ContainerSpec, kind: Kind) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = Vec::new();
    let mut add = |words: &[&str]| arguments.extend(words.iter().map(OsString::from));
    let limits = &spec.limits;
    let memory = format!("{}m", limits.memory_mb);
    add(&["run", "--rm", "--interactive", "--sig-proxy=false", "--log-driver", "none"]);
    add(&["--pull", "never", "--name", &spec.name]);
    add(&["--network", "none", "--read-only", "--cap-drop", "ALL"]);
    add(&["--security-opt", "no-new-privileges:true"]);
    add(&["--user", &format!("{}:{}", spec.uid, spec.gid)]);
    if kind == Kind::RootlessPodman {
        add(&["--userns=keep-id"]);
    }
    // As much swap as memory means no swap.
    add(&["--memory", &memory, "--memory-swap", &memory]);
    add(&["--cpus", &limits.cpus.to_string(), "--pids-limit", &limits.pids.to_string()]);
    add(&["--ulimit", "nofile=256:256"]);
    add(&["--tmpfs", "/tmp:rw,noexec,nosuid,nodev,size=64m,mode=1777"]);
    let mut mount = |source: &Path, target: &str, access: &str| {
        let mut text = OsString::from("type=bind,src=");
        text.push(source);
        text.push(format!(",dst={target}{access},bind-propagation=rprivate"));
        arguments.extend(["--mount".into(), text]);
    };
    mount(&spec.run_dir, BROKER_DIR, ",readonly");
    mount(&spec.workspace_dir, WORKSPACE_PATH, "");
    if let Some(channel) = &spec.channel_dir {
        mount(channel, CHANNEL_PATH, "");
    }
    arguments.extend(["--env".into(), "HOME=/tmp/home".into(), spec.image.clone().into()]);
    arguments
}
