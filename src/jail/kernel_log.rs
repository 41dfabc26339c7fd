//! Which system call a filter killed a program for, as the kernel's log says it.
//!
//! A parent is told the signal alone. The kernel writes a record of the kill with the number of the call to
//! its log, which few may read, and to nowhere else where an audit daemon takes such records. So this is
//! asked for after a kill, and what is not found, or not beyond doubt, is not said.

use std::fs::{self, File};
use std::io::{ErrorKind, Read as _};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::OFlags;
use turnjail_warden::seccomp::machine::Machine;
use turnjail_warden::seccomp::numbers::Call;

use crate::pidfd;

/// How much of the log is read; the usual sizes of its buffer hold a fraction of that.
const RECORDS: usize = 16_384;

/// No record is longer.
const RECORD_BYTES: usize = 8192;

/// A thread of the kernel's writes the records, soon after the kill.
const WAITS: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(2), Duration::from_millis(8), Duration::from_millis(40)];

/// Records have the time of the last tick.
const TICKS: Duration = Duration::from_millis(50);

/// SECCOMP_RET_KILL_PROCESS, what our filters do.
const KILL_PROCESS: u32 = 0x8000_0000;

/// A process that a filter may kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Suspect {
    /// Its number in the first pid namespace, by which the log names it.
    pid: i32,
    /// Since the epoch. Numbers are used again: older records are about others.
    since: Duration,
}

/// What records say of a process.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Nothing,
    /// It was killed for the call with this number.
    Call(u32),
    /// They contradict each other.
    Doubt,
}

impl Suspect {
    /// A jail's first process; none where the log cannot be read, and then at no cost.
    pub(crate) fn first(pidfd: BorrowedFd<'_>) -> Option<Self> {
        static READABLE: OnceLock<bool> = OnceLock::new();
        if !READABLE.get_or_init(|| numbers_are_the_logs() && open().is_some()) {
            return None;
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        Some(Self { pid: pidfd::number_at_once(pidfd)?, since })
    }

    /// The program of a jail whose first process is an init. Others become the init's children later, and
    /// are listed behind it.
    pub(crate) fn program(self) -> Option<Self> {
        let path = format!("/proc/{0}/task/{0}/children", self.pid);
        let children = fs::read_to_string(path).ok()?;
        Some(Self { pid: children.split_ascii_whitespace().next()?.parse().ok()?, ..self })
    }

    /// The name of the call for which it was killed, or its number where it has no name.
    pub(crate) async fn forbidden_call(self) -> Option<String> {
        tokio::task::spawn_blocking(move || self.search(open()?)).await.ok().flatten()
    }

    fn search(self, mut log: File) -> Option<String> {
        for wait in WAITS {
            std::thread::sleep(wait);
            match self.verdict(records(&mut log)) {
                Verdict::Nothing => {}
                Verdict::Call(number) => return Some(name(number)),
                Verdict::Doubt => return None,
            }
        }
        None
    }

    fn verdict(self, records: impl Iterator<Item = String>) -> Verdict {
        let kills = records.filter_map(|record| self.kill(&record)).map(Verdict::Call);
        let all = kills.reduce(|one, other| if one == other { one } else { Verdict::Doubt });
        all.unwrap_or(Verdict::Nothing)
    }

    /// The number of the call, from the record of this process's kill: flags and the like, a semicolon, a
    /// text of fields. What a program can choose, its name, has neither spaces nor quotes there.
    fn kill(self, record: &str) -> Option<u32> {
        let (head, text) = record.split_once(';')?;
        // Above are the records that programs write.
        let of_the_kernel = head.split(',').next()?.parse::<u32>().ok()? < 8;
        let text = text.strip_prefix("audit: type=1326 audit(")?;
        let (stamp, fields) = text.split_once("): ")?;
        let (seconds, rest) = stamp.split_once('.')?;
        let milliseconds = Duration::from_millis(rest.split_once(':')?.0.parse().ok()?);
        let time = Duration::from_secs(seconds.parse().ok()?).checked_add(milliseconds)?;
        let field = |name: &str| {
            let mut fields = fields.split_ascii_whitespace().filter_map(|f| f.split_once('='));
            fields.find_map(|(key, value)| (key == name).then_some(value))
        };
        let hexadecimal = |text| u32::from_str_radix(text, 16).ok();
        let ours = of_the_kernel
            && time >= self.since.saturating_sub(TICKS)
            && field("pid")?.parse() == Ok(self.pid)
            && field("sig")? == "31"
            && hexadecimal(field("arch")?)? == Machine::NATIVE.audit_architecture()
            && hexadecimal(field("code")?.strip_prefix("0x")?)? == KILL_PROCESS;
        field("syscall").filter(|_| ours)?.parse().ok()
    }
}

fn name(number: u32) -> String {
    Call::find(Machine::NATIVE, number)
        .map_or_else(|| format!("number {number}"), |call| call.name.to_owned())
}

/// Whether this process sees others by the numbers that the log has: those of the first pid namespace,
/// whose inode is fixed (PROC_PID_INIT_INO).
fn numbers_are_the_logs() -> bool {
    fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link.as_os_str() == "pid:[4026531836]")
}

