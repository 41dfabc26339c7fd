//! The filters in the real kernel: calls are made in throw-away children, with the filter and, as a
//! control, without. A refusal counts only because the same call gets further in the control.

mod child;
#[cfg(target_arch = "x86_64")]
mod foreign;
mod general;
mod sealed;
