//! The two ends of a broker, for tests inside the crate.
#![allow(dead_code, unused_imports, reason = "each test uses its own part")]

#[path = "client.rs"]
mod client;
#[path = "upstream.rs"]
mod upstream;

pub use client::{Answered, call, exchange, exchange_within, post};
pub use upstream::{Received, Reply, Upstream};
