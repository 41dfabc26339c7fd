//! The policy of the general profile: ordinary programs run unmodified, and what has let others out
//! of their containers answers an error that programs know how to take.
//!
//! Every call of the table is named here, so that none is refused by accident. The error of a refusal
//! is chosen for what callers do with it: `ENOSYS` where they then try an older way (also because the
//! arguments stand in memory, where a filter cannot see them), `EPERM` where any unprivileged
//! process gets it too, and `EAFNOSUPPORT` for a network that is not there.

mod allowed;
mod checked;
mod refused;
mod sockets;

use libc::{ENOSYS, EPERM};

use super::{
    FilterOptions,
    rule::{Policy, Rule, errno_answer},
};

/// The general policy.
pub(super) fn policy(options: FilterOptions) -> Policy {
    let allowed = allowed::ALLOWED
        .iter()
        .flat_map(|(reason, calls)| calls.iter().map(|&call| Rule::allow(call, reason)));
    let refused = refused::REFUSED.iter().flat_map(|(errno, reason, calls)| {
        calls.iter().map(|&call| Rule::refuse(call, *errno, reason))
    });
    let by_option =
        if options.loopback { sockets::LOOPBACK_SOCKETS } else { sockets::UNIX_SOCKETS };
    Policy {
        rules: allowed
            .chain(refused)
            .chain(checked::CHECKED.iter().copied())
            .chain(sockets::MESSAGES.iter().copied())
            .chain(by_option.iter().copied())
            .collect(),
        unlisted: errno_answer(EPERM),
        unknown: errno_answer(ENOSYS),
    }
}
