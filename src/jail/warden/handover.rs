//! Passing a jail what it gets from the warden after it has been cloned: over a packet socket, one message.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr,
    recvmsg, sendmsg, socketpair,
};

use crate::sys;
use crate::wire::Target;

/// The standard streams, or the root's tree, and a tree for every place.
const DESCRIPTORS: usize = 3 + Target::ALL.len();

/// Two connected ends, which no program inherits.
pub fn pair() -> nix::Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)
}

/// Sends one message with descriptors.
pub fn send(socket: RawFd, bytes: &[u8], fds: &[RawFd]) -> nix::Result<()> {
    let rights = [ControlMessage::ScmRights(fds)];
    let parts = [IoSlice::new(bytes)];
    sendmsg::<UnixAddr>(socket, &parts, &rights, MsgFlags::MSG_NOSIGNAL, None).map(drop)
}

/// Waits for a message and gives back its length, 0 when the other end is closed, and the descriptors that
/// came with it; fewer than were sent where this process has no room for more.
pub fn receive(socket: RawFd, buffer: &mut [u8]) -> nix::Result<(usize, Vec<OwnedFd>)> {
    let mut space = nix::cmsg_space!([RawFd; DESCRIPTORS]);
    let mut parts = [IoSliceMut::new(buffer)];
    let message = loop {
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        match recvmsg::<UnixAddr>(socket, &mut parts, Some(&mut space), flags) {
            Err(Errno::EINTR) => {}
            other => break other?,
        }
    };
    let mut fds = Vec::new();
    for part in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(received) = part {
            fds.extend(received.into_iter().map(sys::received));
        }
    }
    Ok((message.bytes, fds))
}
