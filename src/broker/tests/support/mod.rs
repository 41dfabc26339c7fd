//! What the broker's tests have in common.
#![allow(dead_code, unused_imports, reason = "each test uses its own part")]

pub mod bench;
mod client;
mod upstream;

pub use client::{Answered, call, exchange, exchange_within, post};
pub use upstream::{Received, Reply, Upstream};
