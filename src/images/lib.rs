//! Images: the store of root filesystems on this machine, and the worker image built into turnjail.
//!
//! A turn never pulls or imports anything: an image is in the store or the turn fails with the reason.
#![forbid(unsafe_code)]

mod builtin;
mod config;
mod error;
mod store;

pub use builtin::{BUILTIN, builtin_digest};
pub use config::{ImageConfig, ProfileLabel};
pub use error::ImageError;
pub use store::{Image, ImageStore};
