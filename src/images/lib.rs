//! Images: the store of root filesystems on this machine, and the worker image built into turnjail.
//!
//! A turn never pulls or imports anything: an image is in the store or the turn fails with the reason.
//! What is imported is hostile until it has been unpacked by the rules of [`ImageLimits`] and this crate;
//! nothing is ever written outside the store.
#![forbid(unsafe_code)]

mod builtin;
mod config;
mod digest;
mod directories;
mod error;
mod export;
#[doc(hidden)]
pub mod fuzzing;
mod garbage;
mod image;
mod import;
mod index;
mod limits;
mod list;
mod lock;
mod reference;
mod remove;
mod store;
mod unpack;
mod verify;

pub use builtin::{BUILTIN, builtin_digest};
pub use config::{ImageConfig, ProfileLabel, architecture};
pub use digest::Digest;
pub use error::ImageError;
pub use export::ExportFormat;
pub use garbage::{Freed, Removed};
pub use image::Image;
pub use import::{Assembly, Needed, manifest_for, parts_of};
pub use import::{Format, ImportOptions, Imported, Platform, Progress, Skipped, Source};
pub use limits::ImageLimits;
pub use list::Listed;
pub use reference::Reference;
pub use store::ImageStore;
pub use verify::{Difference, Verified};
