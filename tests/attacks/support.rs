//! Judging attacks, and looking at a jailed program from outside.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use turnjail_jail::{JailSpec, Profile};
use turnjail_tests::acts::Report;
use turnjail_tests::jails::Bench;
use turnjail_tests::unique_word;

/// `AT_FDCWD`.
pub const HERE: i64 = -100;

/// Both profiles, for what holds under either.
pub const PROFILES: &[Profile] = &[Profile::Sealed, Profile::General];

/// The last act works outside a jail. In a jail it is death by the filter under the sealed profile, and
/// gets `errno` under the general one. The acts before it lead up to it, and work everywhere.
pub fn assert_forbidden(bench: &Bench, profile: Profile, what: &str, errno: i32, acts: &[Value]) {
    assert_control(what, &bench.outside(acts));
    assert_forbidden_inside(bench, profile, what, errno, acts);
}

/// The control outside of a jail worked. One that this kernel does not know at all (an older one than the
/// call, or without a module) shows nothing, and says so; what is refused inside is refused all the same.
pub fn assert_control(what: &str, control: &Report) {
    const ENOSYS: i64 = 38;
    const EPROTONOSUPPORT: i64 = 93;
    if matches!(control.last_error(), Some(ENOSYS | EPROTONOSUPPORT)) {
        eprintln!("no control of {what}: this kernel does not have it");
        return;
    }
    assert!(control.worked(), "{what} fails anyway: {control:?}");
}

/// The same without the control, for acts that have another or can have none.
pub fn assert_forbidden_inside(
    bench: &Bench,
    profile: Profile,
    what: &str,
    errno: i32,
    acts: &[Value],
) {
    let report = bench.acts(profile, acts);
    let refused = match profile {
        Profile::Sealed => report.filtered_at(acts.len() - 1),
        Profile::General => report.last_error() == Some(errno.into()),
    };
    assert!(refused, "{what} under {profile}: {report:?}");
}

/// The acts work outside a jail, and the last gets one of these errors in one, whatever the profile:
/// something else than the filter stands there.
pub fn assert_refused(
    bench: &Bench,
    profile: Profile,
    what: &str,
    errnos: &[i32],
    control: &[Value],
    acts: &[Value],
) {
    let control = bench.outside(control);
    assert!(control.worked(), "{what} fails anyway: {control:?}");
    let report = bench.acts(profile, acts);
    let refused = errnos.iter().any(|&errno| report.last_error() == Some(errno.into()));
    assert!(refused, "{what} under {profile}: {report:?}");
}

/// Runs the acts in a jail, then holds its program while `look` looks at it from outside.
pub fn held<T>(
    bench: &Bench,
    profile: Profile,
    acts: &[Value],
    look: impl FnOnce(&Process) -> T,
) -> (T, Report) {
    let acts: Vec<Value> = acts.iter().cloned().chain([bench.sleep()]).collect();
    held_in(bench, bench.spec_for(profile, &acts), look)
}

/// The same in a jail whose last act is [`Bench::sleep`].
pub fn held_in<T>(
    bench: &Bench,
    mut spec: JailSpec,
    look: impl FnOnce(&Process) -> T,
) -> (T, Report) {
    let word = unique_word("held");
    spec.command.push(json!(["print", word]).to_string());
    thread::scope(|scope| {
        let running = scope.spawn(|| bench.acts_in(&spec, b""));
        let process = Process::asleep(&word);
        let seen = look(&process);
        wake(bench);
        (seen, running.join().expect("the jail ends"))
    })
}

/// Opens the other end of the FIFO that the program waits for.
fn wake(bench: &Bench) {
    let path = bench.path("workspace").join("never");
    let mut options = fs::OpenOptions::new();
    // O_NONBLOCK: an error while nobody waits, instead of waiting too.
    options.write(true).custom_flags(0o4000);
    within("somebody waits", || options.open(&path).ok());
}

/// A jailed process, seen from outside.
pub struct Process {
    /// Its directory in /proc.
    pub dir: PathBuf,
}

impl Process {
    /// The one with this word in its command line, once it sleeps.
    fn asleep(word: &str) -> Self {
        let process = within("the program is found", || Self::find(word));
        let asleep = || process.file("stat").rsplit_once(") ")?.1.starts_with('S').then_some(());
        within("it sleeps", asleep);
        // A pause between two acts looks the same.
        thread::sleep(Duration::from_millis(20));
        within("it sleeps", asleep);
        process
    }

    fn find(word: &str) -> Option<Self> {
        Self::find_by(word, |line| line.starts_with(b"/worker\0"))
    }

    /// The one with this word in its command line, if that is also as demanded.
    pub fn find_by(word: &str, demand: impl Fn(&[u8]) -> bool) -> Option<Self> {
        fs::read_dir("/proc").ok()?.flatten().map(|entry| Self { dir: entry.path() }).find(|one| {
            let line = fs::read(one.dir.join("cmdline")).unwrap_or_default();
            contains(&line, word.as_bytes()) && demand(&line)
        })
    }

    /// Its number on the host.
    pub fn pid(&self) -> i32 {
        self.dir.file_name().and_then(|name| name.to_str()?.parse().ok()).expect("a pid")
    }

    /// This test program.
    pub fn own() -> Self {
        Self { dir: PathBuf::from("/proc/self") }
    }

    /// The text of one of its files.
    pub fn file(&self, name: &str) -> String {
        let path = self.dir.join(name);
        let bytes = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The lines of its `status`, by name.
    pub fn status(&self) -> BTreeMap<String, String> {
        let text = self.file("status");
        let pair =
            |line: &str| line.split_once(':').map(|(n, v)| (n.to_owned(), v.trim().to_owned()));
        text.lines().filter_map(pair).collect()
    }

    /// What a link names, such as `ns/net` or `cwd`.
    pub fn link(&self, name: &str) -> String {
        let path = self.dir.join(name);
        let target = fs::read_link(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        target.to_string_lossy().into_owned()
    }
}

/// Whether `part` is somewhere in `whole`.
pub fn contains(whole: &[u8], part: &[u8]) -> bool {
    whole.windows(part.len()).any(|window| window == part)
}

/// Looks until there is something to be found.
pub fn within<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "not within ten seconds: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}
