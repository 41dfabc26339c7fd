//! The turn, the reply, labels, and how limits are counted: plain types shared by host and worker.
#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};

/// The worker's answer: JSON on its standard output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reply {
    /// Whether the turn succeeded.
    pub ok: bool,
    /// What to say to the guest; at most 100,000 UTF-16 code units.
    pub text: String,
}
