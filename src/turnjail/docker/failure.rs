//! Why a command did not do what it was told, in Docker's way: a line on standard error and a code.

use std::fmt::Display;
use std::process::ExitCode;

use turnjail_driver::DriverError;
use turnjail_images::ImageError;

use crate::cli::output::visible;
use crate::error::CliError;

/// The command line or the engine failed, and no container ran.
pub const ENGINE: u8 = 125;

/// Printed once, by the dispatcher.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    text: String,
    code: u8,
}

impl Failure {
    /// With the code that says that no container ran.
    pub fn engine(text: impl Display) -> Self {
        Self { text: text.to_string(), code: ENGINE }
    }

    /// With the code of a command that found nothing, for example.
    pub fn plain(text: impl Display) -> Self {
        Self { text: text.to_string(), code: 1 }
    }

    /// What the engine behind Docker's client would have answered to `run`.
    pub fn daemon(text: impl Display, remedy: impl Display) -> Self {
        Self::engine(format!("docker: Error response from daemon: {text}.\n{remedy}"))
    }

    /// Why a driver did not run a program.
    pub fn driver(error: &DriverError) -> Self {
        Self::daemon(error, error.remedy().unwrap_or("run `turnjail doctor`"))
    }

    /// The same code for what a command says in its own words.
    pub fn print(self) -> ExitCode {
        // Some of it may be an image's own words.
        eprintln!("{}", visible(&self.text));
        ExitCode::from(self.code)
    }
}

impl From<CliError> for Failure {
    fn from(error: CliError) -> Self {
        let lines =
            error.problems.iter().map(|problem| format!("{}\n{}", problem.cause, problem.remedy));
        Self::engine(lines.collect::<Vec<_>>().join("\n"))
    }
}

impl From<ImageError> for Failure {
    fn from(error: ImageError) -> Self {
        match &error {
            ImageError::Absent(reference) => {
                Self::plain(format!("Error: No such image: {reference}"))
            }
            _ => Self::plain(format!("Error: {error}\n{}", error.remedy())),
        }
    }
}
