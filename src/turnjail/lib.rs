//! turnjail runs each turn of a guest-facing chat agent in a rootless jail of its own.
//!
//! This crate is the face for programs that embed it: the runtime, its options, the broker's tools and
//! credentials, the namespace driver and the image store, under one roof. The program `turnjail` is
//! the same with a command line in front; turn its feature `cli` off to have the library alone.
//!
//! ```no_run
//! use std::sync::Arc;
//! use turnjail::{
//!     BUILTIN_IMAGE, BrokerSettings, Credential, JailDriver, JailOptions, SandboxOptions,
//!     SandboxRuntime, Speaker, TurnRequest,
//! };
//!
//! # async fn embed() -> Result<(), Box<dyn std::error::Error>> {
//! let driver = JailDriver::start(JailOptions::new("/var/lib/bot/images".into())).await?;
//! let broker = BrokerSettings::new(
//!     "gpt-4o-mini",
//!     "https://api.openai.com/v1/chat/completions",
//!     Credential::Env("OPENAI_API_KEY".into()),
//! );
//! let options =
//!     SandboxOptions::new(BUILTIN_IMAGE, "/run/bot/turns", "/var/lib/bot/workspaces", broker);
//! let runtime = SandboxRuntime::new(options, Arc::new(driver)).await?;
//! runtime.verify_image().await?;
//!
//! let result = runtime
//!     .run_turn(TurnRequest {
//!         channel: "discord:1234".into(),
//!         space: None,
//!         speaker: Speaker { id: "42".into(), name: "Ann".into(), principal_id: "discord:42".into() },
//!         text: "Hello!".into(),
//!     })
//!     .await?;
//! println!("{}", result.reply.text);
//! runtime.dispose().await;
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub use turnjail_broker::{
    BrokerSettings, CallOutcome, CallRecord, CallRoute, CallSummary, CallbackTarget, CallbackTool,
    CommandTool, Credential, CredentialError, CredentialHeader, CredentialRequest,
    CredentialSource, Event, EventKind, EventReceiver, EventSender, HostTool, McpScope, McpServer,
    McpTool, McpTransport, OutputLimitField, Principal, Secret, TokenUsage, Tool, ToolContext,
    ToolError, event_channel,
};
pub use turnjail_docker::{DockerDriver, DockerOptions};
pub use turnjail_driver::{
    ContainerDriver, ContainerSpec, DriverError, ExitReason, ImageProtocol, Limit, Limits, Outcome,
    Progress, Receipt, Timing, Usage, Wall, WallState,
};
pub use turnjail_images::{BUILTIN as BUILTIN_IMAGE, Image, ImageError, ImageStore};
pub use turnjail_jail::{JailDriver, JailOptions, Policy, doctor};
pub use turnjail_protocol::{Budgets, Files, Reply, ToolSpec};
pub use turnjail_runtime::{
    AuditLog, AuditRecord, AuditSink, DEFAULT_PROMPT, Load, PendingTurn, SandboxOptions,
    SandboxRuntime, SetupError, Speaker, TurnDirectories, TurnError, TurnReceipt, TurnRequest,
    TurnResult, WorkspaceInfo, WorkspaceMode, WorkspaceSize, Workspaces, channel_state,
    channel_workspace, guild_workspace, turn_directories,
};
