//! The warden.
fn main() {}
