//! What must be installed for a test, and the honest skip when it is not.

use std::path::{Path, PathBuf};

use libtest_mimic::{Failed, Trial};

/// Something a machine may have or not.
#[derive(Clone, Copy)]
pub enum Fact {
    /// Node.js and the reference MCP server.
    McpNode,
    /// An MCP server in Python.
    McpPython,
    /// Node.js and an OpenAI-compatible mock server.
    MockOpenai,
}

impl Fact {
    /// The word in `TURNJAIL_REQUIRE`.
    fn name(self) -> &'static str {
        match self {
            Self::McpNode => "mcp-node",
            Self::McpPython => "mcp-python",
            Self::MockOpenai => "mock-openai",
        }
    }

    /// The program that must be there.
    pub fn program(self) -> PathBuf {
        let installed = std::env::var_os("TURNJAIL_PEERS").map_or_else(
            || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers"),
            PathBuf::from,
        );
        installed.join(match self {
            Self::McpNode => "node_modules/.bin/mcp-server-everything",
            Self::McpPython => "venv/bin/mcp-server-time",
            Self::MockOpenai => "node_modules/.bin/llmock",
        })
    }

    fn missing(self) -> Option<String> {
        let program = self.program();
        let found = std::process::Command::new(&program).arg("--help").output();
        match found {
            Ok(_) => None,
            Err(error) => Some(format!(
                "{} does not run ({error}); src/broker/tests/peers/install puts it there",
                program.display()
            )),
        }
    }

    fn is_required(self) -> bool {
        let required = std::env::var("TURNJAIL_REQUIRE").unwrap_or_default();
        required.split(',').any(|name| name.trim() == self.name())
    }

    /// A test that needs this: counted as ignored, with the reason, where it is missing, and failed where
    /// it is required.
    pub fn trial(self, name: &'static str, check: fn()) -> Trial {
        match self.missing() {
            None => Trial::test(name, move || {
                check();
                Ok(())
            }),
            Some(why) if self.is_required() => {
                let message = format!("TURNJAIL_REQUIRE names {}, but {why}", self.name());
                Trial::test(name, move || Err(Failed::from(message)))
            }
            Some(why) => {
                eprintln!("skipped: {name} (needs {}: {why})", self.name());
                Trial::test(name, || Ok(())).with_ignored_flag(true)
            }
        }
    }
}
