//! Children, and other programs.
#![allow(unsafe_code)]

use std::ffi::CString;

use serde_json::{Value, json};

use crate::call::raw_call;
use crate::{acts, files, report};

/// Makes a child by the plainest call: 0 in the child, its pid in the parent, or a negative error.
fn fork() -> i64 {
    raw_call(libc::SYS_clone as u64, [libc::SIGCHLD as u64, 0, 0, 0, 0, 0])
}

fn leave(code: u64) -> ! {
    raw_call(libc::SYS_exit_group as u64, [code, 0, 0, 0, 0, 0]);
    unreachable!()
}

/// Waits for a child: `{"exit": N}` or `{"signal": N}`.
fn end_of(pid: i64) -> Value {
    let mut status = 0_i32;
    let place = &raw mut status as u64;
    while raw_call(libc::SYS_wait4 as u64, [pid as u64, place, 0, 0, 0, 0])
        == -i64::from(libc::EINTR)
    {}
    if libc::WIFSIGNALED(status) {
        json!({"signal": libc::WTERMSIG(status)})
    } else {
        json!({"exit": libc::WEXITSTATUS(status)})
    }
}

/// Runs `act` in a child with a pipe: what it wrote, and how it ended.
fn piped(act: impl FnOnce(u64)) -> Result<(Vec<u8>, Value), i64> {
    let mut ends = [0_u32; 2];
    let made = raw_call(libc::SYS_pipe2 as u64, [ends.as_mut_ptr() as u64, 0, 0, 0, 0, 0]);
    if made < 0 {
        return Err(made);
    }
    let [from, to] = ends.map(i64::from);
    let pid = fork();
    if pid == 0 {
        files::close(from);
        act(to as u64);
        leave(0);
    }
    files::close(to);
    if pid < 0 {
        files::close(from);
        return Err(pid);
    }
    let mut all = Vec::new();
    let mut part = [0_u8; 4096];
    loop {
        let place = part.as_mut_ptr() as u64;
        let got = raw_call(libc::SYS_read as u64, [from as u64, place, 4096, 0, 0, 0]);
        match usize::try_from(got) {
            Ok(got) if got > 0 => all.extend_from_slice(&part[..got]),
            _ => break,
        }
    }
    files::close(from);
    Ok((all, end_of(pid)))
}

/// Does acts in a child.
pub fn child(acts: &[Value]) -> Value {
    let result = piped(|to| {
        let mut report = |line: &Value| {
            files::write_all(to, format!("{line}\n").as_bytes());
        };
        if acts::perform(acts, &[], &mut report).is_none() {
            leave(2);
        }
    });
    match result {
        Ok((output, end)) => {
            let lines = String::from_utf8_lossy(&output);
            let lines = lines.lines().filter_map(|line| serde_json::from_str(line).ok());
            json!({"list": lines.chain([end]).collect::<Vec<Value>>()})
        }
        Err(error) => report::value(error),
    }
}

/// Executes a program in place of this one; the negative error number when that fails.
pub fn execute(arguments: &[CString]) -> i64 {
    let mut pointers: Vec<u64> = arguments.iter().map(|text| text.as_ptr() as u64).collect();
    pointers.push(0);
    let Some(&program) = pointers.first() else { return -i64::from(libc::EINVAL) };
    // SAFETY: the C library's own list of the environment, ended by null.
    let environment = unsafe { environ } as u64;
    raw_call(libc::SYS_execve as u64, [program, pointers.as_ptr() as u64, environment, 0, 0, 0])
}

/// Runs a program in a child; its output and its end.
pub fn run(arguments: &[CString]) -> Value {
    let result = piped(|to| {
        for stream in [1, 2] {
            raw_call(libc::SYS_dup3 as u64, [to, stream, 0, 0, 0, 0]);
        }
        let failure = execute(arguments);
        files::write_all(1, format!("execve: error {}", -failure).as_bytes());
        leave(127);
    });
    match result {
        Ok((output, end)) => {
            let mut outcome = report::text(&output);
            for (name, value) in end.as_object().into_iter().flatten() {
                outcome[name] = value.clone();
            }
            outcome
        }
        Err(error) => report::value(error),
    }
}

