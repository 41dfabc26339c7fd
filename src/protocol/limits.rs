//! Every number of the protocol, once.
//!
//! "Units" are UTF-16 code units, "JSON bytes" the UTF-8 length of a value's JSON encoding (see
//! [`measure`](crate::measure)), "bytes" plain bytes.

/// Protocol version of this host and worker.
pub const SANDBOX_PROTOCOL: u32 = 2;

/// A turn on the worker's standard input: bytes.
pub const TURN_BYTES: usize = 262_144;
/// A worker's standard output that the host reads before it kills the worker: bytes.
pub const STDOUT_BYTES: usize = 2 * 1024 * 1024;
/// A worker's standard error that the host reads before it kills the worker: bytes.
pub const STDERR_BYTES: usize = 128 * 1024;
/// A reply's text: units.
pub const REPLY_UNITS: usize = 100_000;

/// A message from a guest: units.
pub const TEXT_UNITS: usize = 32_000;
/// An id or name of a speaker or principal, and a channel, surface or space: units.
pub const NAME_UNITS: usize = 256;
/// The id of a tool call: units.
pub const CALL_ID_UNITS: usize = 128;
/// A tool's or MCP server's name: characters, all ASCII.
pub const TOOL_NAME_CHARS: usize = 48;
/// A function's name as the model sees it: characters, all ASCII.
pub const FUNCTION_NAME_CHARS: usize = 64;

/// Arrays and objects inside each other that JSON from outside may have.
pub const JSON_DEPTH: usize = 127;
/// The same for a tool's `parameters` and other fields: a model request puts four levels around them.
pub const TOOL_SPEC_DEPTH: usize = JSON_DEPTH - 4;
/// The same for the arguments of an MCP call: `{params: {arguments}}` puts two levels around them.
pub const MCP_ARGUMENTS_DEPTH: usize = JSON_DEPTH - 2;

/// The body of a request to the broker: bytes.
pub const BROKER_REQUEST_BYTES: usize = 262_144;
/// The body of the broker's answer: bytes.
pub const BROKER_ANSWER_BYTES: usize = 1_048_576;

/// The system prompt unless `budgets.promptBytes` says otherwise: JSON bytes.
pub const PROMPT_BYTES: usize = 8_192;
/// A tool's result as the model sees it unless `budgets.toolResultBytes` says otherwise: JSON bytes.
pub const TOOL_RESULT_BYTES: usize = 4_096;
/// A model request unless `budgets.requestBytes` says otherwise: bytes.
pub const REQUEST_BYTES: usize = 196_608;
/// What `budgets.promptBytes` may be.
pub const PROMPT_BYTES_RANGE: std::ops::RangeInclusive<usize> = 1_024..=65_536;
/// What `budgets.toolResultBytes` may be.
pub const TOOL_RESULT_BYTES_RANGE: std::ops::RangeInclusive<usize> = 512..=65_536;
/// What `budgets.requestBytes` may be.
pub const REQUEST_BYTES_RANGE: std::ops::RangeInclusive<usize> = 95_744..=245_760;

/// All tool descriptions together: JSON bytes.
pub const TOOL_DESCRIPTIONS_BYTES: usize = 32_768;
/// The user entry of a request (speaker and message): JSON bytes.
pub const USER_ENTRY_BYTES: usize = 49_152;
/// Each of the two memory lists in the system message: JSON bytes.
pub const MEMORY_PREVIEW_BYTES: usize = 4_096;
/// The model's text beside tool calls: JSON bytes.
pub const CALL_TEXT_BYTES: usize = 4_096;
/// The arguments of a call kept in the transcript: JSON bytes.
pub const CALL_ARGUMENTS_BYTES: usize = 2_048;
/// Model calls in a turn.
pub const MODEL_CALLS: usize = 12;
/// Tool calls in one message of the model.
pub const CALLS_PER_MESSAGE: usize = 8;
/// Functions and messages in one model request.
pub const REQUEST_ITEMS: usize = 128;

/// Entries of a history.
pub const HISTORY_ENTRIES: usize = 20;
/// One entry of a history: JSON bytes.
pub const HISTORY_ENTRY_BYTES: usize = 8_192;
/// The history's file: bytes; a larger one is invalid.
pub const HISTORY_FILE_BYTES: usize = 4 * 1024 * 1024;

/// Entries of a memory.
pub const MEMORY_ENTRIES: usize = 256;
/// A memory's key after trimming: units.
pub const MEMORY_KEY_UNITS: usize = 128;
/// A memory's text: units.
pub const MEMORY_TEXT_UNITS: usize = 2_048;
/// The memory as it is saved: bytes.
pub const MEMORY_BYTES: usize = 524_288;
/// The memory's file: bytes; a larger one is invalid.
pub const MEMORY_FILE_BYTES: usize = 1024 * 1024;

/// One workspace file unless `files.maxFileBytes` says otherwise: bytes.
pub const MAX_FILE_BYTES: u64 = 256 * 1024;
/// All workspace files together unless `files.maxTotalBytes` says otherwise: bytes.
pub const MAX_TOTAL_BYTES: u64 = 32 * 1024 * 1024;
/// The path of a workspace file: bytes.
pub const FILE_PATH_BYTES: usize = 512;
/// The parts of the path of a workspace file.
pub const FILE_PATH_LEVELS: usize = 16;

/// The worker's exit code after a failure that it reported itself.
pub const EXIT_FAILED: i32 = 1;
/// The worker's exit code for arguments that it does not know.
pub const EXIT_USAGE: i32 = 2;
/// The worker's exit code when the allocator got no memory: under a memory limit the host reads this
/// as "over the memory limit" (`ExitReason::Memory` of a driver).
pub const EXIT_OUT_OF_MEMORY: i32 = 112;
