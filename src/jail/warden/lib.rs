//! The warden: a small, static, single-threaded helper that makes jails for a host process.
//!
//! The host holds credentials and runs threads; forking it would be slow, would copy its secrets and
//! could deadlock. So it starts this program once, over a socket, and asks it for jails. The warden is
//! PID 1 of a user and pid namespace of its own: when it dies, the kernel ends every jail; when the
//! host's end of the socket closes, it ends itself.
//!
//! The library half holds what host and warden share: the messages ([`wire`]), the steps that can fail
//! ([`step`]) and the policies ([`seccomp`], [`landlock`]). It refuses to know anything of turns,
//! images or models.

pub mod canary;
pub mod child;
pub mod classic;
pub mod devices;
mod groups;
pub mod handover;
pub mod init;
pub mod landlock;
pub mod launch;
pub mod look;
pub mod make;
pub mod mechanisms;
pub mod network;
pub mod open;
pub mod parked;
pub mod pool;
pub mod prepare;
pub mod seccomp;
pub mod serve;
pub mod step;
pub mod sys;
pub mod trial;
pub mod views;
pub mod wire;
