//! Which distribution this is, and how one changes a setting there for good.

use super::evidence::Evidence;

/// Distributions that are administered alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Debian, Ubuntu and what is made from them.
    Debian,
    /// Fedora, RHEL, CentOS and their kin.
    Fedora,
    /// Arch and what is made from it.
    Arch,
    /// openSUSE and SLE.
    Suse,
    /// Alpine.
    Alpine,
    /// NixOS.
    Nix,
    /// Any other.
    Other,
}

impl Family {
    /// By the ID and ID_LIKE of os-release(5).
    pub fn of(evidence: &Evidence) -> Self {
        let release = evidence
            .text("/etc/os-release")
            .or_else(|| evidence.text("/usr/lib/os-release"))
            .unwrap_or_default();
        let field = |name: &str| {
            let line = release.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            line.unwrap_or_default().trim_matches(['"', '\'']).to_owned()
        };
        let names = format!("{} {}", field("ID"), field("ID_LIKE"));
        names.split_whitespace().find_map(Self::named).unwrap_or(Self::Other)
    }

    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "debian" | "ubuntu" | "raspbian" | "linuxmint" => Self::Debian,
            "fedora" | "rhel" | "centos" | "rocky" | "almalinux" | "amzn" | "ol" => Self::Fedora,
            "arch" | "manjaro" => Self::Arch,
            "suse" | "opensuse" | "opensuse-leap" | "opensuse-tumbleweed" | "sles" => Self::Suse,
            "alpine" => Self::Alpine,
            "nixos" => Self::Nix,
            _ => return None,
        })
    }

    /// How to set a sysctl, `name=value`, now and for good.
    pub fn sysctl(self, setting: &str) -> String {
        match (self, setting.split_once('=')) {
            (Self::Nix, Some((name, value))) => format!(
                "set boot.kernel.sysctl.\"{name}\" = {value}; in configuration.nix, then sudo nixos-rebuild switch"
            ),
            _ => format!(
                "echo {setting} | sudo tee -a /etc/sysctl.d/60-turnjail.conf && sudo sysctl -p /etc/sysctl.d/60-turnjail.conf"
            ),
        }
    }

    /// How to add an argument to the kernel's command line for good.
    pub fn boot(self, argument: &str) -> String {
        match self {
            Self::Debian => format!(
                "add {argument} to GRUB_CMDLINE_LINUX in /etc/default/grub, then sudo update-grub and reboot"
            ),
            Self::Fedora => {
                format!("sudo grubby --update-kernel=ALL --args={argument}, then reboot")
            }
            Self::Arch => format!(
                "add {argument} to GRUB_CMDLINE_LINUX in /etc/default/grub, then sudo grub-mkconfig -o /boot/grub/grub.cfg and reboot"
            ),
            Self::Suse => format!(
                "add {argument} to GRUB_CMDLINE_LINUX in /etc/default/grub, then sudo grub2-mkconfig -o /boot/grub2/grub.cfg and reboot"
            ),
            Self::Alpine => format!(
                "add {argument} to default_kernel_opts in /etc/update-extlinux.conf, then sudo update-extlinux and reboot"
            ),
            Self::Nix => format!(
                "add \"{argument}\" to boot.kernelParams in configuration.nix, then sudo nixos-rebuild switch and reboot"
            ),
            Self::Other => format!("add {argument} to the kernel's command line and reboot"),
        }
    }
}
