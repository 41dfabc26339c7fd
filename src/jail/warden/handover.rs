//! Passing a jail what it gets from the warden after it has been cloned: over a packet socket, one message.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, UnixAddr, recvmsg, sendmsg,
    socketpair,
};

use crate::sys;
use crate::wire::Target;

/// The standard streams, or the root's tree, and a tree for every place.
const DESCRIPTORS: usize = 3 + Target::ALL.len();

/// Two connected ends, which no program inherits.
pub fn pair() -> nix::Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
}

/// Sends one message with descriptors, and a byte: without any it would look like the end.
pub fn send(socket: RawFd, fds: &[RawFd]) -> nix::Result<()> {
    let rights = [ControlMessage::ScmRights(fds)];
    let parts = [IoSlice::new(&[1])];
    sendmsg::<UnixAddr>(socket, &parts, &rights, MsgFlags::MSG_NOSIGNAL, None).map(drop)
}

/// Waits for a message and gives back its length, 0 when the other end is closed, and the descriptors that
/// came with it; fewer than were sent where this process has no room for more.
pub fn receive(socket: RawFd, buffer: &mut [u8]) -> nix::Result<(usize, Vec<OwnedFd>)> {
    let mut space = nix::cmsg_space!([RawFd; DESCRIPTORS]);
    let mut parts = [IoSliceMut::new(buffer)];
    let length = loop {
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        match recvmsg::<UnixAddr>(socket, &mut parts, Some(&mut space), flags) {
            Err(Errno::EINTR) => {}
            other => break other?.bytes,
        }
    };
    // By hand: of a message that was cut off (MSG_CTRUNC) nix gives nothing, and what came would be left
    // open for ever.
    Ok((length, numbers(&space).into_iter().map(sys::received).collect()))
}

/// The descriptors in a buffer for control messages that was zero before the kernel filled it: a header
/// of 16 bytes (its length with what follows, level, type), then the numbers.
fn numbers(space: &[u8]) -> Vec<RawFd> {
    const HEADER: usize = 16;
    let word = |at: usize| Some(i32::from_ne_bytes(space.get(at..at + 4)?.try_into().ok()?));
    let length = space.get(..8).and_then(|bytes| bytes.try_into().ok());
    let end = length.map_or(0, usize::from_ne_bytes).min(space.len());
    if (word(8), word(12)) != (Some(libc::SOL_SOCKET), Some(libc::SCM_RIGHTS)) {
        return Vec::new();
    }
    (HEADER..end).step_by(4).filter(|at| at + 4 <= end).filter_map(word).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_descriptors_that_came_are_taken() {
        let message = |length: usize, kind: i32, numbers: &[i32]| {
            let mut bytes = length.to_ne_bytes().to_vec();
            bytes.extend(libc::SOL_SOCKET.to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(numbers.iter().flat_map(|number| number.to_ne_bytes()));
            bytes.resize(48, 0);
            super::numbers(&bytes)
        };
        assert_eq!(message(28, libc::SCM_RIGHTS, &[7, 8, 9]), [7, 8, 9]);
        assert_eq!(message(20, libc::SCM_RIGHTS, &[7, 8, 9]), [7]);
        assert_eq!(message(16, libc::SCM_RIGHTS, &[7]), []);
        assert_eq!(message(usize::MAX, libc::SCM_RIGHTS, &[7]).len(), 8);
        assert_eq!(message(20, libc::SCM_CREDENTIALS, &[7]), []);
        assert_eq!(super::numbers(&[0; 32]), []);
        assert_eq!(super::numbers(&[]), []);
    }
}
