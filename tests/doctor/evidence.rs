//! Hosts that this one cannot be made into: files of theirs laid out below a directory.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use turnjail_jail::causes::evidence::Evidence;
use turnjail_jail::doctor::{Check, State, host, places};
use turnjail_jail::stage;
use turnjail_warden::step::Step;
use turnjail_warden::wire::Failure;

use super::Test;
use crate::tests;

pub const TESTS: &[Test] = tests![&[];
    user_namespaces_switched_off_by_each_distribution,
    apparmor_that_takes_capabilities_away,
    labels_that_deny,
    kernels_without_user_namespaces,
    eperm_without_any_evidence_is_a_chroot_and_says_most_likely,
    root_without_the_capability_to_map_its_id,
    a_jail_of_its_own_is_told_from_others,
    containers_are_told_apart_by_their_marks,
    mounts_that_are_refused,
    cgroups_of_each_kind,
    old_kernels_and_what_they_lose,
    an_emulated_root,
    groups_that_amount_to_root,
    a_tracer,
    zombies_that_nobody_waits_for,
    limits_that_will_be_in_the_way,
    directories_on_foreign_file_systems,
    programs_that_may_not_be_in_memory,
];

/// A host made of files.
struct Host {
    root: TempDir,
    evidence: Evidence,
}

impl Host {
    fn new(release: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        let evidence = Evidence::below(root.path());
        let host = Self { root, evidence };
        host.file("/etc/os-release", release)
            .file("/proc/sys/kernel/osrelease", "6.8.0-45-generic\n")
            .file("/proc/version", "Linux version 6.8.0 (builder@host) #1 SMP\n")
            .file("/proc/self/status", "Uid:\t1000\t1000\t1000\t1000\nGid:\t1000\t1000\t1000\t1000\nSeccomp:\t0\nTracerPid:\t0\nGroups:\t1000\n")
            .file("/proc/self/uid_map", "0 0 4294967295\n")
            .file("/proc/self/gid_map", "0 0 4294967295\n")
            .file("/proc/self/ns/user", "")
            .file("/proc/self/mountinfo", "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n")
    }

