//! The probe.
fn main() {}
