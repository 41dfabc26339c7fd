//! What the host process does to itself before anything else: it will hold credentials.

use std::path::Path;

use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::{Gid, Uid, User, getgid, getuid, setgroups, setresgid, setresuid};

use crate::error::{CliError, Exit};

/// The id that stands for every unmapped one; nobody in particular may own files by it.
const OVERFLOW_ID: u32 = 65_534;

/// Other processes of the same user can neither trace this one nor read its memory or environment,
/// and it may open as many files as the hard limit allows.
pub fn protect_this_process() -> Result<(), CliError> {
    prctl::set_dumpable(false).map_err(|errno| {
        CliError::new(
            Exit::CannotJail,
            "dumpable",
            format_args!("this process cannot be protected from others of its user: {errno}"),
            "run turnjail outside of what filters prctl",
        )
    })?;
    // A limit that cannot be raised is one that the runtime checks and speaks of.
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
    Ok(())
}

/// Refuses to go on as root, naming the command.
pub fn refuse_root(command: &str) -> Result<(), CliError> {
    if getuid().is_root() || nix::unistd::geteuid().is_root() {
        return Err(CliError::new(
            Exit::Usage,
            "root",
            format_args!("turnjail {command} does not run as root"),
            "run it as an ordinary user; only `turnjail demo` drops root by itself",
        ));
    }
    Ok(())
}

/// The name of the user that runs this process, or the number of an unknown one.
pub fn user_name() -> String {
    let uid = getuid();
    match User::from_uid(uid) {
        Ok(Some(user)) => user.name,
        _ => uid.to_string(),
    }
}

/// Whom root became.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// The user id: not 0, not the overflow id.
    pub uid: u32,
    /// The group id, likewise.
    pub gid: u32,
    /// Why this one, for people.
    pub because: String,
}

/// Becomes an ordinary user for good if this process is root; none if it is not. To be called while
/// there is one thread, since the ids of the others would stay.
pub fn drop_root() -> Result<Option<Account>, CliError> {
    if !getuid().is_root() && !nix::unistd::geteuid().is_root() {
        return Ok(None);
    }
    let sudo = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let accounts = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let account = choose(sudo("SUDO_UID"), sudo("SUDO_GID"), &accounts);
    become_account(&account).map_err(|cause| {
        CliError::new(
            Exit::CannotJail,
            "drop-root",
            format_args!("root cannot become uid {} here: {cause}", account.uid),
            "run `turnjail demo` as an ordinary user",
        )
    })?;
    Ok(Some(account))
}

/// Who started sudo; else the first ordinary account; else the number that such an account would get.
fn choose(sudo_uid: Option<u32>, sudo_gid: Option<u32>, accounts: &str) -> Account {
    let ordinary = |id: u32| id != 0 && id != OVERFLOW_ID && id != u32::MAX;
    if let (Some(uid), Some(gid)) = (sudo_uid, sudo_gid)
        && ordinary(uid)
        && ordinary(gid)
    {
        return Account { uid, gid, because: "who started sudo".to_owned() };
    }
    let first = accounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            let (uid, gid) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
            let account = Account { uid, gid, because: name.to_owned() };
            (ordinary(uid) && ordinary(gid) && (1000..OVERFLOW_ID).contains(&uid))
                .then_some(account)
        })
        .min_by_key(|account| account.uid);
    first.unwrap_or_else(|| Account {
        uid: 1000,
        gid: 1000,
        because: "no ordinary account exists, so one without a name".to_owned(),
    })
}

fn become_account(account: &Account) -> Result<(), String> {
    let (uid, gid) = (Uid::from_raw(account.uid), Gid::from_raw(account.gid));
    let step = |what: &str, errno: nix::Error| format!("{what}: {errno}");
    setgroups(&[]).map_err(|errno| step("setgroups", errno))?;
    setresgid(gid, gid, gid).map_err(|errno| step("setresgid", errno))?;
    setresuid(uid, uid, uid).map_err(|errno| step("setresuid", errno))?;
    // What was root's stays out of reach by name as well.
    nix::unistd::chdir("/").map_err(|errno| step("chdir to /", errno))?;
    // Changing ids makes the kernel forget what it was told about dumping.
    prctl::set_dumpable(false).map_err(|errno| step("prctl", errno))?;
    check_dropped(uid, gid)
}

/// The kernel did what it was told, and there is no way back.
fn check_dropped(uid: Uid, gid: Gid) -> Result<(), String> {
    if getuid() != uid || getgid() != gid {
        return Err("the ids did not change".to_owned());
    }
    if setresuid(Uid::from_raw(0), Uid::from_raw(0), Uid::from_raw(0)).is_ok() {
        return Err("root can be had back".to_owned());
    }
    let status = std::fs::read_to_string(Path::new("/proc/self/status")).unwrap_or_default();
    let kept = status
        .lines()
        .filter(|line| line.starts_with("CapPrm:") || line.starts_with("CapEff:"))
        .any(|line| line.split_whitespace().nth(1).is_some_and(|set| set.contains(|c| c != '0')));
    if kept { Err("capabilities are still there".to_owned()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCOUNTS: &str = "root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n\
        bob:x:1002:1002::/home/bob:/bin/sh\nann:x:1001:100::/home/ann:/bin/sh\n\
        odd:x:1000:0::/:/bin/sh\nbroken\nd:x:20:20::/:/bin/sh\n";

    fn ids(account: &Account) -> (u32, u32) {
        (account.uid, account.gid)
    }

    #[test]
    fn who_started_sudo_comes_first() {
        assert_eq!(ids(&choose(Some(1002), Some(1002), ACCOUNTS)), (1002, 1002));
    }

    #[test]
    fn sudo_by_root_or_nobody_or_in_half_does_not_count() {
        for (uid, gid) in [
            (Some(0), Some(0)),
            (Some(1002), Some(0)),
            (Some(65_534), Some(65_534)),
            (Some(u32::MAX), Some(5)),
            (Some(1002), None),
            (None, Some(1002)),
        ] {
            assert_eq!(ids(&choose(uid, gid, ACCOUNTS)), (1001, 100), "{uid:?} {gid:?}");
        }
    }

    #[test]
    fn without_ordinary_accounts_a_number_is_taken() {
        assert_eq!(ids(&choose(None, None, "root:x:0:0::/root:/bin/sh\n")), (1000, 1000));
        assert_eq!(ids(&choose(None, None, "")), (1000, 1000));
    }

    #[test]
    fn as_many_files_as_allowed_and_not_dumpable() {
        protect_this_process().unwrap();
        assert!(!prctl::get_dumpable().unwrap());
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert_eq!(soft, hard);
    }
}