/// Makes children that sleep, until there are enough or one is refused; then ends them.
pub fn forks(most: u64) -> Value {
    let mut made = Vec::new();
    let mut refusal = None;
    for _ in 0..most {
        match fork() {
            0 => {
                crate::misbehave::sleep(60_000);
                leave(0);
            }
            pid if pid > 0 => made.push(pid),
            error => {
                refusal = Some(error);
                break;
            }
        }
    }
    for &pid in &made {
        raw_call(libc::SYS_kill as u64, [pid as u64, libc::SIGKILL as u64, 0, 0, 0, 0]);
        end_of(pid);
    }
    match refusal {
        None => json!({"value": most}),
        Some(error) => json!({"errno": -error, "made": made.len()}),
    }
}

/// Ignores every signal that can be.
pub fn ignore() -> Value {
    for signal in 1..32 {
        // SAFETY: SIG_IGN needs no code of ours; the two that cannot be ignored stay.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    report::value(0)
}

/// Uses the processor in one child after another, so that none comes to a limit of its own.
pub fn relay(milliseconds: u64) -> Value {
    let end = std::time::Instant::now() + std::time::Duration::from_millis(milliseconds);
    let mut children = 0;
    while std::time::Instant::now() < end {
        match fork() {
            0 => {
                crate::misbehave::spin(50);
                leave(0);
            }
            pid if pid > 0 => {
                end_of(pid);
                children += 1;
            }
            error => return report::value(error),
        }
    }
    json!({"value": children})
}

/// Leaves a grandchild in a session of its own that does something.
fn leave_behind(act: impl FnOnce()) -> Value {
    let pid = fork();
    if pid == 0 {
        raw_call(libc::SYS_setsid as u64, [0; 6]);
        if fork() == 0 {
            act();
        }
        leave(0);
    }
    if pid < 0 {
        return report::value(pid);
    }
    end_of(pid);
    report::value(0)
}

/// Leaves one that nothing but the end of its namespace or its time ends.
pub fn orphan(milliseconds: u64) -> Value {
    leave_behind(|| {
        ignore();
        for stream in 0..3 {
            files::close(stream);
        }
        crate::misbehave::sleep(milliseconds);
    })
}

/// Leaves one that does acts and keeps its streams.
pub fn survivor(acts: &[Value]) -> Value {
    leave_behind(|| {
        acts::perform(acts, &[], &mut |_| {});
    })
}

/// A child that makes a child, and so on, each parent waiting in the kernel as after vfork, until one is
/// refused or there are enough. The last one reports, and every other leaves.
pub fn chain(most: u64) -> Value {
    for made in 0..most {
        let flags = (libc::CLONE_VFORK | libc::SIGCHLD) as u64;
        match raw_call(libc::SYS_clone as u64, [flags, 0, 0, 0, 0, 0]) {
            0 => {}
            error @ ..0 => return json!({"errno": -error, "made": made}),
            _ => leave(0),
        }
    }
    json!({"value": most})
}

/// Children that end at once and that nobody waits for, until one is refused or there are enough.
pub fn zombies(most: u64) -> Value {
    for made in 0..most {
        match fork() {
            0 => leave(0),
            error @ ..0 => return json!({"errno": -error, "made": made}),
            _ => {}
        }
    }
    json!({"value": most})
}

/// Threads that sleep, until one is refused or there are enough.
pub fn threads(most: u64) -> Value {
    for made in 0..most {
        let thread = std::thread::Builder::new().stack_size(64 * 1024);
        if let Err(error) = thread.spawn(|| crate::misbehave::sleep(60_000)) {
            return json!({"errno": error.raw_os_error(), "made": made});
        }
    }
    json!({"value": most})
}

/// The parameters as C strings.
pub fn strings(parameters: &[Value]) -> Option<Vec<CString>> {
    parameters.iter().map(|value| value.as_str().map(files::c_string)).collect()
}

unsafe extern "C" {
    static environ: *const *const libc::c_char;
}
