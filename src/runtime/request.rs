//! A turn as asked for, and what is refused of it at once.

use turnjail_broker::Principal;
use turnjail_protocol::limits::{NAME_UNITS, TEXT_UNITS};
use turnjail_protocol::measure::utf16_len;

use crate::TurnError;

/// Who speaks, as the host admitted them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Speaker {
    /// Their id on their surface, at most 256 UTF-16 code units.
    pub id: String,
    /// The name they show, at most 256 UTF-16 code units. A label and nothing more.
    pub name: String,
    /// Who they are to the operator: 1 to 256 UTF-16 code units. It never enters a jail.
    pub principal_id: String,
}

/// One message to be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnRequest {
    /// Where it was said: `surface:id`, 1 to 256 UTF-16 code units without control characters.
    pub channel: String,
    /// The guild the channel belongs to, when it has one: likewise 1 to 256.
    pub space: Option<String>,
    /// Who said it.
    pub speaker: Speaker,
    /// What was said: at most 32,000 UTF-16 code units.
    pub text: String,
}

impl TurnRequest {
    pub(crate) fn check(&self) -> Result<(), TurnError> {
        check_key("channel", &self.channel)?;
        match self.channel.split_once(':') {
            Some((surface, id)) if !surface.is_empty() && !id.is_empty() => {}
            _ => return Err(TurnError::refused("the channel must be `surface:id`")),
        }
        if let Some(space) = &self.space {
            check_key("space", space)?;
        }
        if self.speaker.principal_id.is_empty() {
            return Err(TurnError::refused("the speaker has no principal"));
        }
        check_length("the speaker's id", &self.speaker.id, NAME_UNITS)?;
        check_length("the speaker's name", &self.speaker.name, NAME_UNITS)?;
        check_length("the speaker's principal", &self.speaker.principal_id, NAME_UNITS)?;
        check_length("the message", &self.text, TEXT_UNITS)
    }

    pub(crate) fn principal(&self) -> Principal {
        Principal {
            id: self.speaker.id.clone(),
            name: self.speaker.name.clone(),
            principal_id: self.speaker.principal_id.clone(),
        }
    }
}

fn check_key(what: &str, key: &str) -> Result<(), TurnError> {
    if key.is_empty() || utf16_len(key) > NAME_UNITS || key.chars().any(char::is_control) {
        return Err(TurnError::refused(format!(
            "the {what} must have 1 to {NAME_UNITS} UTF-16 code units and no control character"
        )));
    }
    Ok(())
}

fn check_length(what: &'static str, text: &str, limit: usize) -> Result<(), TurnError> {
    let units = utf16_len(text);
    if units > limit {
        return Err(TurnError::TooLarge {
            what,
            size: format!("{units} UTF-16 code units"),
            limit,
        });
    }
    Ok(())
}
