//! The table: what can stand in the way of jails, why, what is lost, and what to do about it.
//!
//! Data only. A text may hold names in braces, which [`super::render`] fills in: `{sysctl NAME=VALUE}`
//! and `{boot ARGUMENT}` become the command of this distribution, `{nest}` what the surrounding
//! container needs, `{program}` this program's path, and whatever else the finder of the cause knows.
//! Of the remedies of a cause the first that fits this host is given. Sources: user_namespaces(7),
//! clone(2), landlock(7), cgroups(7), the kernel's fs/namespace.c, and reports of how rootless tools
//! failed on real hosts.

use super::When::{self, Always, In, On};
use super::distribution::Family::Nix;
use super::surroundings::Kind::{Flatpak, Snap, Unit};

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// No jail can be made.
    Failed,
    /// Jails can be made, and something is lost.
    Degraded,
}

/// What stands in the way.
#[derive(Debug, PartialEq, Eq)]
pub struct Cause {
    /// A stable word, in errors and in `doctor` alike.
    pub code: &'static str,
    /// How bad it is.
    pub verdict: Verdict,
    /// Why something fails or is missing: a template, without the errno.
    pub why: &'static str,
    /// What is lost; of a failed cause that is every turn.
    pub lost: &'static str,
    /// What to do: the first that fits.
    pub remedies: &'static [(When, &'static str)],
}

const EVERY_TURN: &str = "no turn can run";

macro_rules! causes {
    ($($name:ident = $code:literal $verdict:ident ($lost:expr): $why:literal $(=> $when:expr, $remedy:literal)+;)*) => {
        $(
            #[doc = $why]
            pub const $name: Cause = Cause {
                code: $code,
                verdict: Verdict::$verdict,
                why: $why,
                lost: $lost,
                remedies: &[$(($when, $remedy)),+],
            };
        )*

        /// Every cause.
        pub const ALL: &[&Cause] = &[$(&$name),*];
    };
}

