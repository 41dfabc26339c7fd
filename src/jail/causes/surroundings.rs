//! What turnjail runs inside of, as far as that shows, and what it takes to nest there.

use std::path::Path;

use super::evidence::Evidence;

/// What turnjail runs inside of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A jail of turnjail's own.
    Jail,
    /// Docker, or another engine that leaves its mark.
    Docker,
    /// podman.
    Podman,
    /// A pod of Kubernetes.
    Kubernetes,
    /// LXC, Incus or Proxmox.
    Lxc,
    /// systemd-nspawn.
    Nspawn,
    /// The sandbox of a Flatpak.
    Flatpak,
    /// The sandbox of a snap.
    Snap,
    /// A service of systemd with a filter.
    Unit,
    /// Nothing that shows.
    Nothing,
}

impl Kind {
    /// By the marks that each leaves. The inner one of several comes first.
    pub fn of(evidence: &Evidence) -> Self {
        let first = evidence.text("/proc/1/cgroup").unwrap_or_default();
        let container = evidence.text("/run/systemd/container").unwrap_or_default();
        let container =
            evidence.variable("container").unwrap_or_else(|| container.trim().to_owned());
        match container.as_str() {
            _ if is_jail(evidence) => Self::Jail,
            _ if evidence.exists("/.flatpak-info") => Self::Flatpak,
            _ if evidence.variable("SNAP").is_some_and(|path| path.starts_with("/snap/")) => {
                Self::Snap
            }
            _ if evidence.variable("KUBERNETES_SERVICE_HOST").is_some()
                || first.contains("kubepods") =>
            {
                Self::Kubernetes
            }
            _ if evidence.exists("/run/.containerenv") => Self::Podman,
            "podman" | "oci" => Self::Podman,
            "lxc" | "lxc-libvirt" => Self::Lxc,
            "systemd-nspawn" => Self::Nspawn,
            _ if evidence.exists("/.dockerenv")
                || first.contains("/docker")
                || first.contains("/containerd") =>
            {
                Self::Docker
            }
            "docker" => Self::Docker,
            _ if first.contains("/lxc") => Self::Lxc,
            _ if evidence.variable("INVOCATION_ID").is_some()
                && evidence.status("Seccomp").is_some_and(|mode| mode == "2") =>
            {
                Self::Unit
            }
            _ => Self::Nothing,
        }
    }

    /// The name for people; none where nothing shows.
    pub fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::Jail => "a jail of turnjail, which forbids nesting",
            Self::Docker => "a container (Docker or its like)",
            Self::Podman => "a podman container",
            Self::Kubernetes => "a Kubernetes pod",
            Self::Lxc => "an LXC container",
            Self::Nspawn => "a systemd-nspawn container",
            Self::Flatpak => "a Flatpak",
            Self::Snap => "a snap",
            Self::Unit => "a systemd unit with a filter",
            Self::Nothing => return None,
        })
    }

    /// What lets jails nest in it. Every wall of the surroundings at once, since fixing one of them only
    /// shows the next.
    pub fn nest(self) -> &'static str {
        match self {
            Self::Jail => {
                "start turnjail outside of that jail: nothing in it can allow another one"
            }
            Self::Docker => {
                "docker run --security-opt seccomp=FILE --security-opt apparmor=unconfined --security-opt systempaths=unconfined, where FILE is Docker's profile with clone, clone3, unshare, setns, mount, umount2, pivot_root, sethostname, open_tree, move_mount and mount_setattr allowed (to try it out: seccomp=unconfined; never --privileged)"
            }
            Self::Podman => {
                "podman run --security-opt seccomp=unconfined --security-opt unmask=ALL --security-opt label=nested (never --privileged)"
            }
            Self::Kubernetes => {
                "in the pod's spec hostUsers: false, and in its securityContext procMount: Unmasked, seccompProfile: {type: Unconfined} (or Localhost), runAsUser other than 0"
            }
            Self::Lxc => {
                "lxc config set NAME security.nesting true and restart it (Proxmox: pct set ID --features nesting=1)"
            }
            Self::Nspawn => {
                "systemd-nspawn --system-call-filter=@mount --system-call-filter=clone3, or run turnjail on the host"
            }
            Self::Flatpak => "use a terminal of the host: flatpak-spawn --host turnjail",
            Self::Snap => "use a terminal outside of the snap",
            Self::Unit => {
                "take RestrictNamespaces=, PrivateUsers=, ProtectProc=, ProtectKernelTunables= and ProtectControlGroups= out of the unit, and allow @mount and clone3 in SystemCallFilter="
            }
            Self::Nothing => {
                "start turnjail outside of what surrounds it, or let that allow clone, clone3, unshare, setns, mount, umount2, pivot_root, sethostname, open_tree, move_mount and mount_setattr (docker: --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined)"
            }
        }
    }
}

/// Whether this is a general image in a jail: a root that may not be written, with the mounts that only
/// jails have, and a /proc that shows nothing but processes.
fn is_jail(evidence: &Evidence) -> bool {
    let mounts = evidence.mounts();
    let has = |place: &str, flag: &str| {
        let mut at = mounts.iter().filter(|mount| mount.place == Path::new(place));
        at.any(|mount| mount.flags.iter().any(|one| one == flag))
    };
    has("/", "ro")
        && has("/broker", "ro")
        && has("/workspace", "nosuid")
        && has("/proc", "ro")
        && !evidence.exists("/proc/sys")
}

/// Under what the root or the kernel is only emulated; none when it is not.
pub fn emulated(evidence: &Evidence) -> Option<&'static str> {
    if evidence.variable("PROOT_TMP_DIR").is_some() || evidence.variable("PROOT_L2S_DIR").is_some()
    {
        return Some("proot");
    }
    evidence.variable("ANDROID_ROOT").map(|_| "Android (Termux)")
}

/// Whether this is WSL version 1: an explicit number beats the maker's name.
pub fn is_wsl1(evidence: &Evidence) -> bool {
    let version = evidence.text("/proc/version").unwrap_or_default();
    !version.contains("WSL2") && version.contains("Microsoft@Microsoft.com")
}

/// Whether the kernel is gVisor's.
pub fn is_gvisor(evidence: &Evidence) -> bool {
    evidence.text("/proc/version").is_some_and(|version| {
        version.contains("gVisor")
            // What it says of itself: a fixed version, built long ago by nobody.
            || version.starts_with("Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016")
    })
}
