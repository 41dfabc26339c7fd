//! One program in a jail: feed it, read it, wait until nothing of it is left, tell how it ended.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tokio::io::AsyncWriteExt as _;
use tokio_util::sync::CancellationToken;
use turnjail_driver::{ExitReason, Limits, Timing, Usage};
use turnjail_protocol::limits::{EXIT_OUT_OF_MEMORY, STDERR_BYTES, STDOUT_BYTES};
use turnjail_warden::seccomp::Profile;
use turnjail_warden::wire::{Exit, Failure, Status};

use crate::StartError;
use crate::client::{Client, Jail};
use crate::kernel_log::Suspect;
use crate::limits::watch::{Watch, is_over, look};
use crate::limits::{self, Used};
use crate::output::read_bounded;
use crate::plan::{JailSpec, cpu_seconds, own_processes};
use crate::streams::Ours;

/// What became of a program in a jail.
#[derive(Debug, Clone)]
pub struct Ended {
    /// Why it ended.
    pub reason: ExitReason,
    /// How: exit code or signal, and CPU time.
    pub exit: Exit,
    /// What it wrote to stdout, at most 2 MiB.
    pub stdout: Vec<u8>,
    /// What it wrote to stderr, at most 128 KiB.
    pub stderr: Vec<u8>,
    /// Where the time went.
    pub timing: Timing,
    /// Walls that this host cannot build and that the policies allow to be missing.
    pub missing: Vec<Failure>,
    /// What it used.
    pub usage: Usage,
    /// The call for which its filter killed it, by name, or by number where it has no name. None where the
    /// kernel's log cannot be read, or says nothing of it that is beyond doubt.
    pub forbidden_call: Option<String>,
}

/// Runs the program of `spec` in a jail with `input` on its standard input. `started` is called when the
/// program has been executed. When `cancel` fires, everything in the jail is killed; when the future is
/// dropped, too.
pub async fn run(
    client: &Client,
    spec: &JailSpec,
    input: &[u8],
    cancel: &CancellationToken,
    started: impl FnOnce(),
) -> Result<Ended, StartError> {
    let asked = Instant::now();
    let streams = client.streams().take()?;
    let mut plan = spec.plan()?;
    plan.group = client.limiter().group_limits(&spec.limits, own_processes(spec.isolation));
    if plan.group.is_some() {
        limits::held_by_group(&mut plan);
    }
    let mut jail = client.jail(plan, streams.theirs).await?;
    // While it is made: a process that has ended has no number any more.
    let suspect = Suspect::first(jail.pidfd());
    tokio::select! {
        ready = jail.ready() => {
            ready?;
            started();
        }
        () = cancel.cancelled() => jail.kill(),
    }
    let start_us = micros(asked);
    let running = Instant::now();
    let (prepared, group) = (jail.prepared(), jail.take_group());
    let plan = jail.plan();
    let suspect = match spec.isolation.profile {
        Profile::Sealed => suspect,
        Profile::General => suspect.and_then(Suspect::program),
    };
    let watch = Watch::new(client, spec, &plan, jail.pidfd());
    let seen = watch.seen();
    // The program's input first; then what the next one is going to need.
    let (attended, ()) =
        tokio::join!(attend(jail, streams.ours, input, cancel, watch), client.prepare_for(&plan),);
    let attended = attended?;
    let run_us = micros(running);
    let used = group.map(|group| group.used());
    let mut reason = reason(&attended, &spec.limits, used.as_ref());
    // A program that fails because it may write no more says so in its own way.
    if reason == ExitReason::WorkerFailed && plan.bounds.is_some() {
        let found = look(client, &plan).await;
        if found.is_err_and(|error| is_over(&error)) {
            reason = ExitReason::Disk;
        }
    }
    let forbidden_call = match suspect {
        Some(suspect) if reason == ExitReason::Filter => suspect.forbidden_call().await,
        _ => None,
    };
    Ok(Ended {
        reason,
        usage: usage(&attended.exit, used, seen.load(Ordering::Relaxed)),
        exit: attended.exit,
        stdout: attended.stdout,
        stderr: attended.stderr,
        timing: Timing { start_us, run_us, prepared },
        missing: attended.missing,
        forbidden_call,
    })
}

