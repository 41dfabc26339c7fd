//! Tests of the policies and of the compiler, without the kernel; the tests with it are in
//! `tests/filters.rs` of this package.

mod compiler;
mod general;
mod init;
mod interpreter;
mod numbers;
mod sealed;
mod stages;
mod table;
