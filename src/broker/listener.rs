//! The turn's socket: accepting, at most so many connections, and their end.

use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind as bind_socket, listen, socket,
};
use nix::sys::stat::{Mode, fchmod};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::connection;
use crate::error::ListenError;
use crate::handler::TurnState;

/// Connections at once; one more is accepted and closed.
const MAX_CONNECTIONS: usize = 16;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;
/// What connections get to write their last answer once the turn has ended.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// The pause after accepting failed, which passes when descriptors are free again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A listening socket and its file.
pub(crate) struct Bound {
    listener: UnixListener,
    _file: SocketFile,
}

/// A socket's file, removed when this is dropped.
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Makes a socket that nobody but the host's user may connect to, from its first moment on.
pub(crate) fn bind(path: &Path) -> Result<Bound, ListenError> {
    let failed =
        |step, errno: nix::Error| ListenError { path: path.to_owned(), step, error: errno.into() };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)
        .map_err(|errno| failed("socket", errno))?;
    // Linux gives the file the mode that the socket has when it is bound.
    fchmod(&socket, Mode::S_IRUSR | Mode::S_IWUSR).map_err(|errno| failed("fchmod", errno))?;
    let address = UnixAddr::new(path).map_err(|errno| failed("address", errno))?;
    bind_socket(socket.as_raw_fd(), &address).map_err(|errno| failed("bind", errno))?;
    let file = SocketFile(path.to_owned());
    let backlog = Backlog::new(BACKLOG).map_err(|errno| failed("listen", errno))?;
    listen(&socket, backlog).map_err(|errno| failed("listen", errno))?;
    let listener = UnixListener::from_std(socket.into()).map_err(|error| ListenError {
        path: path.to_owned(),
        step: "register",
        error,
    })?;
    Ok(Bound { listener, _file: file })
}

/// Serves connections until told to stop, then lets those that stand say their last words.
pub(crate) async fn serve(bound: Bound, turn: Arc<TurnState>, stop: CancellationToken) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => {}
            accepted = bound.listener.accept() => match accepted {
                Ok((stream, _)) => admit(stream, &mut connections, &turn),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection to the broker");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
    drop(bound);
    let last_words = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(LAST_WORDS, last_words).await;
    connections.shutdown().await;
}

fn admit(stream: UnixStream, connections: &mut JoinSet<()>, turn: &Arc<TurnState>) {
    // The directory keeps others out already; this holds where an operator has loosened it.
    let ours = stream.peer_cred().is_ok_and(|peer| peer.uid() == nix::unistd::geteuid().as_raw());
    if ours && connections.len() < MAX_CONNECTIONS {
        let serving = connection::serve(stream, Arc::clone(turn));
        connections.spawn(serving.in_current_span());
    }
}
