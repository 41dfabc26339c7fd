//! Facts of this host that tell causes of one errno apart. Reading only; an unreadable fact is absent.
//!
//! Everything that is a file is read below a root directory, so that tests can lay out the files of
//! another host.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};

/// Where facts come from.
#[derive(Debug, Clone)]
pub struct Evidence {
    root: PathBuf,
    /// What stands in the place of this process's environment.
    variables: Option<BTreeMap<String, String>>,
    /// What stands in the place of asking the kernel.
    unshare: Option<Result<(), Errno>>,
    program: Option<String>,
}

/// A mount of this mount namespace (proc_pid_mountinfo(5)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountLine {
    /// Where it is.
    pub place: PathBuf,
    /// The directory of the file system that is mounted.
    pub from: PathBuf,
    /// Its flags: `ro`, `nosuid`, `noexec` and the like.
    pub flags: Vec<String>,
    /// The type of its file system.
    pub kind: String,
}

impl Evidence {
    /// This host and this process.
    pub fn here() -> Self {
        Self { root: PathBuf::from("/"), variables: None, unshare: None, program: None }
    }

    /// The files of a host laid out below `root`, with no environment, and a kernel that lets an empty
    /// unshare(2) pass.
    pub fn below(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            variables: Some(BTreeMap::new()),
            unshare: Some(Ok(())),
            program: Some("/usr/local/bin/turnjail".to_owned()),
        }
    }

    /// With a variable in the environment, for files laid out.
    #[must_use]
    pub fn with_variable(mut self, name: &str, value: &str) -> Self {
        let variables = self.variables.get_or_insert_default();
        variables.insert(name.to_owned(), value.to_owned());
        self
    }

    /// With a filter that refuses an empty unshare(2), as container engines' do.
    #[must_use]
    pub fn with_filtered_unshare(mut self, answer: Errno) -> Self {
        self.unshare = Some(Err(answer));
        self
    }

    /// Whether these are the facts of this host, so that it may be asked for more.
    pub fn is_here(&self) -> bool {
        self.variables.is_none()
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The text of a file, by its path on the host.
    pub fn text(&self, path: &str) -> Option<String> {
        let bytes = fs::read(self.path(path)).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Whether there is something at this path of the host.
    pub fn exists(&self, path: &str) -> bool {
        self.path(path).symlink_metadata().is_ok()
    }

    /// The names in a directory.
    pub fn names(&self, path: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(path)) else { return Vec::new() };
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    /// A variable of the environment.
    pub fn variable(&self, name: &str) -> Option<String> {
        match &self.variables {
            Some(variables) => variables.get(name).cloned(),
            None => std::env::var(name).ok(),
        }
    }

    /// The value of a sysctl by its dotted name.
    pub fn sysctl(&self, name: &str) -> Option<String> {
        let text = self.text(&format!("/proc/sys/{}", name.replace('.', "/")))?;
        Some(text.trim().to_owned())
    }

    /// A sysctl that is a number.
    pub fn number(&self, name: &str) -> Option<u64> {
        self.sysctl(name)?.parse().ok()
    }

    /// A field of /proc/self/status.
    pub fn status(&self, name: &str) -> Option<String> {
        let status = self.text("/proc/self/status")?;
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(|value| value.trim().to_owned())
    }

    /// The soft and the hard value of a limit of this process, as /proc/self/limits names it.
    pub fn limit(&self, name: &str) -> Option<(Option<u64>, Option<u64>)> {
        let limits = self.text("/proc/self/limits")?;
        let values = limits.lines().find_map(|line| line.strip_prefix(name))?;
        let mut values = values.split_whitespace().map(|value| value.parse().ok());
        Some((values.next()?, values.next()?))
    }

    /// The kernel's version: major and minor.
    pub fn kernel(&self) -> Option<(u32, u32)> {
        let release = self.sysctl("kernel.osrelease")?;
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().ok());
        Some((numbers.next()??, numbers.next()??))
    }

    /// The mounts that this process sees.
    pub fn mounts(&self) -> Vec<MountLine> {
        let table = self.text("/proc/self/mountinfo").unwrap_or_default();
        table.lines().filter_map(mount_line).collect()
    }

    /// The mount that a path is on: the last one mounted of the longest places that lead to it.
    pub fn mount_of(&self, path: &Path) -> Option<MountLine> {
        let mounts = self.mounts().into_iter().enumerate();
        let leads = mounts.filter(|(_, mount)| path.starts_with(&mount.place));
        let of = leads.max_by_key(|(order, mount)| (mount.place.as_os_str().len(), *order));
        of.map(|(_, mount)| mount)
    }

    /// The answer of an unshare(2) that asks for nothing: it works for everybody, so an error is a
    /// filter's.
    pub fn empty_unshare(&self) -> Option<Errno> {
        self.unshare.unwrap_or_else(|| unshare(CloneFlags::empty())).err()
    }

    /// Whether a seccomp filter stands around this process.
    pub fn is_filtered(&self) -> bool {
        self.status("Seccomp").is_some_and(|mode| mode == "2")
    }

    /// The label that a security module has given this process; none when it is unconfined.
    pub fn label(&self) -> Option<String> {
        let label = self
            .text("/proc/self/attr/current")
            .or_else(|| self.text("/proc/self/attr/apparmor/current"))?;
        let label = label.trim_matches(|c: char| c.is_whitespace() || c == '\0').to_owned();
        (!label.is_empty() && label != "unconfined").then_some(label)
    }

    /// Whether this process's user or group has no id in its own user namespace.
    pub fn is_unmapped(&self) -> bool {
        let covered = |field: &str, map: &str| {
            let ids = self.status(field)?;
            let id: u64 = ids.split_whitespace().nth(1)?.parse().ok()?;
            let map = self.text(map)?;
            Some(map.lines().any(|line| {
                let mut numbers = line.split_whitespace().map(|n| n.parse::<u64>().unwrap_or(0));
                let (first, _, count) = (numbers.next(), numbers.next(), numbers.next());
                first.zip(count).is_some_and(|(first, count)| (first..first + count).contains(&id))
            }))
        };
        covered("Uid", "/proc/self/uid_map") == Some(false)
            || covered("Gid", "/proc/self/gid_map") == Some(false)
    }

    /// Whether this process is root (in its own user namespace) and lacks the capability of this number.
    pub fn is_root_without(&self, capability: u32) -> bool {
        let effective =
            self.status("Uid").and_then(|ids| Some(ids.split_whitespace().nth(1)? == "0"));
        let held = self.status("CapEff").and_then(|set| u64::from_str_radix(&set, 16).ok());
        effective == Some(true) && held.is_some_and(|held| held & (1 << capability) == 0)
    }

    /// The path of the running program, as an AppArmor profile must name it.
    pub fn program(&self) -> String {
        let running = || std::env::current_exe().ok().map(|path| path.display().to_string());
        self.program.clone().or_else(running).unwrap_or_else(|| "turnjail".to_owned())
    }
}

