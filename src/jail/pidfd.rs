//! The number of a process that is known by its pidfd.

use std::fs;
use std::io::Read as _;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::process::{Command, Stdio};

use rustix::io::Errno;

/// The number, as this host's /proc has it; none when the process is gone.
pub(crate) fn number(pidfd: BorrowedFd<'_>) -> Result<Option<i32>, Errno> {
    let info = match fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())) {
        // Before Linux 5.14 nobody but root reads this of a process that is not dumpable.
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => by_another(pidfd)?,
        read => read.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?,
    };
    parse(&info)
}

/// The number where it is to be had at once, else none: for what is merely good to know.
pub(crate) fn number_at_once(pidfd: BorrowedFd<'_>) -> Option<i32> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).ok()?;
    parse(&info).ok().flatten()
}

/// What another program, which is dumpable as it holds nothing, reads of the same descriptor.
fn by_another(pidfd: BorrowedFd<'_>) -> Result<String, Errno> {
    let failed = |error: &std::io::Error| Errno::from_io_error(error).unwrap_or(Errno::IO);
    let input = pidfd.try_clone_to_owned().map_err(|error| failed(&error))?;
    let mut cat = Command::new("/bin/cat")
        .arg("/proc/self/fdinfo/0")
        .env_clear()
        .current_dir("/")
        .stdin(input)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| failed(&error))?;
    let mut text = String::new();
    let read = cat.stdout.take().map(|mut stdout| stdout.read_to_string(&mut text));
    // Its end may have been taken by a host that reaps whatever there is: what it wrote counts.
    let _ = cat.wait();
    match read {
        Some(Ok(_)) => Ok(text),
        Some(Err(error)) => Err(failed(&error)),
        None => Err(Errno::IO),
    }
}

/// The field Pid: -1 says that the process has been reaped, 0 that it is not to be seen from here.
fn parse(info: &str) -> Result<Option<i32>, Errno> {
    let number = info.lines().find_map(|line| line.strip_prefix("Pid:"));
    match number.and_then(|number| number.trim().parse().ok()) {
        Some(-1) => Ok(None),
        Some(number) if number > 0 => Ok(Some(number)),
        _ => Err(Errno::NOENT),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    use super::*;

    #[test]
    fn both_ways_give_the_number_and_tell_when_the_process_is_gone() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("a child");
        let number = child.id().cast_signed();
        let pid = Pid::from_raw(number).expect("a number");
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).expect("a pidfd");
        let both = || {
            let another = by_another(pidfd.as_fd()).expect("cat");
            [super::number(pidfd.as_fd()), parse(&another)]
        };
        assert_eq!(both(), [Ok(Some(number)); 2]);
        child.kill().expect("killed");
        child.wait().expect("reaped");
        assert_eq!(both(), [Ok(None); 2]);
    }

    #[test]
    fn what_names_no_process_is_an_error() {
        for info in ["", "pos:\t0\n", "Pid:\tx\n", "Pid:\t0\n"] {
            assert_eq!(parse(info), Err(Errno::NOENT), "{info:?}");
        }
    }
}
