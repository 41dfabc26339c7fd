//! Processes of other commands, held by descriptors so that a number that is used again is nobody else's.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::time::Timespec;
use serde::{Deserialize, Serialize};

/// A process by its number and the time at which it was started, which no other has both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pid: i32,
    /// Field 22 of /proc/PID/stat: clock ticks since the system was started.
    started: u64,
}

/// A process that is held: it may end, but its number then still means it here.
#[derive(Debug)]
pub struct Process(OwnedFd);

impl Identity {
    /// Of a running process; none when there is no such process.
    pub fn of(pid: i32) -> Option<Self> {
        Some(Self { pid, started: started(pid)? })
    }

    /// Takes hold of the process; none when it is over.
    pub fn hold(self) -> Option<Process> {
        let pid = Pid::from_raw(self.pid)?;
        let held = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        // Looked at while it is held: from here on the number cannot mean another one.
        (started(self.pid) == Some(self.started)).then_some(Process(held))
    }
}

impl Process {
    /// Sends a signal; that it is over already is no error.
    pub fn signal(&self, signal: Signal) {
        let _ = pidfd_send_signal(&self.0, signal);
    }

    /// Waits for its end; whether it came in time.
    pub fn wait(&self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let left =
                Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            let mut waiting = [PollFd::new(&self.0, PollFlags::IN)];
            match poll(&mut waiting, Some(&left)) {
                Ok(0) => return false,
                Ok(_) => return true,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }
}

/// When a process was started. Its name stands in parentheses and may hold anything.
fn started(pid: i32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    // Field 3 is the first here.
    fields.split_whitespace().nth(22 - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_is_held_until_its_end_and_never_taken_for_another() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep");
        let identity = Identity::of(child.id() as i32).expect("it runs");
        assert!(Identity { started: identity.started + 1, ..identity }.hold().is_none());
        let process = identity.hold().expect("it runs");
        assert!(!process.wait(Duration::from_millis(10)));
        process.signal(Signal::KILL);
        assert!(process.wait(Duration::from_secs(20)));
        child.wait().expect("reaped");
        assert!(identity.hold().is_none());
        process.signal(Signal::KILL);
    }
}
