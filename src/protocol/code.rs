//! Why a turn failed in the worker: one word, never content.

use std::fmt;

/// The reason of a failed turn, written to standard error as `{"error":"<code>"}` beside exit code
/// [`EXIT_FAILED`](crate::limits::EXIT_FAILED).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WorkerCode {
    /// Standard input held no turn: over the size, not JSON, or of the wrong shape.
    InvalidTurn,
    /// `history.json` is not a regular file, too large, or not a list of user and assistant entries.
    InvalidHistory,
    /// `memory.json` is not a regular file, too large, or not a list of entries.
    InvalidMemory,
    /// The tools' descriptions are over [`TOOL_DESCRIPTIONS_BYTES`](crate::limits::TOOL_DESCRIPTIONS_BYTES).
    ToolDescriptions,
    /// The request to the model is over its budget with nothing left to drop.
    RequestBudget,
    /// The broker refused the model call.
    ModelRefused,
    /// The model's answer has the wrong shape, is not JSON, or is too large.
    ModelInvalid,
    /// The model's last message is empty or too long.
    NoFinalText,
    /// The model asked for more calls in one message than
    /// [`CALLS_PER_MESSAGE`](crate::limits::CALLS_PER_MESSAGE).
    TooManyCalls,
    /// The time zone is not known.
    TimeZone,
    /// A file of the worker's own or the broker's socket could not be read or written.
    Io,
    /// The allocator got no memory; goes with
    /// [`EXIT_OUT_OF_MEMORY`](crate::limits::EXIT_OUT_OF_MEMORY).
    OutOfMemory,
    /// A fault of the worker itself; its message is kept back, since it may hold content.
    Internal,
}

impl WorkerCode {
    /// Every code.
    pub const ALL: [Self; 13] = [
        Self::InvalidTurn,
        Self::InvalidHistory,
        Self::InvalidMemory,
        Self::ToolDescriptions,
        Self::RequestBudget,
        Self::ModelRefused,
        Self::ModelInvalid,
        Self::NoFinalText,
        Self::TooManyCalls,
        Self::TimeZone,
        Self::Io,
        Self::OutOfMemory,
        Self::Internal,
    ];

    /// What it means, as one clause for whoever runs the host.
    pub fn words(self) -> &'static str {
        match self {
            Self::InvalidTurn => "the worker does not accept the turn",
            Self::InvalidHistory => "the channel's history.json is damaged",
            Self::InvalidMemory => "the workspace's memory.json is damaged",
            Self::ToolDescriptions => "the tools' descriptions are too large",
            Self::RequestBudget => "the conversation does not fit into a request to the model",
            Self::ModelRefused => "the model could not be reached or refused the request",
            Self::ModelInvalid => "the model's answer is no chat completion",
            Self::NoFinalText => "the model's final text is empty or too long",
            Self::TooManyCalls => "the model asked for too many tool calls at once",
            Self::TimeZone => "the worker does not know the time zone",
            Self::Io => "a file of the workspace or the broker's socket could not be used",
            Self::OutOfMemory => "the worker reached its memory limit",
            Self::Internal => "the worker failed by a fault of its own",
        }
    }

    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidTurn => "invalid_turn",
            Self::InvalidHistory => "invalid_history",
            Self::InvalidMemory => "invalid_memory",
            Self::ToolDescriptions => "tool_descriptions",
            Self::RequestBudget => "request_budget",
            Self::ModelRefused => "model_refused",
            Self::ModelInvalid => "model_invalid",
            Self::NoFinalText => "no_final_text",
            Self::TooManyCalls => "too_many_calls",
            Self::TimeZone => "time_zone",
            Self::Io => "io",
            Self::OutOfMemory => "out_of_memory",
            Self::Internal => "internal",
        }
    }

    /// The line that the worker writes to standard error, with its newline.
    pub fn to_line(self) -> String {
        format!("{{\"error\":\"{}\"}}\n", self.as_str())
    }

    /// Finds the code in a worker's standard error: the last line that is exactly one. A worker is
    /// not trusted, so anything else counts as no code.
    pub fn from_stderr(stderr: &[u8]) -> Option<Self> {
        let lines = stderr.rsplit(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.take(64).find_map(|line| {
            Self::ALL.into_iter().find(|code| code.to_line().trim_end().as_bytes() == line)
        })
    }
}

impl fmt::Display for WorkerCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_found_again_in_its_line() {
        for code in WorkerCode::ALL {
            assert_eq!(WorkerCode::from_stderr(code.to_line().as_bytes()), Some(code));
        }
    }

    #[test]
    fn the_last_line_that_is_a_code_counts() {
        let stderr = b"noise\n{\"error\":\"io\"}\n{\"error\":\"time_zone\"}\nmore noise\n";
        assert_eq!(WorkerCode::from_stderr(stderr), Some(WorkerCode::TimeZone));
    }

    #[test]
    fn what_is_not_exactly_a_code_is_none() {
        for stderr in
            [&b""[..], b"io", b"{\"error\":\"other\"}\n", b"{\"error\":\"io\"} \n", b"\xff\n"]
        {
            assert_eq!(WorkerCode::from_stderr(stderr), None);
        }
    }
}
