//! Settings under which every turn would fail stop start-up: the worker's and the broker's own checks,
//! run once on a turn with an empty text.

use turnjail_protocol::Turn;
use turnjail_protocol::limits::{REQUEST_ITEMS, TEXT_UNITS, TURN_BYTES};
use turnjail_protocol::measure::json_bytes;
use turnjail_protocol::offer::Offer;

use crate::SetupError;
use crate::request::{Speaker, TurnRequest};
use crate::settings::Settings;

/// The bytes of a control character in JSON.
const CONTROL_BYTES: usize = 6;

/// Checks a whole turn with an empty text.
pub(crate) fn check(settings: &Settings) -> Result<(), SetupError> {
    let nobody = Speaker { id: String::new(), name: String::new(), principal_id: String::new() };
    let request = TurnRequest {
        channel: "preflight:0".to_owned(),
        space: None,
        speaker: nobody,
        text: String::new(),
    };
    let turn = settings.turn(&request, true, false);
    let offer = Offer::new(&turn).map_err(|error| SetupError::EveryTurn {
        problem: error.to_string(),
        remedy: "declare fewer tools, or shorten their descriptions and schemas".to_owned(),
    })?;
    if offer.count() > REQUEST_ITEMS {
        return Err(SetupError::EveryTurn {
            problem: format!("{} functions are declared, over {REQUEST_ITEMS}", offer.count()),
            remedy: "declare fewer tools".to_owned(),
        });
    }
    let json = turn.to_json();
    check_size(json.len())?;
    Turn::parse(json.as_bytes()).map(drop).map_err(|error| SetupError::EveryTurn {
        problem: format!("the worker would not accept the turn: {error}"),
        remedy: "look at the tools' schemas: they may be nested too deep".to_owned(),
    })
}

/// The size of a turn without its text, and with the longest that guests can write.
fn check_size(empty: usize) -> Result<(), SetupError> {
    if empty > TURN_BYTES {
        return Err(SetupError::EveryTurn {
            problem: format!(
                "a turn without its text has {empty} bytes of JSON, over {TURN_BYTES}"
            ),
            remedy: "shorten the prompt, or declare fewer tools".to_owned(),
        });
    }
    let longest = empty + TEXT_UNITS * CONTROL_BYTES;
    if longest > TURN_BYTES {
        tracing::warn!(
            turn_bytes = empty,
            "a message of {TEXT_UNITS} control characters would make a turn of {longest} bytes, over {TURN_BYTES}, and be refused"
        );
    }
    Ok(())
}

/// Checks the prompt against its budget, measured as the worker does.
pub(crate) fn check_prompt(
    whole: &str,
    own: &str,
    index: Option<&str>,
    limit: usize,
) -> Result<(), SetupError> {
    let total = json_bytes(whole);
    if total <= limit {
        return Ok(());
    }
    let (sizes, remedy) = match index {
        None => (format!("has {total} bytes"), "shorten it, or raise budgets.prompt_bytes"),
        Some(index) => (
            format!(
                "has {} bytes and the index of skills {} ({total} together)",
                json_bytes(own),
                json_bytes(index)
            ),
            "shorten them, or raise budgets.prompt_bytes",
        ),
    };
    Err(SetupError::Option {
        option: "prompt",
        problem: format!("{sizes}, over budgets.prompt_bytes, which is {limit}"),
        remedy: Some(remedy.to_owned()),
    })
}
