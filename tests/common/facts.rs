//! What a machine may or may not have. Each is probed once, by an attempt.

use std::process::Command;
use std::sync::OnceLock;

use crate::jails;

/// Something that a test needs of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fact {
    /// Jails can be made.
    Jail,
    /// The kernel has landlock.
    Landlock,
    /// The program strace, and leave to trace one's own children.
    Strace,
}

impl Fact {
    /// The word for it in `TURNJAIL_REQUIRE`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Jail => "jail",
            Self::Landlock => "landlock",
            Self::Strace => "strace",
        }
    }

    /// Whether the variable `TURNJAIL_REQUIRE` (words separated by commas) turns a skip into a failure.
    pub(crate) fn required(self) -> bool {
        std::env::var("TURNJAIL_REQUIRE")
            .is_ok_and(|list| list.split(',').any(|word| word.trim() == self.name()))
    }

    /// Why the machine does not have it; none when it does.
    pub(crate) fn missing(self) -> Option<String> {
        static JAIL: OnceLock<Result<u32, String>> = OnceLock::new();
        let jail = || JAIL.get_or_init(jails::landlock_abi);
        match self {
            Self::Jail => jail().as_ref().err().cloned(),
            Self::Landlock => match jail() {
                Err(why) => Some(why.clone()),
                Ok(0) => Some("the kernel has no landlock".to_owned()),
                Ok(_) => None,
            },
            Self::Strace => strace_missing(),
        }
    }
}

fn strace_missing() -> Option<String> {
    let mut strace = Command::new("strace");
    strace.args(["-qq", "-e", "trace=none", "true"]);
    match strace.output() {
        Err(error) => Some(format!("strace cannot be started: {error}")),
        Ok(output) if !output.status.success() => {
            Some(format!("strace fails: {}", String::from_utf8_lossy(&output.stderr).trim()))
        }
        Ok(_) => None,
    }
}
