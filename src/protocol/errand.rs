//! Errands: what a worker does for the host instead of a turn, in the same jail, without a broker.
//!
//! The host never looks at what stands under a workspace, because all of it is a guest's. So measuring,
//! clearing and mending one is the worker's: an errand comes on standard input in a turn's place, and its
//! outcome is the text of the reply. A worker of an older image answers that the turn is invalid.

use serde_json::json;

use crate::json::{self, Map, Value};

/// An errand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errand {
    /// Count what is in the workspace.
    Measure,
    /// Remove everything in it.
    Clear,
    /// Put a history or memory aside that is not readable as one, so that turns work again.
    Repair,
}

/// What became of an errand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErrandOutcome {
    /// Of [`Errand::Measure`].
    Measured {
        /// Files, directories and everything else.
        entries: u64,
        /// Bytes of regular files.
        bytes: u64,
        /// Part of it was too deep or not readable and is not counted.
        cut: bool,
    },
    /// Of [`Errand::Clear`].
    Cleared {
        /// Entries removed.
        removed: u64,
        /// Entries that could not be removed.
        left: u64,
    },
    /// Of [`Errand::Repair`].
    Repaired {
        /// Files put aside: the name, and the name that they have now; empty for what was no file and
        /// is gone.
        aside: Vec<(String, String)>,
    },
}

impl Errand {
    const ALL: [Self; 3] = [Self::Measure, Self::Clear, Self::Repair];

    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Measure => "measure",
            Self::Clear => "clear",
            Self::Repair => "repair",
        }
    }

    /// What the worker reads.
    pub fn to_json(self) -> String {
        json!({ "errand": self.as_str() }).to_string()
    }

    /// Reads an errand; none when standard input holds something else, such as a turn.
    pub fn parse(input: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(input).ok()?;
        let Value::Object(map) = json::parse(text).ok()? else { return None };
        let word = map.get("errand").filter(|_| map.len() == 1)?.as_str()?;
        Self::ALL.into_iter().find(|errand| errand.as_str() == word)
    }
}

impl ErrandOutcome {
    /// The text of the worker's reply.
    pub fn to_json(&self) -> String {
        match self {
            Self::Measured { entries, bytes, cut } => {
                json!({ "entries": entries, "bytes": bytes, "cut": cut })
            }
            Self::Cleared { removed, left } => json!({ "removed": removed, "left": left }),
            Self::Repaired { aside } => {
                let pairs = aside.iter().map(|(from, to)| (from.clone(), Value::from(to.clone())));
                json!({ "aside": pairs.collect::<Map<_, _>>() })
            }
        }
        .to_string()
    }

    /// Reads the text of a reply; none when it is no outcome of `errand`.
    pub fn parse(errand: Errand, text: &str) -> Option<Self> {
        let Value::Object(map) = json::parse(text).ok()? else { return None };
        let number = |name: &str| map.get(name).and_then(Value::as_u64);
        Some(match errand {
            Errand::Measure => Self::Measured {
                entries: number("entries")?,
                bytes: number("bytes")?,
                cut: map.get("cut")?.as_bool()?,
            },
            Errand::Clear => Self::Cleared { removed: number("removed")?, left: number("left")? },
            Errand::Repair => {
                let aside = map.get("aside")?.as_object()?.iter();
                let pairs = aside.map(|(from, to)| Some((from.clone(), to.as_str()?.to_owned())));
                Self::Repaired { aside: pairs.collect::<Option<_>>()? }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errands_survive_the_wire_and_are_no_turns() {
        for errand in Errand::ALL {
            assert_eq!(Errand::parse(errand.to_json().as_bytes()), Some(errand));
            assert!(crate::Turn::parse(errand.to_json().as_bytes()).is_err());
        }
        for other in ["", "{}", "{\"errand\":\"x\"}", "{\"errand\":\"clear\",\"text\":\"\"}", "[]"]
        {
            assert_eq!(Errand::parse(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn outcomes_survive_the_wire() {
        let aside = vec![("memory.json".to_owned(), "memory.json.broken-1".to_owned())];
        for (errand, outcome) in [
            (Errand::Measure, ErrandOutcome::Measured { entries: 3, bytes: 1 << 40, cut: true }),
            (Errand::Clear, ErrandOutcome::Cleared { removed: 2, left: 1 }),
            (Errand::Repair, ErrandOutcome::Repaired { aside }),
        ] {
            assert_eq!(ErrandOutcome::parse(errand, &outcome.to_json()), Some(outcome));
        }
        assert_eq!(ErrandOutcome::parse(Errand::Clear, "{\"removed\":-1,\"left\":0}"), None);
    }
}