/// A line of mountinfo: number, parent, device, root, place, flags, optional fields, `-`, type, source.
fn mount_line(line: &str) -> Option<MountLine> {
    let (before, after) = line.split_once(" - ")?;
    let fields: Vec<&str> = before.split(' ').collect();
    Some(MountLine {
        from: unescape(fields.get(3)?),
        place: unescape(fields.get(4)?),
        flags: fields.get(5)?.split(',').map(str::to_owned).collect(),
        kind: after.split(' ').next()?.to_owned(),
    })
}

/// Spaces, tabs, newlines and backslashes stand as three octal digits.
fn unescape(text: &str) -> PathBuf {
    use std::os::unix::ffi::OsStringExt as _;
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let octal = tail.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = octal.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match escaped {
            Some(byte) if *first == b'\\' => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_lines_are_taken_apart() {
        let line = "36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 - ext3 /dev/root rw,errors=x";
        let mount = mount_line(line).expect("a mount");
        assert_eq!(mount.place, Path::new("/mnt 2"));
        assert_eq!(mount.from, Path::new("/mnt1"));
        assert_eq!(mount.flags, ["rw", "noatime"]);
        assert_eq!(mount.kind, "ext3");
        assert_eq!(mount_line("garbage"), None);
        assert_eq!(unescape("a\\"), Path::new("a\\"));
        assert_eq!(unescape("\\134x\\999"), Path::new("\\x\\999"));
    }

    #[test]
    fn this_process_has_facts() {
        let here = Evidence::here();
        assert!(here.kernel().is_some_and(|version| version >= (5, 0)));
        assert!(here.status("Pid").is_some_and(|pid| pid == std::process::id().to_string()));
        assert!(!here.is_unmapped());
        assert!(here.limit("Max open files").is_some());
        assert!(here.mount_of(Path::new("/proc/self")).is_some_and(|mount| mount.kind == "proc"));
    }
}