/// What the group counted, where there is one: that is the whole jail's and nothing else. Without one the
/// peak is that of the largest process, or of the whole jail where the watch has `seen` more. A process's
/// includes its launcher before exec, which is smaller than any worker.
fn usage(exit: &Exit, used: Option<Used>, seen: u64) -> Usage {
    let largest = Some(seen.max(exit.max_rss_kib * 1024)).filter(|&bytes| bytes > 0);
    let peak_memory_bytes = used.as_ref().map_or(largest, |used| used.peak);
    let used = used.unwrap_or_default();
    Usage {
        cpu_us: used.cpu_us.or(Some(exit.user_us + exit.system_us)),
        peak_memory_bytes,
        refused_forks: used.refused_forks,
    }
}

struct Attended {
    exit: Exit,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    cancelled: bool,
    /// Walls that are missing, which is known only once the jail was complete.
    missing: Vec<Failure>,
    /// The limit for which the host ended it.
    over: Option<ExitReason>,
}

/// Feeds, reads and waits at once. Ends when nothing of the jail is left.
async fn attend(
    mut jail: Jail,
    streams: Ours,
    input: &[u8],
    cancel: &CancellationToken,
    watch: Watch<'_>,
) -> Result<Attended, StartError> {
    let over = AtomicBool::new(false);
    let stop = CancellationToken::new();
    let too_much = || {
        over.store(true, Ordering::Relaxed);
        stop.cancel();
    };
    let Ours { mut stdin, stdout, stderr } = streams;
    let gone = CancellationToken::new();
    let streams = async {
        let feed = async {
            // A program that ends without reading everything has its reasons; it is not an error.
            tokio::select! {
                _ = stdin.write_all(input) => {}
                () = gone.cancelled() => {}
            }
            drop(stdin);
        };
        tokio::join!(
            feed,
            read_bounded(stdout, STDOUT_BYTES, too_much),
            read_bounded(stderr, STDERR_BYTES, too_much),
        )
    };
    let waiting = async {
        let ended = tokio::select! {
            // First what the host wants: a jail that it has killed has ended, too.
            biased;
            () = cancel.cancelled() => {
                jail.kill();
                (jail.ended().await, true, None)
            }
            () = stop.cancelled() => {
                jail.kill();
                (jail.ended().await, false, None)
            }
            exit = jail.ended() => (exit, false, None),
            reason = watch.over() => {
                jail.kill();
                (jail.ended().await, false, Some(reason))
            }
        };
        gone.cancel();
        ended
    };
    let ((exit, cancelled, over_limit), ((), stdout, stderr)) = tokio::join!(waiting, streams);
    let too_much = over.load(Ordering::Relaxed).then_some(ExitReason::Output);
    Ok(Attended {
        exit: exit?,
        stdout: stdout.unwrap_or_default(),
        stderr: stderr.unwrap_or_default(),
        cancelled,
        missing: jail.missing().to_vec(),
        over: over_limit.or(too_much),
    })
}

/// Why a program ended, from what the host did, its status and its CPU time.
fn reason(attended: &Attended, limits: &Limits, used: Option<&Used>) -> ExitReason {
    // The kernel enforces the limit by counting ticks and reports precise time: on a busy virtual machine
    // the two differ by a good part. A kill by anybody else comes far below the limit.
    let cpu_us = attended.exit.user_us + attended.exit.system_us;
    let out_of_time = cpu_us * 2 >= cpu_seconds(limits) * 1_000_000;
    if attended.cancelled {
        return ExitReason::Cancelled;
    }
    if let Some(over) = attended.over {
        return over;
    }
    match attended.exit.status {
        _ if used.is_some_and(|used| used.out_of_memory) => ExitReason::Memory,
        Status::Code(0) => ExitReason::Ok,
        Status::Code(EXIT_OUT_OF_MEMORY) => ExitReason::Memory,
        Status::Signal(signal::SIGSYS) => ExitReason::Filter,
        Status::Signal(signal::SIGXCPU) => ExitReason::Cpu,
        Status::Signal(signal::SIGXFSZ) => ExitReason::Disk,
        Status::Signal(signal::SIGKILL) if out_of_time => ExitReason::Cpu,
        Status::Code(_) | Status::Signal(_) => ExitReason::WorkerFailed,
    }
}

