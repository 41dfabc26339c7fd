//! The turn, the reply, labels, and how limits are counted: plain types shared by host and worker.
//!
//! No I/O here, and nothing that knows the host. Sizes are counted as the TypeScript system counted
//! them: see [`measure`] for the units, [`limits`] for the numbers, [`json`] for reading and writing.
#![forbid(unsafe_code)]

mod code;
pub mod errand;
pub mod json;
pub mod labels;
pub mod limits;
pub mod measure;
mod names;
pub mod offer;
mod reply;
mod spec;
pub mod text;
mod turn;

pub use code::WorkerCode;
pub use labels::{
    BROKER_DIR, BROKER_SOCKET, CALL_LIMIT_REACHED, CHANNEL_PATH, DATA_LIMIT_LABEL,
    DUMMY_CREDENTIAL, MOUNT_POINTS, PROFILE_LABEL, PROTOCOL_LABEL, TOOL_REFUSED, WORKER_FAILED,
    WORKSPACE_PATH,
};
pub use limits::SANDBOX_PROTOCOL;
pub use names::{valid_call_id, valid_function_name, valid_tool_name};
pub use reply::{InvalidReply, Reply};
pub use spec::{McpSpec, ToolSpec};
pub use turn::{Budgets, Files, InvalidTurn, Speaker, Turn};
