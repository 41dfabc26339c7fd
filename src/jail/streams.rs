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

/// Three pipes that nothing is connected with: their reading ends and their writing ends.
type Pipes = [(OwnedFd, OwnedFd); 3];

impl Streams {
    /// Connects pipes. Must be called within the tokio runtime in which they are read.
    fn new([stdin, stdout, stderr]: Pipes) -> Result<Self, StartError> {
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

fn pipes() -> Result<Pipes, StartError> {
    let make = || -> Result<_, Errno> {
        let flags = PipeFlags::CLOEXEC;
        Ok([pipe_with(flags)?, pipe_with(flags)?, pipe_with(flags)?])
    };
    make().map_err(|errno| StartError::host("make pipes for a worker", errno))
}

/// Pipes that are made ahead of need, for they are the same for every program: while one runs, not while
/// somebody waits for its start. Six descriptors each.
#[derive(Debug)]
pub(crate) struct Stock {
    size: usize,
    ready: Mutex<Vec<Pipes>>,
}

impl Stock {
    /// Room for `size`, and nothing in it.
    pub(crate) fn new(size: usize) -> Self {
        Self { size, ready: Mutex::default() }
    }

    /// Streams that nobody has used. Must be called within the tokio runtime in which they are read.
    pub(crate) fn take(&self) -> Result<Streams, StartError> {
        let ready = self.ready().pop();
        Streams::new(ready.map_or_else(pipes, Ok)?)
    }

    /// Makes up for those that were taken. Where that fails, the next one who asks is told.
    pub(crate) fn refill(&self) {
        if self.ready().len() < self.size
            && let Ok(pipes) = pipes()
        {
            self.ready().push(pipes);
        }
    }

    fn ready(&self) -> MutexGuard<'_, Vec<Pipes>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