impl Ended {
    /// One sentence saying how the program ended.
    pub fn cause(&self) -> String {
        match (self.reason, self.exit.status) {
            (ExitReason::Memory, _) => "the worker reached its memory limit".to_owned(),
            (ExitReason::Cpu, _) => "the worker reached its CPU time limit".to_owned(),
            (ExitReason::Disk, _) => {
                "the worker filled its workspace, or left too little free space".to_owned()
            }
            (ExitReason::Output, _) => format!(
                "the worker wrote more than {STDOUT_BYTES} bytes of output or {STDERR_BYTES} of errors"
            ),
            (ExitReason::Filter, _) => {
                let call = self.forbidden_call.as_ref();
                let call = call.map(|call| format!(" ({call})")).unwrap_or_default();
                format!("the worker was killed for a system call that its profile forbids{call}")
            }
            (ExitReason::Cancelled, _) => "the worker was stopped".to_owned(),
            (ExitReason::Host, _) => {
                "the worker was ended because its memory could not be watched (the log says why)"
                    .to_owned()
            }
            (_, Status::Signal(signal::SIGKILL)) => {
                "the worker was killed from outside, perhaps because this host ran out of memory"
                    .to_owned()
            }
            (_, Status::Signal(signal)) => format!("the worker was ended by signal {signal}"),
            (_, Status::Code(code)) => format!("the worker ended with exit code {code}"),
        }
    }
}

fn micros(since: Instant) -> u64 {
    since.elapsed().as_micros() as u64
}

/// Numbers of signals, the same on x86_64 and aarch64 (signal(7)).
mod signal {
    pub(super) const SIGKILL: i32 = 9;
    pub(super) const SIGXCPU: i32 = 24;
    pub(super) const SIGXFSZ: i32 = 25;
    pub(super) const SIGSYS: i32 = 31;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attended(status: Status, cpu_us: u64) -> Attended {
        let exit = Exit { status, user_us: cpu_us, system_us: 0, max_rss_kib: 0 };
        let missing = Vec::new();
        Attended { exit, stdout: vec![], stderr: vec![], cancelled: false, missing, over: None }
    }

    #[test]
    fn what_the_host_did_comes_before_the_status() {
        let limits = Limits::default();
        let killed = attended(Status::Signal(signal::SIGKILL), 0);
        assert_eq!(reason(&killed, &limits, None), ExitReason::WorkerFailed);
        assert_eq!(
            reason(&Attended { cancelled: true, ..killed }, &limits, None),
            ExitReason::Cancelled
        );
        let killed = attended(Status::Signal(signal::SIGKILL), 0);
        let over = Some(ExitReason::Output);
        assert_eq!(reason(&Attended { over, ..killed }, &limits, None), ExitReason::Output);
    }

    #[test]
    fn a_kill_by_the_filter_names_the_call_where_it_is_known() {
        let Attended { exit, .. } = attended(Status::Signal(signal::SIGSYS), 0);
        let ended = |forbidden_call| Ended {
            reason: ExitReason::Filter,
            exit,
            stdout: vec![],
            stderr: vec![],
            timing: Timing::default(),
            missing: vec![],
            usage: Usage::default(),
            forbidden_call,
        };
        let plain = "the worker was killed for a system call that its profile forbids";
        assert_eq!(ended(None).cause(), plain);
        assert_eq!(ended(Some("fsopen".to_owned())).cause(), format!("{plain} (fsopen)"));
    }

    #[test]
    fn without_a_group_the_peak_is_the_largest_process_or_what_was_seen() {
        let exit = Exit { max_rss_kib: 3, ..attended(Status::Code(0), 0).exit };
        let peak = |exit: &Exit, used, seen| usage(exit, used, seen).peak_memory_bytes;
        assert_eq!(peak(&exit, None, 0), Some(3072));
        assert_eq!(peak(&exit, None, 4000), Some(4000));
        assert_eq!(peak(&Exit { max_rss_kib: 0, ..exit }, None, 0), None);
        // Before Linux 5.19 a group counts none.
        assert_eq!(peak(&exit, Some(Used::default()), 4000), None);
        let counted = Used { peak: Some(5), ..Used::default() };
        assert_eq!(peak(&exit, Some(counted), 4000), Some(5));
    }

    #[test]
    fn statuses_have_reasons() {
        let limits = Limits { time_ms: 2_000, ..Limits::default() };
        for (status, cpu_us, expected) in [
            (Status::Code(0), 0, ExitReason::Ok),
            (Status::Code(1), 0, ExitReason::WorkerFailed),
            (Status::Code(EXIT_OUT_OF_MEMORY), 0, ExitReason::Memory),
            (Status::Signal(signal::SIGSYS), 0, ExitReason::Filter),
            (Status::Signal(signal::SIGKILL), 1_700_000, ExitReason::Cpu),
            (Status::Signal(signal::SIGKILL), 200_000, ExitReason::WorkerFailed),
            (Status::Signal(11), 0, ExitReason::WorkerFailed),
        ] {
            assert_eq!(reason(&attended(status, cpu_us), &limits, None), expected, "{status:?}");
        }
    }
}
