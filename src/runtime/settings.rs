//! Options resolved: everything that is the same for every turn, checked.

use std::time::Duration;

use nix::unistd::{getegid, geteuid};
use turnjail_driver::Limits;
use turnjail_protocol::limits::TURN_BYTES;
use turnjail_protocol::{Budgets, Files, McpSpec, Speaker, ToolSpec, Turn};

use crate::options::WorkspaceMode;
use crate::request::TurnRequest;
use crate::{SetupError, TurnError};

/// What every turn of a runtime has in common.
#[derive(Debug)]
pub(crate) struct Settings {
    pub image: String,
    pub mode: WorkspaceMode,
    pub model: String,
    pub prompt: String,
    pub time_zone: String,
    pub tools: Vec<ToolSpec>,
    pub mcp: Vec<McpSpec>,
    pub budgets: Option<Budgets>,
    pub files: Option<Files>,
    pub limits: Limits,
    pub turn_timeout: Duration,
    pub max_waiting: usize,
    pub max_wait: Duration,
    pub ids: Ids,
    /// The options that an older worker would ignore.
    pub protocol_2: Vec<&'static str>,
}

/// The ids of the host, which are the worker's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ids {
    pub uid: u32,
    pub gid: u32,
}

impl Ids {
    /// The process's own ids; root's are refused.
    pub fn of_process() -> Result<Self, SetupError> {
        let ids = Self { uid: geteuid().as_raw(), gid: getegid().as_raw() };
        if ids.uid == 0 || ids.gid == 0 {
            return Err(SetupError::User { uid: ids.uid, gid: ids.gid });
        }
        Ok(ids)
    }
}

impl Settings {
    /// The bytes of a tool's result that the worker keeps.
    pub fn tool_result_bytes(&self) -> usize {
        self.budgets.unwrap_or_default().tool_result()
    }

    /// The turn that a worker is given.
    pub fn turn(&self, request: &TurnRequest, channel_history: bool, reset: bool) -> Turn {
        Turn {
            text: request.text.clone(),
            // Whose principal the speaker is stays with the host.
            speaker: Speaker::new(&request.speaker.id, &request.speaker.name),
            model: self.model.clone(),
            prompt: self.prompt.clone(),
            time_zone: self.time_zone.clone(),
            reset,
            tools: self.tools.clone(),
            mcp: self.mcp.clone(),
            budgets: self.budgets,
            channel_history,
            files: self.files,
        }
    }
}

/// The turn's JSON, if a worker may be given that much.
pub(crate) fn turn_json(turn: &Turn) -> Result<String, TurnError> {
    let json = turn.to_json();
    if json.len() > TURN_BYTES {
        return Err(TurnError::TooLarge {
            what: "the turn's JSON",
            size: format!("{} bytes", json.len()),
            limit: TURN_BYTES,
        });
    }
    Ok(json)
}