    fn file(self, path: &str, text: &str) -> Self {
        let path = self.root.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    fn variable(mut self, name: &str, value: &str) -> Self {
        self.evidence = self.evidence.with_variable(name, value);
        self
    }

    /// Asserts what a failure of this step means here.
    fn means(&self, step: Step, errno: i32, code: &str, remedy: &str) -> &Self {
        let failure = Failure { step, index: 0, errno };
        let advice = stage::advice(failure, &self.evidence).expect("a cause");
        assert_eq!(advice.code, code, "{advice:?}");
        assert!(advice.remedy.contains(remedy), "{advice:?}");
        self
    }

    fn checks(&self) -> Vec<Check> {
        host::checks(&self.evidence)
    }

    /// Asserts that doctor finds this.
    fn finds(&self, code: &str, state: State, evidence: &str) -> &Self {
        let checks = self.checks();
        let found = checks.iter().find(|check| check.code == code);
        let check = found.unwrap_or_else(|| panic!("nothing has the code {code}: {checks:?}"));
        assert_eq!(check.state, state, "{check:?}");
        assert!(check.evidence.contains(evidence), "{check:?}");
        assert!(check.remedy.as_ref().is_some_and(|remedy| !remedy.is_empty()), "{check:?}");
        self
    }
}

const DEBIAN: &str = "ID=debian\nVERSION_ID=\"10\"\n";
const UBUNTU: &str = "ID=ubuntu\nID_LIKE=debian\nVERSION_ID=\"24.04\"\n";

fn user_namespaces_switched_off_by_each_distribution() {
    let off = "/proc/sys/kernel/unprivileged_userns_clone";
    for (release, remedy) in [
        (DEBIAN, "kernel.unprivileged_userns_clone=1 | sudo tee -a /etc/sysctl.d"),
        ("ID=arch\n", "kernel.unprivileged_userns_clone=1"),
        ("ID=nixos\n", "security.unprivilegedUsernsClone = true"),
    ] {
        let host = Host::new(release).file(off, "0\n");
        host.means(Step::WardenNamespaces, libc::EPERM, "userns-sysctl", remedy);
    }
    // Where it is 1, or is not there at all, it is not the cause and not the remedy.
    for host in [Host::new(DEBIAN).file(off, "1\n"), Host::new("ID=fedora\n")] {
        let failure = Failure { step: Step::WardenNamespaces, index: 0, errno: libc::EPERM };
        let advice = stage::advice(failure, &host.evidence).unwrap();
        assert!(!format!("{advice:?}").contains("unprivileged_userns_clone"), "{advice:?}");
    }
    for (release, limit, remedy) in [
        ("ID=\"rhel\"\n", "max_user_namespaces", "echo user.max_user_namespaces=15000"),
        ("ID=nixos\n", "max_user_namespaces", "security.allowUserNamespaces"),
        ("ID=alpine\n", "max_net_namespaces", "user.max_net_namespaces=15000"),
    ] {
        let host = Host::new(release).file(&format!("/proc/sys/user/{limit}"), "0\n");
        host.means(Step::JailNamespaces, libc::ENOSPC, "namespace-limit", remedy);
        host.finds("namespace-limit", State::Failed, limit);
    }
}

fn apparmor_that_takes_capabilities_away() {
    let host = Host::new(UBUNTU)
        .file("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n")
        .file("/proc/self/attr/current", "unconfined\n");
    for (step, errno) in [
        (Step::UidMap, libc::EACCES),
        (Step::SetGroups, libc::EPERM),
        (Step::Propagation, libc::EACCES),
    ] {
        host.means(step, errno, "apparmor-userns", "profile turnjail /usr/local/bin/turnjail");
        host.means(step, errno, "apparmor-userns", "apparmor_parser -r");
        host.means(step, errno, "apparmor-userns", "restrict_unprivileged_userns=0");
    }
    let nested =
        Host::new(UBUNTU).file("/proc/self/attr/current", "bwrap//&unpriv_bwrap (enforce)\n");
    nested.means(Step::UidMap, libc::EPERM, "nested-bubblewrap", "outside of that sandbox");
}

fn labels_that_deny() {
    let fedora = Host::new("ID=fedora\n")
        .file("/sys/fs/selinux/enforce", "1")
        .file("/proc/self/attr/current", "system_u:system_r:container_t:s0:c1,c2\0");
    fedora.means(Step::WardenNamespaces, libc::EACCES, "lsm-userns", "SELinux policy");
    fedora.means(Step::Propagation, libc::EACCES, "lsm-mount", "mount");
    let snap = Host::new(UBUNTU)
        .file("/proc/self/attr/current", "snap.code.code (enforce)\n")
        .variable("SNAP", "/snap/code/1");
    snap.means(Step::WardenNamespaces, libc::EACCES, "lsm-userns", "outside of the snap");
    let docker = Host::new(UBUNTU)
        .file("/.dockerenv", "")
        .file("/proc/self/attr/current", "docker-default (enforce)\n");
    // Both at once: fixing one shows the other.
    docker.means(Step::Propagation, libc::EACCES, "lsm-mount", "apparmor=unconfined");
    docker.means(Step::Propagation, libc::EACCES, "lsm-mount", "seccomp=");
}

fn kernels_without_user_namespaces() {
    let host = Host::new("ID=void\n");
    fs::remove_file(host.root.path().join("proc/self/ns/user")).unwrap();
    host.means(Step::WardenNamespaces, libc::EINVAL, "no-userns", "CONFIG_USER_NS");
    let wsl = "Linux version 4.4.0-19041-Microsoft (Microsoft@Microsoft.com) #1 Fri\n";
    let wsl = Host::new(UBUNTU).file("/proc/version", wsl);
    wsl.means(Step::WardenNamespaces, libc::EINVAL, "wsl1", "--set-version");
    wsl.finds("wsl1", State::Failed, "version 1");
    let second = "Linux version 6.6.36.6-microsoft-standard-WSL2 (root@x) #1 SMP\n";
    let second = Host::new(UBUNTU).file("/proc/version", second);
    assert!(second.checks().iter().all(|check| check.state == State::Ok), "{:?}", second.checks());
}

fn eperm_without_any_evidence_is_a_chroot_and_says_most_likely() {
    let host = Host::new(DEBIAN);
    host.means(Step::WardenNamespaces, libc::EPERM, "chroot", "outside the chroot");
    let unmapped = Host::new(DEBIAN).file("/proc/self/uid_map", "0 1000 1\n");
    unmapped.means(Step::WardenNamespaces, libc::EPERM, "unmapped-id", "maps");
    let mut filtered = Host::new(DEBIAN);
    filtered.evidence = filtered.evidence.with_filtered_unshare(nix::errno::Errno::EPERM);
    filtered.means(Step::WardenNamespaces, libc::EPERM, "outer-seccomp", "seccomp");
    filtered.means(Step::WardenNamespaces, libc::ENOSYS, "outer-seccomp", "seccomp");
}

fn root_without_the_capability_to_map_its_id() {
    let root = |held: &str| {
        let status = format!("Uid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nSeccomp:\t0\nCapEff:\t{held}\n");
        Host::new(DEBIAN).file("/proc/self/status", &status)
    };
    root("00000000000000c0").means(Step::UidMap, libc::EPERM, "setfcap", "ordinary user");
    root("00000000a80425fb").means(Step::UidMap, libc::EPERM, "id-maps", "ordinary user");
    root("000001ffffffffff").means(Step::UidMap, libc::EPERM, "id-maps", "ordinary user");
}

fn a_jail_of_its_own_is_told_from_others() {
    let mounts = "20 1 0:1 / / ro,nosuid,nodev - ext4 /dev/sda1 rw\n\
                  21 20 0:2 / /broker ro,nosuid,nodev,noexec - tmpfs x rw\n\
                  22 20 0:3 / /workspace rw,nosuid,nodev - ext4 /dev/sda1 rw\n\
                  23 20 0:4 / /proc ro,nosuid,nodev,noexec - proc proc rw,subset=pid\n";
    let jail = Host::new(DEBIAN).file("/proc/self/mountinfo", mounts);
    fs::remove_dir_all(jail.root.path().join("proc/sys")).unwrap();
    jail.means(Step::WardenNamespaces, libc::EPERM, "nested-turnjail", "outside of that jail");
    // Where the program sees settings of the kernel it is another's.
    let other = Host::new(DEBIAN).file("/proc/self/mountinfo", mounts);
    other.means(Step::WardenNamespaces, libc::EPERM, "chroot", "outside the chroot");
}

fn containers_are_told_apart_by_their_marks() {
    let filtered = |host: Host, remedy: &str, name: &str| {
        let evidence = host.evidence.clone().with_filtered_unshare(nix::errno::Errno::EPERM);
        let host = Host { evidence, ..host };
        host.means(Step::WardenNamespaces, libc::EPERM, "outer-seccomp", remedy);
        let checks = host.checks();
        assert!(checks.iter().any(|check| check.evidence.contains(name)), "{name}: {checks:?}");
    };
    let new = || Host::new(DEBIAN);
    filtered(new().file("/.dockerenv", ""), "docker run --security-opt seccomp=", "Docker");
    filtered(new().file("/run/.containerenv", ""), "unmask=ALL", "podman");
    let pod = new().variable("KUBERNETES_SERVICE_HOST", "10.0.0.1").file("/.dockerenv", "");
    filtered(pod, "procMount: Unmasked", "Kubernetes");
    filtered(new().variable("container", "lxc"), "security.nesting true", "LXC");
    let nspawn = new().file("/run/systemd/container", "systemd-nspawn\n");
    filtered(nspawn, "--system-call-filter=", "nspawn");
    filtered(new().file("/.flatpak-info", ""), "flatpak-spawn --host", "Flatpak");
    let unit = new()
        .variable("INVOCATION_ID", "1")
        .file("/proc/self/status", "Uid:\t1\t1\nGid:\t1\t1\nSeccomp:\t2\n");
    filtered(unit, "RestrictNamespaces=", "systemd unit");
}

fn mounts_that_are_refused() {
    let host = Host::new("ID=fedora\n");
    host.means(Step::CopyTree, libc::ENOSPC, "mount-limit", "fs.mount-max=");
    host.means(Step::Tmp, libc::ENOSPC, "mount-limit", "fs.mount-max=");
    host.means(Step::CopyTree, libc::EINVAL, "mount-below", "unmount what is below");
    host.means(Step::Watch, libc::ENOSPC, "watch-limit", "fs.epoll.max_user_watches=");
    host.means(Step::CopyTree, libc::EMFILE, "open-files", "ulimit -n");
    host.means(Step::PivotRoot, libc::EINVAL, "pivot-root", "switch_root");
    host.means(Step::Propagation, libc::EINVAL, "chroot", "outside the chroot");
    host.means(Step::Propagation, libc::EPERM, "outer-sandbox", "mount");
    host.means(Step::TreeFlags, libc::ENOSYS, "old-kernel", "5.10");
    host.means(Step::TreeFlags, libc::EPERM, "mount-denied", "outside of other sandboxes");
    host.means(Step::UidMap, libc::EROFS, "proc-read-only", "writable /proc");
    host.means(Step::UidMap, libc::ENOENT, "no-proc", "mount -t proc");
    host.means(Step::UidMap, libc::EACCES, "outer-sandbox", "outside of that sandbox");
    host.means(Step::Landlock, libc::E2BIG, "landlock-failed", "landlock");
    let line = "30 22 0:5 / /x rw - tmpfs x rw\n".repeat(60_000);
    let full = Host::new("ID=fedora\n")
        .file("/proc/sys/fs/mount-max", "100000\n")
        .file("/proc/self/mountinfo", &line);
    full.finds("mount-limit", State::Degraded, "60000 of 100000");
}

fn cgroups_of_each_kind() {
    let root = "22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n";
    let limits = |host: &Host, remedy: &str, evidence: &str| {
        let check = host::cgroup(&host.evidence);
        assert_eq!((check.code, check.state), ("no-cgroup", State::Degraded));
        assert!(check.evidence.contains(evidence), "{check:?}");
        assert!(check.remedy.as_ref().unwrap().contains(remedy), "{check:?}");
    };
    let mounts = |kinds: &str| Host::new(UBUNTU).file("/proc/self/mountinfo", kinds);
    limits(&mounts(root), "mount -t cgroup2", "no cgroup file system");
    let first = format!("{root}30 22 0:9 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
    limits(&mounts(&first), "unified_cgroup_hierarchy=1", "version 1 only");
    limits(&mounts(&first), "update-grub", "version 1 only");
    let hybrid = format!("{first}31 22 0:8 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
    limits(&mounts(&hybrid), "unified_cgroup_hierarchy=1", "an empty version 2");
    let second = format!("{root}31 22 0:8 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    let cron = mounts(&second).file("/proc/self/cgroup", "0::/system.slice/cron.service\n");
    limits(&cron.variable("USER", "alice"), "loginctl enable-linger alice", "no systemd manager");
    let session = "/user.slice/user-1000.slice/session-3.scope";
    let ssh = mounts(&second)
        .file("/proc/self/cgroup", &format!("0::{session}\n"))
        .file("/run/user/1000/bus", "");
    limits(&ssh, "systemd-run --user", "no cgroup is delegated");
    let managed = "/user.slice/user-1000.slice/user@1000.service/app.slice/x.scope";
    let managed = mounts(&second)
        .file("/proc/self/cgroup", &format!("0::{managed}\n"))
        .file(&format!("/sys/fs/cgroup{managed}/cgroup.controllers"), "memory pids\n")
        .file("/run/user/1000/bus", "");
    limits(&managed, "Delegate=cpu memory pids", "memory pids only");
    // The directory of such files is not there by itself.
    limits(&managed, "sudo mkdir -p /etc/systemd/system/user@.service.d && ", "memory pids only");
}

fn old_kernels_and_what_they_lose() {
    let kernel = |release: &str| Host::new(DEBIAN).file("/proc/sys/kernel/osrelease", release);
    kernel("4.19.0-27-amd64\n").finds("old-kernel", State::Degraded, "4.19");
    kernel("5.10.0-32-amd64\n").finds("old-kernel-processes", State::Degraded, "5.10");
    let new = kernel("6.1.0-25-amd64\n").checks();
    assert!(new.iter().all(|check| check.state == State::Ok), "{new:?}");
    let gvisor = "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016\n";
    Host::new(DEBIAN).file("/proc/version", gvisor).finds("gvisor", State::Degraded, "gVisor");
}

fn an_emulated_root() {
    let termux = Host::new("").variable("ANDROID_ROOT", "/system");
    termux.finds("emulated-root", State::Degraded, "Termux");
    Host::new("").variable("PROOT_TMP_DIR", "/tmp").finds(
        "emulated-root",
        State::Degraded,
        "proot",
    );
}

fn groups_that_amount_to_root() {
    let host = Host::new(DEBIAN)
        .file("/etc/group", "root:x:0:\ndocker:x:998:alice\nusers:x:100:\n")
        .file("/proc/self/status", "Uid:\t1000\nGroups:\t100 998\n");
    let check = host::groups(&host.evidence);
    assert_eq!((check.code, check.state), ("groups", State::Degraded));
    assert!(check.evidence.contains("docker") && !check.evidence.contains("users"), "{check:?}");
    assert_eq!(host::groups(&Host::new(DEBIAN).evidence).state, State::Ok);
}

fn a_tracer() {
    let status = "Uid:\t1000\t1000\nTracerPid:\t77\n";
    Host::new(DEBIAN).file("/proc/self/status", status).finds("traced", State::Degraded, "77");
}

fn zombies_that_nobody_waits_for() {
    let with = |count: u32| {
        let status = "State:\tZ (zombie)\nPPid:\t1\nUid:\t1000\t1000\t1000\t1000\n";
        (100..100 + count)
            .fold(Host::new(DEBIAN), |host, pid| host.file(&format!("/proc/{pid}/status"), status))
    };
    with(30).finds("zombies", State::Degraded, "30 dead processes");
    assert!(with(3).checks().iter().all(|check| check.code != "zombies"));
}

fn limits_that_will_be_in_the_way() {
    let limits = |line: &str| Host::new(DEBIAN).file("/proc/self/limits", line);
    limits("Max open files            256                  512                  files\n").finds(
        "open-files",
        State::Degraded,
        "512",
    );
    limits("Max file size             65536                65536                bytes\n").finds(
        "file-size",
        State::Degraded,
        "65536",
    );
    limits("Max processes             20                   20                   processes\n")
        .finds("process-limit", State::Degraded, "20");
    limits("Max address space         1048576              unlimited            bytes\n").finds(
        "address-space",
        State::Degraded,
        "1048576",
    );
    Host::new(DEBIAN).file("/proc/sys/user/max_user_namespaces", "12\n").finds(
        "namespace-limit",
        State::Degraded,
        "12",
    );
}

fn directories_on_foreign_file_systems() {
    let host = Host::new(DEBIAN)
        .file("/home/alice/x", "")
        .file("/mnt/c/x", "")
        .file("/opt/store/x", "")
        .file(
            "/proc/self/mountinfo",
            "22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n\
             23 22 0:5 / /home rw,nosuid - nfs4 server:/home rw\n\
             24 22 0:6 / /mnt/c rw - 9p C: rw\n\
             25 22 0:7 / /opt/store rw,noexec,nodev - ext4 /dev/sdb1 rw\n",
        );
    let place = |name, path: &str| {
        places::checks(&host.evidence, &[(name, PathBuf::from(path))]).into_iter().next()
    };
    let check = |name, path: &str| place(name, path).expect("something is wrong");
    let home = check("workspaces", "/home/alice/not/yet");
    assert_eq!((home.code, home.state), ("file-system", State::Degraded));
    assert!(home.evidence.contains("nfs4"), "{home:?}");
    assert_eq!(check("run directories", "/mnt/c/run").code, "file-system");
    let store = check(places::STORE, "/opt/store/images");
    assert_eq!(store.code, "noexec");
    assert!(store.remedy.as_ref().unwrap().contains("remount,exec /opt/store"), "{store:?}");
    // In a workspace a general image may have its programs; elsewhere none is started.
    let workspace = check(places::WORKSPACES, "/opt/store/w");
    assert_eq!((workspace.code, workspace.state), ("noexec-workspace", State::Degraded));
    assert_eq!(place("run directories", "/opt/store/run"), None);
    assert_eq!(place(places::WORKSPACES, "/srv"), None);
}

fn programs_that_may_not_be_in_memory() {
    // The table's own words; the errno comes with a start.
    let host = Host::new("ID=fedora\n").file("/proc/sys/vm/memfd_noexec", "2\n");
    assert_eq!(host.evidence.sysctl("vm.memfd_noexec").as_deref(), Some("2"));
    let advice = turnjail_jail::causes::advise(
        &turnjail_jail::causes::table::MEMFD_NOEXEC,
        &host.evidence,
        &[("value", "2")],
    );
    assert_eq!(advice.code, "memfd-noexec");
    assert!(advice.remedy.contains("vm.memfd_noexec=0"), "{advice:?}");
    assert!(host.evidence.mount_of(Path::new("/tmp")).is_some());
}
