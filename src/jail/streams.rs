//! The pipes between the host and the programs in its jails.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::net::unix::pipe;

use crate::StartError;

/// The standard streams of one program.
#[derive(Debug)]
pub(crate) struct Streams {
    /// The jail's ends: standard input, output and error.
    pub theirs: [OwnedFd; 3],
    /// The host's ends.
    pub ours: Ours,
}

/// The host's ends of a program's standard streams.
#[derive(Debug)]
pub(crate) struct Ours {
    pub stdin: pipe::Sender,
    pub stdout: pipe::Receiver,
    pub stderr: pipe::Receiver,
}

impl Streams {
    /// Makes pipes. Must be called within a tokio runtime.
    fn new() -> Result<Self, StartError> {
        let make = || -> Result<_, Errno> {
            let flags = PipeFlags::CLOEXEC;
            Ok([pipe_with(flags)?, pipe_with(flags)?, pipe_with(flags)?])
        };
        let pipes = make().map_err(|errno| StartError::host("make pipes for a worker", errno))?;
        let [stdin, stdout, stderr] = pipes;
        let watch = || -> std::io::Result<_> {
            Ok(Ours {
                stdin: pipe::Sender::from_owned_fd(stdin.1)?,
                stdout: pipe::Receiver::from_owned_fd(stdout.0)?,
                stderr: pipe::Receiver::from_owned_fd(stderr.0)?,
            })
        };
        let ours = watch().map_err(|e| {
            let errno = Errno::from_io_error(&e).unwrap_or(Errno::IO);
            StartError::host("watch the pipes of a worker", errno)
        })?;
        Ok(Self { theirs: [stdin.0, stdout.1, stderr.1], ours })
    }
}

/// Streams that are made ahead of need, for they are the same for every program: while one runs, not while
/// somebody waits for its start.
#[derive(Debug)]
pub(crate) struct Stock {
    size: usize,
    ready: Mutex<Vec<Streams>>,
}

impl Stock {
    /// Room for `size`, and nothing in it.
    pub(crate) fn new(size: usize) -> Self {
        Self { size, ready: Mutex::default() }
    }

    /// Streams that nobody has used. Must be called within a tokio runtime.
    pub(crate) fn take(&self) -> Result<Streams, StartError> {
        let ready = self.ready().pop();
        ready.map_or_else(Streams::new, Ok)
    }

    /// Makes up for one that was taken. Where that fails, the next one who asks is told. Must be called
    /// within a tokio runtime.
    pub(crate) fn refill(&self) {
        if self.ready().len() < self.size
            && let Ok(streams) = Streams::new()
        {
            self.ready().push(streams);
        }
    }

    fn ready(&self) -> MutexGuard<'_, Vec<Streams>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
