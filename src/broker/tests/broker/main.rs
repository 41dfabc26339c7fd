//! The broker through its public face: real sockets, real programs, real upstreams on loopback.

mod credentials;
mod hostile;
mod logs;
mod mcp;
mod network;
#[path = "../support/mod.rs"]
mod support;
mod tools;
mod turns;
mod upstream;
