//! Values of arguments that both policies speak of. They are the same on both machines.

/// `AF_UNIX`.
pub(super) const UNIX: u32 = 1;
/// `SOCK_STREAM`.
pub(super) const STREAM: u32 = 1;
/// `PROT_EXEC`.
pub(super) const PROT_EXEC: u32 = 4;
/// `O_CREAT`, and the bit of `O_TMPFILE` that is its own.
pub(super) const CREATING: u32 = 0o100 | 0o20_000_000;