/// The log, if it is one: in containers other things stand there, from which nothing may be taken.
fn open() -> Option<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW;
    let mut options = fs::OpenOptions::new();
    let log = options.read(true).custom_flags(flags.bits() as i32).open("/dev/kmsg").ok()?;
    let found = log.metadata().ok()?;
    let kmsg = rustix::fs::makedev(1, 11);
    (found.file_type().is_char_device() && found.rdev() == kmsg).then_some(log)
}

/// The records from where the last reading ended, oldest first.
fn records(log: &mut File) -> impl Iterator<Item = String> {
    let mut buffer = vec![0; RECORD_BYTES];
    let read = move || match log.read(&mut buffer) {
        Ok(0) => None,
        Ok(length) => Some(String::from_utf8_lossy(&buffer[..length]).into_owned()),
        // EPIPE: overwritten before it was read, so that the next is the oldest that is left.
        Err(error) if [ErrorKind::BrokenPipe, ErrorKind::Interrupted].contains(&error.kind()) => {
            Some(String::new())
        }
        Err(_) => None,
    };
    std::iter::from_fn(read).take(RECORDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Linux 6.18 writes it.
    fn record(pid: i32, arch: u32, syscall: i64) -> String {
        format!(
            "5,13109,63018827958,-;audit: type=1326 audit(1796026481.571:141590): auid=4294967295 \
             uid=1000 gid=1000 ses=4294967295 pid={pid} comm=\"worker\" exe=\"/worker\" sig=31 \
             arch={arch:x} syscall={syscall} compat=0 ip=0x45f3c2 code=0x80000000\n"
        )
    }

    fn ours(syscall: i64) -> String {
        record(11649, Machine::NATIVE.audit_architecture(), syscall)
    }

    const SUSPECT: Suspect =
        Suspect { pid: 11649, since: Duration::from_millis(1_796_026_481_580) };

    fn verdict(records: &[String]) -> Verdict {
        SUSPECT.verdict(records.iter().cloned())
    }

    #[test]
    fn a_kill_is_found_among_other_records() {
        let other = "6,1,2,-;Linux version 6.18.44\n".to_owned();
        let of_others = record(1164, Machine::NATIVE.audit_architecture(), 41);
        let cut_off = "5,3,4,-;audit: type=1326 audit(1796026481.571:1".to_owned();
        let all = [other, String::new(), of_others, cut_off, ours(430)];
        assert_eq!(verdict(&all), Verdict::Call(430));
        assert_eq!(verdict(&all[..4]), Verdict::Nothing);
        // With the caller in the head (CONFIG_PRINTK_CALLER), and a label of the security module.
        let more = ours(430).replace(",-;", ",-,caller=T9;");
        let more = more.replace(" pid=", " subj=docker-default (enforce) pid=");
        assert_eq!(verdict(&[more]), Verdict::Call(430));
    }

    #[test]
    fn whatever_does_not_fit_names_no_call() {
        for (part, other) in [
            ("5,", "13,"),
            ("type=1326", "type=1701"),
            ("audit: ", "audit:  "),
            ("1796026481.571", "1796026481.471"),
            ("1796026481.571", "x"),
            ("1796026481.571", "18446744073709551615.18446744073709551615"),
            ("syscall=430", "syscall=18446744073709551615"),
            ("pid=11649", "pid=1"),
            ("sig=31", "sig=0"),
            ("code=0x80000000", "code=0x30000"),
            (" code=0x80000000", ""),
            ("syscall=430", "syscall=-1"),
        ] {
            let changed = ours(430).replacen(part, other, 1);
            assert_ne!(changed, ours(430), "{part}");
            assert_eq!(verdict(&[changed]), Verdict::Nothing, "{part} {other}");
        }
        assert_eq!(verdict(&[record(11649, 0x4000_0003, 20)]), Verdict::Nothing);
    }

    #[test]
    fn contradictions_name_no_call() {
        assert_eq!(verdict(&[ours(41), ours(41)]), Verdict::Call(41));
        assert_eq!(verdict(&[ours(41), ours(42)]), Verdict::Doubt);
        assert_eq!(verdict(&[ours(41), ours(42), ours(42)]), Verdict::Doubt);
    }

    #[test]
    fn calls_have_their_names_and_others_their_numbers() {
        assert_eq!(name(430), "fsopen");
        assert_eq!(name(0x4000_0027), "number 1073741863");
    }

    #[test]
    fn the_log_of_this_host_is_read_to_its_end_without_waiting() {
        let Some(mut log) = open() else {
            eprintln!("the kernel's log cannot be read here: nothing to be seen");
            return;
        };
        let count = records(&mut log).count();
        assert!((1..=RECORDS).contains(&count), "{count}");
    }
}
