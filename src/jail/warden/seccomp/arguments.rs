//! Values of arguments that the policies speak of. They are the same on both machines.

/// `AF_UNIX`.
pub(super) const UNIX: u32 = 1;
/// `AF_INET` and `AF_INET6`.
pub(super) const INET: &[u32] = &[2, 10];
/// `SOCK_STREAM`.
pub(super) const STREAM: u32 = 1;
/// `SOCK_DGRAM`.
pub(super) const DATAGRAM: u32 = 2;
/// The bits of a socket's type that are the type.
pub(super) const SOCKET_TYPE: u32 = 0xf;
/// `SOCK_NONBLOCK` and `SOCK_CLOEXEC`, which may stand beside it.
pub(super) const SOCKET_FLAGS: u32 = 0o4_000 | 0o2_000_000;
/// `MSG_OOB`: urgent data, whose code for Unix sockets has been a way into the kernel.
pub(super) const MSG_OOB: u32 = 1;
/// `SOL_SOCKET`.
pub(super) const SOL_SOCKET: u32 = 1;
/// `SO_RCVTIMEO` and `SO_SNDTIMEO`.
pub(super) const SOCKET_TIMEOUTS: &[u32] = &[20, 21];
/// `PROT_EXEC`.
pub(super) const PROT_EXEC: u32 = 4;
/// `MAP_GROWSDOWN`.
pub(super) const MAP_GROWSDOWN: u32 = 0x100;
/// `S_ISUID` and `S_ISGID`.
pub(super) const SET_ID_BITS: u32 = 0o6_000;
/// `O_CREAT`, and the bit of `O_TMPFILE` that is its own.
pub(super) const CREATING: u32 = 0o100 | 0o20_000_000;
