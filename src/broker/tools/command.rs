//! A host tool that is a program: started for each call, without a shell, in its own process group.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde_json::{Map, Value};
use turnjail_protocol::limits::BROKER_ANSWER_BYTES;
use turnjail_protocol::{ToolSpec, json};

use super::ToolContext;
use crate::call::{Call, Failure};
use crate::error::SetupError;
use crate::events::CallOutcome;
use crate::policy::check_time;
use crate::process::{self, Program, ProgramError};

/// What tells a program about the turn it serves.
const CONTEXT_VARIABLE: &str = "TURNJAIL_CONTEXT";

/// A program started for each call. Its input is JSON on standard input, its result what it prints: at most
/// 1 MiB of UTF-8. `TURNJAIL_CONTEXT` tells it channel, space, speaker and size of result as JSON. It runs
/// at `/`; an exit code other than 0 is a failure.
///
/// Its process group is killed when the call ends for any reason but one: a host that is killed itself
/// (`SIGKILL`) leaves a program of a call in flight behind. Its input has ended by then and its output leads
/// nowhere, but it goes on until it notices or ends; see the crate's documentation.
#[derive(Clone)]
#[non_exhaustive]
pub struct CommandTool {
    /// What the model is told about the tool.
    pub spec: ToolSpec,
    /// The program and its arguments; a program without a slash is looked for in `PATH`.
    pub argv: Vec<String>,
    /// The environment beside `PATH` and `TURNJAIL_CONTEXT`; nothing else is inherited. Values are kept out
    /// of logs and `Debug`.
    pub env: BTreeMap<String, String>,
    /// How long a call may take before its whole process group is killed: 1 to 600 s (60 s), and never
    /// longer than `model_timeout`.
    pub timeout: Duration,
    /// Check the input against the specification's schema first.
    pub validate: bool,
}

impl CommandTool {
    /// A command with every default.
    pub fn new(spec: ToolSpec, argv: Vec<String>) -> Self {
        Self { spec, argv, env: BTreeMap::new(), timeout: Duration::from_secs(60), validate: false }
    }

    pub(super) fn checked(&self, setting: &str) -> Result<Self, SetupError> {
        process::check_program(setting, &self.argv, &self.env)?;
        if self.env.contains_key(CONTEXT_VARIABLE) {
            return Err(SetupError::setting(
                format!("{setting}.env"),
                format!("names {CONTEXT_VARIABLE}, which the broker sets itself"),
            ));
        }
        check_time(&format!("{setting}.timeout"), self.timeout)?;
        Ok(self.clone())
    }

    pub(super) async fn run(
        &self,
        input: &Map<String, Value>,
        context: &ToolContext,
        call: &Call<'_>,
    ) -> Result<String, Failure> {
        let input = json::stringify(&Value::Object(input.clone()));
        let program = Program {
            argv: &self.argv,
            env: &self.env,
            context: Some((CONTEXT_VARIABLE, context.to_json().to_string())),
            stdin: input.into_bytes(),
            output_limit: BROKER_ANSWER_BYTES,
            timeout: self.timeout.min(call.time_left()),
        };
        process::run(program).await.map_err(|error| {
            let outcome = match &error {
                ProgramError::Timeout { .. } => CallOutcome::Timeout,
                ProgramError::TooLarge { .. } => CallOutcome::TooLarge,
                _ => CallOutcome::Tool,
            };
            Failure::failed(outcome, error.to_string())
        })
    }
}

impl fmt::Debug for CommandTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&String> = self.env.keys().collect();
        f.debug_struct("CommandTool")
            .field("name", &self.spec.name)
            .field("program", &self.argv.first())
            .field("env", &names)
            .field("timeout", &self.timeout)
            .field("validate", &self.validate)
            .finish()
    }
}