causes! {
    // User namespaces.
    USERNS_SYSCTL = "userns-sysctl" Failed(EVERY_TURN):
        "kernel.unprivileged_userns_clone is 0, which forbids user namespaces to ordinary users"
        => On(Nix), "set security.unprivilegedUsernsClone = true; in configuration.nix, then sudo nixos-rebuild switch"
        => Always, "{sysctl kernel.unprivileged_userns_clone=1}";
    LIMIT_ZERO = "namespace-limit" Failed(EVERY_TURN):
        "the limit user.{limit} is 0 (this is not about disk space)"
        => On(Nix), "set security.allowUserNamespaces = true; or boot.kernel.sysctl.\"user.{limit}\" = 15000; in configuration.nix, then sudo nixos-rebuild switch"
        => Always, "{sysctl user.{limit}=15000} (a hardening guide may have set it to 0; inside a container or sandbox its starter must raise it)";
    LIMIT_REACHED = "namespace-limit" Failed(EVERY_TURN):
        "a limit of namespaces is reached (this is not about disk space): too many exist, 32 are nested already, or a sandbox around turnjail forbids nesting"
        => Always, "start turnjail outside of sandboxes that forbid nesting (bubblewrap --disable-userns), end leaked processes that hold namespaces (the first process of a container must reap: docker run --init), or {sysctl user.max_user_namespaces=15000}";
    UNMAPPED = "unmapped-id" Failed(EVERY_TURN):
        "this user or group is not mapped in the surrounding user namespace"
        => Always, "start turnjail as a user and group that the surrounding container maps (unshare --map-current-user maps this one)";
    NO_USERNS = "no-userns" Failed(EVERY_TURN):
        "this kernel has no user namespaces"
        => Always, "use a kernel with CONFIG_USER_NS, or run turnjail in a virtual machine";
    WSL1 = "wsl1" Failed(EVERY_TURN):
        "WSL version 1 has no namespaces"
        => Always, "convert the distribution in PowerShell: wsl --set-version NAME 2";
    CHROOT = "chroot" Failed(EVERY_TURN):
        "the kernel makes no user namespaces in a chroot, which this most likely is"
        => Always, "start turnjail outside the chroot, or in a container with a root of its own";
    PROCESS_LIMIT = "process-limit" Failed(EVERY_TURN):
        "the limit of processes is reached"
        => Always, "raise ulimit -u, or the limit of processes of the surrounding container or unit (docker: --pids-limit, systemd: TasksMax=)";
    OUTER_SECCOMP = "outer-seccomp" Failed(EVERY_TURN):
        "a seccomp filter around turnjail forbids namespaces, as those of container engines do by default"
        => In(Flatpak), "use a terminal of the host: flatpak-spawn --host turnjail"
        => In(Snap), "use a terminal outside of the snap"
        => In(Unit), "let the unit do it: no RestrictNamespaces=, and a SystemCallFilter= that allows @mount, clone3, unshare and setns"
        => Always, "{nest}";
    UNIT_FILTER = "unit-filter" Failed(EVERY_TURN):
        "a seccomp filter lets only some namespaces pass, as RestrictNamespaces= of a systemd unit does"
        => Always, "let the unit make user, mnt, pid, net, ipc, uts and cgroup namespaces: take RestrictNamespaces= out of it";
    LSM_USERNS = "lsm-userns" Failed(EVERY_TURN):
        "a security module denies user namespaces to this program (label {label})"
        => In(Snap), "use a terminal outside of the snap"
        => Always, "start turnjail from an unconfined shell, or add `userns,` to the AppArmor profile (user_namespace create to the SELinux policy) of its label";
    APPARMOR_USERNS = "apparmor-userns" Failed(EVERY_TURN):
        "AppArmor lets the namespace be made and takes its capabilities away (kernel.apparmor_restrict_unprivileged_userns is 1)"
        => Always, "give this program a profile: printf 'abi <abi/4.0>,\\nprofile turnjail {program} flags=(unconfined) { userns, }\\n' | sudo tee /etc/apparmor.d/turnjail && sudo apparmor_parser -r /etc/apparmor.d/turnjail (for every program of the host: {sysctl kernel.apparmor_restrict_unprivileged_userns=0})";
    NESTED_BUBBLEWRAP = "nested-bubblewrap" Failed(EVERY_TURN):
        "this runs inside a bubblewrap sandbox whose AppArmor profile ({label}) forbids nesting"
        => Always, "start turnjail outside of that sandbox";
    NESTED_TURNJAIL = "nested-turnjail" Failed(EVERY_TURN):
        "this runs inside a jail of turnjail's own, which forbids nesting"
        => Always, "start turnjail outside of that jail: nothing in it can allow another one";
    ROOT_UNMAPPABLE = "setfcap" Failed(EVERY_TURN):
        "this is root without CAP_SETFCAP, which may not map its own id (since Linux 5.12)"
        => Always, "start turnjail as an ordinary user: docker run --user 1000 (Kubernetes: runAsUser), or setpriv --reuid 1000 --regid 1000 --clear-groups turnjail";
    PROC_READ_ONLY = "proc-read-only" Failed(EVERY_TURN):
        "/proc is mounted read-only, and ids are mapped through it"
        => Always, "give the surrounding container a writable /proc: {nest}";
    NO_PROC = "no-proc" Failed(EVERY_TURN):
        "/proc is not mounted, and ids are mapped through it"
        => Always, "mount it: sudo mount -t proc proc /proc (bubblewrap: --proc /proc)";
    OUTER_SANDBOX = "outer-sandbox" Failed(EVERY_TURN):
        "a sandbox around turnjail (landlock, or a security module) forbids writing id maps"
        => Always, "start turnjail outside of that sandbox, which may not be nested in";
    ID_MAPS = "id-maps" Failed(EVERY_TURN):
        "the kernel refuses to map even this user's own id"
        => Always, "start turnjail as an ordinary user outside of other sandboxes, from a program without file capabilities";

    // Mounts.
    LSM_MOUNT = "lsm-mount" Failed(EVERY_TURN):
        "a security module around turnjail denies mounts (label {label})"
        => Always, "{nest}";
    OUTER_MOUNT = "outer-sandbox" Failed(EVERY_TURN):
        "a landlock sandbox around turnjail (or another that says so) forbids mounts"
        => Always, "start turnjail outside of that sandbox: a landlocked process may never mount";
    ROOT_NO_MOUNT = "chroot" Failed(EVERY_TURN):
        "the root directory is not a mount point, as in a chroot"
        => Always, "start turnjail outside the chroot, or in a container with a root of its own";
    PIVOT_ROOT = "pivot-root" Failed(EVERY_TURN):
        "the root is the initial ram file system, or a chroot"
        => Always, "boot with a root of its own (switch_root), or start turnjail in a container that has one";
    MOUNT_SOURCE = "mount-source" Failed(EVERY_TURN):
        "a directory that turnjail was to mount is not there or not reachable"
        => Always, "check that the directory exists, is yours, and is not being replaced";
    MOUNT_POINT = "mount-point" Failed("the image cannot be used"):
        "the image has no plain directory at a mount point"
        => Always, "import the image again";
    MOUNT_LIMIT = "mount-limit" Failed(EVERY_TURN):
        "the limit of mounts is reached (this is not about disk space)"
        => Always, "{sysctl fs.mount-max=200000}, and look what leaves its mounts behind";
    MOUNT_BELOW = "mount-below" Failed(EVERY_TURN):
        "something is mounted below that directory, and the older way of mounting cannot take it along"
        => Always, "unmount what is below it, or use Linux 5.12 or newer; in a container: {nest}";
    MOUNT_DEVICES = "mount-devices" Failed(EVERY_TURN):
        "the kernel has no device numbers left for new mounts: something leaks them"
        => Always, "end leaked containers and zombies, or reboot";
    MOUNT_DENIED = "mount-denied" Failed(EVERY_TURN):
        "mounting is forbidden here, or the mount has flags that this user may not drop"
        => Always, "start turnjail outside of other sandboxes: {nest}";
    MOUNT_CALLS = "mount-calls" Degraded("nothing: an older way of mounting was taken instead, a little slower"):
        "the kernel lacks a newer mount call (open_tree, move_mount, mount_setattr), or a filter hides it"
        => Always, "none needed; to have it, use Linux 5.12 or newer; in a container: {nest}";
    TMPFS = "tmpfs" Failed(EVERY_TURN):
        "a tmpfs cannot be mounted"
        => Always, "use a kernel with CONFIG_TMPFS, and look whether a sandbox around turnjail forbids mounts";
    DEVICES = "devices" Failed("general images cannot be used"):
        "the host's /dev lacks null, zero, full, random or urandom, or the image has no /dev directory"
        => Always, "give the surrounding container the usual devices; else import the image again";
    MASKED_PROC = "masked-proc" Degraded("a general image has no /proc; a jail is no weaker"):
        "the surrounding container masks /proc, so no new one can be mounted"
        => Always, "unmask it: {nest}";

    // What a jail is closed with.
    OLD_KERNEL = "old-kernel" Failed(EVERY_TURN):
        "this kernel is too old, or a filter hides its newer calls"
        => Always, "use Linux 5.10 or newer; in a container: {nest}";
    LANDLOCK_FAILED = "landlock-failed" Failed(EVERY_TURN):
        "the kernel has landlock and refuses the ruleset, or 16 rulesets lie around turnjail already"
        => Always, "start turnjail outside of other landlock sandboxes; else report this with the output of turnjail doctor";
    LANDLOCK_OFF = "landlock" Degraded("files are walled off by mounts and seccomp alone"):
        "the kernel has landlock and it is not switched on"
        => Always, "{boot lsm=landlock,{lsm}}";
    LANDLOCK_ABSENT = "landlock" Degraded("files are walled off by mounts and seccomp alone"):
        "the kernel has no landlock, or a filter hides it"
        => Always, "use Linux 6.12 or newer with CONFIG_SECURITY_LANDLOCK; in a container, an engine whose filter lets landlock pass";
    LANDLOCK_OLD = "landlock" Degraded("landlock does not mediate {lacks}"):
        "the kernel's landlock is of ABI {abi}"
        => Always, "use Linux 6.12 or newer";
    SECCOMP = "seccomp" Failed(EVERY_TURN):
        "the kernel refuses the filter"
        => Always, "use a kernel with CONFIG_SECCOMP_FILTER, outside of sandboxes that forbid seccomp(2)";
    MDWE = "mdwe" Degraded("only the seccomp filter keeps a worker from making memory executable"):
        "the kernel has no PR_SET_MDWE, or a filter hides it"
        => Always, "use Linux 6.3 or newer";
    NAMESPACE_LIMITS = "namespace-limits" Degraded("only the seccomp filter forbids namespaces inside a jail"):
        "/proc/sys is read-only, so the limits of namespaces cannot be lowered"
        => Always, "none needed; to have both walls, make /proc/sys writable: {nest}";
    RESOURCE_LIMIT = "resource-limit" Failed(EVERY_TURN):
        "a sandbox around turnjail forbids lowering its own limits"
        => Always, "start turnjail outside of that sandbox";

    // Programs.
    ENTRYPOINT = "entrypoint" Failed("the image cannot be used"):
        "the image has no such program, or its interpreter is missing"
        => Always, "correct the image's Entrypoint";
    EXEC_DENIED = "exec-denied" Failed("the image cannot be used"):
        "the program is not executable, or lies on a file system mounted noexec"
        => Always, "put the image store on a file system that allows exec (directories.images)";
    EXEC_FORMAT = "exec-format" Failed("the image cannot be used"):
        "the program is not for this architecture"
        => Always, "use an image for this machine's architecture";
    EXEC_MEMORY = "exec-memory" Failed(EVERY_TURN):
        "the program does not fit into the memory limit"
        => Always, "raise limits.memory_mb";
    WORKING_DIR = "working-dir" Failed("the image cannot be used"):
        "the image names a working directory that is not a directory in it"
        => Always, "correct the image's WorkingDir";
    MEMFD_NOEXEC = "memfd-noexec" Failed(EVERY_TURN):
        "vm.memfd_noexec is {value}, so no program can be executed from memory, and the warden is"
        => Always, "{sysctl vm.memfd_noexec=0}";
    WARDEN_EXEC = "warden-exec" Failed(EVERY_TURN):
        "the warden is executed from memory through /proc, which a sandbox or policy around turnjail forbids"
        => Always, "mount /proc, allow executing memfds, and start turnjail outside of that sandbox";
    WARDEN_KILLED = "warden-killed" Failed(EVERY_TURN):
        "the warden was killed while it set itself up, as a seccomp filter does that kills instead of refusing"
        => Always, "{nest}";

    // This process and its limits.
    OPEN_FILES = "open-files" Failed(EVERY_TURN):
        "the limit of open files is reached"
        => Always, "raise ulimit -n, or {sysctl fs.file-max=1000000}";
    FEW_FILES = "open-files" Degraded("few turns can run at once"):
        "this process may open {value} files"
        => Always, "raise the hard limit: ulimit -n 65536 (systemd: LimitNOFILE=65536)";
    FILE_TOO_LARGE = "file-size" Failed(EVERY_TURN):
        "this process may not write files as large as its own programs (ulimit -f)"
        => Always, "ulimit -f unlimited (systemd: LimitFSIZE=infinity)";
    WATCHES = "watch-limit" Failed(EVERY_TURN):
        "the limit of epoll watches of this user is reached (this is not about disk space)"
        => Always, "{sysctl fs.epoll.max_user_watches=4000000}, and look which program of this user holds so many";
    SMALL_FILES = "file-size" Degraded("workspaces and the image store cannot hold larger files"):
        "this process may write files of {value} bytes at most (ulimit -f)"
        => Always, "ulimit -f unlimited (systemd: LimitFSIZE=infinity)";
    FEW_PROCESSES = "process-limit" Degraded("a start fails once the user has that many"):
        "this user may have {value} processes and has {used}"
        => Always, "raise ulimit -u (systemd: LimitNPROC=)";
    MEMORY = "memory" Failed(EVERY_TURN):
        "memory is short"
        => Always, "free memory on this host, or raise the limit of the surrounding container";
    ADDRESS_SPACE = "address-space" Degraded("a start fails when it needs more"):
        "this process may use {value} bytes of address space (ulimit -v)"
        => Always, "ulimit -v unlimited (systemd: LimitAS=infinity)";
    DISK_SHORT = "disk-space" Degraded("turns fail once it is full"):
        "{path} has {free} free"
        => Always, "free space or inodes there, or name another directory";
    NOEXEC_HERE = "noexec" Degraded("no image can be started from there"):
        "{path} is on a file system mounted noexec ({mount})"
        => Always, "sudo mount -o remount,exec {mount}, or name another directory for the image store (directories.images, TMPDIR)";
    NOEXEC_WORKSPACE = "noexec-workspace" Degraded("programs in a workspace cannot be executed by general images; the built-in worker executes none"):
        "{path} is on a file system mounted noexec ({mount})"
        => Always, "none needed unless general images execute what they write: sudo mount -o remount,exec {mount}, or name another directory (directories.workspaces)";
    FILE_SYSTEM = "file-system" Degraded("locks, sockets and permissions may not work there"):
        "{path} is on {kind}"
        => Always, "name a directory on a local file system";
    TRACED = "traced" Degraded("who traces this process sees its credentials, and a trace of processes below it can break jails"):
        "process {value} traces this one (strace, gdb or proot)"
        => Always, "start turnjail without it";
    CAPABILITIES = "policy" Failed(EVERY_TURN):
        "this process holds capabilities"
        => Always, "start turnjail without ambient or file capabilities: setpriv --inh-caps=-all --ambient-caps=-all turnjail";
    GROUPS = "groups" Degraded("they stay with a jailed process, which could use group-owned files if one were in view"):
        "this user is in groups that amount to root or to devices: {groups}"
        => Always, "run turnjail as a user outside these groups: sudo useradd --system --create-home turnjail";
    ZOMBIES = "zombies" Degraded("each holds its namespaces, until a limit is reached"):
        "{value} dead processes of this user are not reaped by their parent ({parent})"
        => Always, "give the container a first process that reaps (docker run --init), or end the parent";
    MANY_MOUNTS = "mount-limit" Degraded("jails fail once the limit is reached"):
        "this mount namespace has {value} of {most} mounts"
        => Always, "{sysctl fs.mount-max=200000}, and look what leaves its mounts behind";
    LOW_LIMIT = "namespace-limit" Degraded("so many jails at once are all there can be"):
        "the limit user.{limit} is {value}"
        => Always, "{sysctl user.{limit}=15000}";
    KERNEL_PROCESSES = "old-kernel-processes" Degraded("processes of a jail count with all others of this user, so no limit of them is in force"):
        "before Linux 5.14 a limit of processes counts the whole user"
        => Always, "use Linux 5.14 or newer";
    KERNEL_UNTRIED = "old-kernel" Degraded("turnjail is not tried on it"):
        "this kernel is older than Linux 5.10"
        => Always, "use Linux 5.10 or newer";
    GVISOR = "gvisor" Degraded("the walls are gVisor's own, not Linux's"):
        "the kernel is gVisor"
        => Always, "none needed if the walls below stand";
    EMULATED = "emulated-root" Degraded("namespaces are most likely not to be had"):
        "this runs under {value}"
        => Always, "run turnjail on Linux itself; there is no back end that emulates a root";

    // Limits of whole jails.
    CGROUP_V1 = "no-cgroup" Degraded("memory, processes and CPU time are bounded per process; there is no CPU share"):
        "this host has cgroups of version 1 only, which cannot be delegated safely"
        => Always, "{boot systemd.unified_cgroup_hierarchy=1}";
    CGROUP_HYBRID = "no-cgroup" Degraded("memory, processes and CPU time are bounded per process; there is no CPU share"):
        "the controllers of this host are those of cgroups version 1, with an empty version 2 beside them"
        => Always, "{boot systemd.unified_cgroup_hierarchy=1}";
    CGROUP_ABSENT = "no-cgroup" Degraded("memory, processes and CPU time are bounded per process; there is no CPU share"):
        "no cgroup file system is mounted"
        => Always, "mount it: sudo mount -t cgroup2 none /sys/fs/cgroup";
    CGROUP_NO_MANAGER = "no-cgroup" Degraded("memory, processes and CPU time are bounded per process; there is no CPU share"):
        "no cgroup is delegated to this process, and this user has no systemd manager to ask for one"
        => Always, "sudo loginctl enable-linger {user}, or run turnjail as a service with Delegate=yes (dist/)";
    CGROUP_UNDELEGATED = "no-cgroup" Degraded("memory, processes and CPU time are bounded per process; there is no CPU share"):
        "no cgroup is delegated to this process"
        => Always, "start it with systemd-run --user --scope -p Delegate=yes turnjail, or as a service with Delegate=yes (dist/)";
    CGROUP_CONTROLLERS = "no-cgroup" Degraded("memory, processes and CPU time are bounded per process; there is no CPU share"):
        "the cgroup of this process has the controllers {value} only"
        => Always, "sudo mkdir -p /etc/systemd/system/user@.service.d && printf '[Service]\\nDelegate=cpu memory pids\\n' | sudo tee /etc/systemd/system/user@.service.d/delegate.conf && sudo systemctl daemon-reload, then log in again";

    CGROUP_GONE = "cgroup" Failed(EVERY_TURN):
        "the cgroup that was delegated to turnjail was taken away or changed meanwhile"
        => Always, "restart turnjail in a unit with Delegate=yes, or set limits = \"best-effort\"";

    // Workspaces.
    WORKSPACE_BYTES = "workspace-full" Failed("turns in this workspace"):
        "it holds more than it may"
        => Always, "see `turnjail workspace list`; empty it with `turnjail workspace remove`, or raise jail.workspace_max_mb";
    WORKSPACE_ENTRIES = "workspace-full" Failed("turns in this workspace"):
        "it holds more files than it may"
        => Always, "see `turnjail workspace list`; empty it with `turnjail workspace remove`, or raise jail.workspace_max_mb";
    WORKSPACE_DEPTH = "workspace-full" Failed("turns in this workspace"):
        "its directories lie deeper in each other than can be counted"
        => Always, "empty it with `turnjail workspace remove`";
    DISK_RESERVE = "disk-reserve" Failed(EVERY_TURN):
        "its file system has no more free space than is kept in reserve"
        => Always, "free space there, or lower jail.disk_reserve_mb";
    WORKSPACE_UNREADABLE = "workspace-unreadable" Failed("turns in this workspace"):
        "its file system does not answer"
        => Always, "check the file system of directories.workspaces";

    // Nobody knows.
    POLICY_UNKNOWN = "jail" Failed(EVERY_TURN):
        "a policy of this host that turnjail does not know forbids it"
        => Always, "look for security software of this host (BPF, a security module), and report this with the output of turnjail doctor --json";
}
