//! What a machine may or may not have. Each is probed once, by an attempt.

use std::sync::OnceLock;

use crate::jails;

/// Something that a test needs of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fact {
    /// Jails can be made.
    Jail,
    /// The kernel has landlock.
    Landlock,
}

impl Fact {
    /// The word for it in `TURNJAIL_REQUIRE`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Jail => "jail",
            Self::Landlock => "landlock",
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
        let jail = JAIL.get_or_init(jails::landlock_abi);
        match (self, jail) {
            (_, Err(why)) => Some(why.clone()),
            (Self::Landlock, Ok(0)) => Some("the kernel has no landlock".to_owned()),
            (Self::Jail | Self::Landlock, Ok(_)) => None,
        }
    }
}
