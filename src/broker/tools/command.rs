//! A host tool that is a program: started for each call, without a shell, in its own process group.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use turnjail_protocol::ToolSpec;

/// A program started for each call. Its input is JSON on standard input, its result what it prints: at most
/// 1 MiB of UTF-8. `TURNJAIL_CONTEXT` tells it channel, space, speaker and size of result as JSON.
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
    /// How long a call may take before its whole process group is killed: 1 to 600 s (60 s).
    pub timeout: Duration,
    /// Check the input against the specification's schema first.
    pub validate: bool,
}

impl CommandTool {
    /// A command with every default.
    pub fn new(spec: ToolSpec, argv: Vec<String>) -> Self {
        Self { spec, argv, env: BTreeMap::new(), timeout: Duration::from_secs(60), validate: false }
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
