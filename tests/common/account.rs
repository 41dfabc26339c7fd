//! An ordinary user to run tests as.

use std::sync::atomic::{AtomicBool, Ordering};

use nix::unistd::{Gid, Uid, getegid, geteuid, setgid, setgroups, setuid};

/// The ids that tests run as: their own, or those that they drop to when started as root, which are those
/// of `sudo`'s caller, else ids that need no account. Never 0 and never the overflow id.
pub fn ordinary() -> (u32, u32) {
    const WITHOUT_ACCOUNT: u32 = 1000;
    if !geteuid().is_root() {
        return (geteuid().as_raw(), getegid().as_raw());
    }
    let id = |name: &str| {
        let value = std::env::var(name).ok()?.parse().ok()?;
        (value != 0 && value != 65534).then_some(value)
    };
    id("SUDO_UID").zip(id("SUDO_GID")).unwrap_or((WITHOUT_ACCOUNT, WITHOUT_ACCOUNT))
}

static WAS_ROOT: AtomicBool = AtomicBool::new(false);

/// Whether this program was started as root.
pub(crate) fn was_root() -> bool {
    WAS_ROOT.load(Ordering::Relaxed)
}

/// Becomes an ordinary user, for good. Called before any thread exists.
pub(crate) fn leave_root() {
    if !geteuid().is_root() {
        return;
    }
    WAS_ROOT.store(true, Ordering::Relaxed);
    let (uid, gid) = ordinary();
    crate::general::give_cache(uid, gid);
    setgroups(&[]).expect("root can clear its groups");
    setgid(Gid::from_raw(gid)).expect("root can change its group");
    setuid(Uid::from_raw(uid)).expect("root can change its user");
    // What root's session pointed at is not this user's.
    std::env::set_current_dir("/").expect("the root directory");
    eprintln!("started as root: the tests run as uid {uid}, gid {gid}");
}
