//! Doctor.
