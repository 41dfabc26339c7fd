//! Outer seccomp filters, as containers, units and sandboxes have them, and a program started under one.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::OnceLock;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};
use tempfile::TempDir;

/// The word that has this program start another.
const UNDER: &str = "--under-filter";

/// The namespaces among the flags of clone(2).
const NAMESPACES: u64 = 0x7e02_0000;

static HELPER: OnceLock<PathBuf> = OnceLock::new();

/// Puts this program at a place that an ordinary user can reach, for as long as the answer lives.
pub fn install() -> TempDir {
    let directory = tempfile::Builder::new().prefix("turnjail-under-").tempdir_in("/tmp").unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let path = directory.path().join("under");
    fs::copy(std::env::current_exe().unwrap(), &path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    HELPER.set(path).unwrap();
    directory
}

/// Where this program is, for an ordinary user.
pub fn helper() -> &'static Path {
    HELPER.get().unwrap()
}

/// A command that starts `program` under the filters of this name.
pub fn under(name: &str, program: &Path) -> (PathBuf, Vec<OsString>) {
    (helper().to_owned(), vec![UNDER.into(), name.into(), program.into()])
}

/// When this program was started to start another: does that.
pub fn asked() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    (arguments.next()? == UNDER).then_some(())?;
    let name = arguments.next()?.into_string().ok()?;
    let program = arguments.next()?;
    if name == "landlocked" {
        landlocked();
    }
    for filter in named(&name) {
        let program: BpfProgram = filter.try_into().unwrap();
        apply_filter(&program).unwrap();
    }
    let error = Command::new(&program).args(arguments).exec();
    eprintln!("{}: {error}", program.display());
    Some(ExitCode::from(126))
}

/// Filters are stacked: each has one answer, and the most severe of all counts.
fn named(name: &str) -> Vec<SeccompFilter> {
    let eperm = SeccompAction::Errno(libc::EPERM as u32);
    let enosys = SeccompAction::Errno(libc::ENOSYS as u32);
    let mounts = [
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_pivot_root,
        libc::SYS_open_tree,
        libc::SYS_move_mount,
        libc::SYS_mount_setattr,
        libc::SYS_fsopen,
    ];
    let namespaces = [libc::SYS_unshare, libc::SYS_setns];
    let landlock = [
        libc::SYS_landlock_create_ruleset,
        libc::SYS_landlock_add_rule,
        libc::SYS_landlock_restrict_self,
    ];
    match name {
        // Docker's default profile.
        "docker" => vec![
            filter(&namespaces, &eperm),
            filter(&mounts, &eperm),
            clone_with(NAMESPACES, &eperm),
            filter(&[libc::SYS_clone3], &enosys),
        ],
        // The same before its makers knew clone3.
        "old-docker" => vec![
            filter(&namespaces, &eperm),
            filter(&mounts, &eperm),
            clone_with(NAMESPACES, &eperm),
            filter(&[libc::SYS_clone3], &eperm),
        ],
        // A systemd unit with RestrictNamespaces=~net: an unshare without flags passes.
        "unit" => vec![
            clone_with(libc::CLONE_NEWNET as u64, &eperm),
            filter(&[libc::SYS_clone3], &enosys),
        ],
        "mounts" => vec![filter(&mounts, &eperm)],
        "mount-calls" => vec![filter(&mounts[3..6], &enosys)],
        "open_tree" => vec![filter(&mounts[3..4], &enosys)],
        "move_mount" => vec![filter(&mounts[4..5], &enosys)],
        "mount_setattr" => vec![filter(&mounts[5..6], &enosys)],
        "landlock" => vec![filter(&landlock, &enosys)],
        "memfd" => vec![filter(&[libc::SYS_memfd_create], &eperm)],
        "seccomp" => vec![filter(&[libc::SYS_seccomp], &eperm)],
        "limits" => vec![filter(&[libc::SYS_setpriority], &eperm)],
        "killer" => vec![filter(&[libc::SYS_mount], &SeccompAction::KillProcess)],
        "landlocked" => Vec::new(),
        _ => panic!("no filter is called {name}"),
    }
}

fn compiled(rules: BTreeMap<i64, Vec<SeccompRule>>, action: &SeccompAction) -> SeccompFilter {
    let machine = std::env::consts::ARCH.try_into().unwrap();
    SeccompFilter::new(rules, SeccompAction::Allow, action.clone(), machine).unwrap()
}

fn filter(calls: &[i64], action: &SeccompAction) -> SeccompFilter {
    compiled(calls.iter().map(|&call| (call, Vec::new())).collect(), action)
}

/// clone(2) with any of these flags: one rule a flag.
fn clone_with(flags: u64, action: &SeccompAction) -> SeccompFilter {
    let bits = (0..64).map(|bit| 1_u64 << bit).filter(|bit| flags & bit != 0);
    let rule = |bit: u64| {
        let operation = SeccompCmpOp::MaskedEq(bit);
        let condition = SeccompCondition::new(0, SeccompCmpArgLen::Qword, operation, bit).unwrap();
        SeccompRule::new(vec![condition]).unwrap()
    };
    compiled([(libc::SYS_clone, bits.map(rule).collect())].into(), action)
}

/// A landlock domain in which every file may be used as before: what it forbids by being there is mounts.
fn landlocked() {
    use landlock::{
        ABI, Access, AccessFs, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr,
    };
    let all = AccessFs::from_all(ABI::V1);
    let created = Ruleset::default().handle_access(all).unwrap().create().unwrap();
    let rule = PathBeneath::new(PathFd::new("/").unwrap(), all);
    created.add_rule(rule).unwrap().restrict_self().unwrap();
}
