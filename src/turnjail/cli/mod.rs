//! The commands. Each file is one; this one says what there is and how it ends.

mod arguments;
mod config;
mod demo;
mod doctor;
pub mod failure;
mod image;
mod manual;
pub(crate) mod output;
mod places;
mod progress;
mod receipt;
mod session;
mod signals;
mod turn;
mod workspace;

use std::process::ExitCode;

use clap::Parser;

use crate::docker::{self, Here};
use crate::error::CliError;
use arguments::{Arguments, Command, ConfigCommand};
pub use output::{report, write_out};

/// Reads the command line, runs the command, and prints what went wrong, once.
pub fn run() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return arguments::refuse(&error),
    };
    let json = arguments.common.json;
    if crate::sys::stdout_was_closed() {
        return report(&output::unwritable("it is closed"), json);
    }
    match dispatch(&arguments) {
        Ok(code) => code,
        Err(error) => report(&error, json),
    }
}

fn dispatch(arguments: &Arguments) -> Result<ExitCode, CliError> {
    let common = &arguments.common;
    match &arguments.command {
        Command::Demo => demo::run(common),
        Command::Turn(turn) => turn::run(common, turn),
        Command::Config(ConfigCommand::Check) => config::check(common),
        Command::Image(command) => image::run(common, command),
        Command::Workspace(command) => workspace::run(common, command),
        Command::Docker { arguments } => {
            let here = Here { config: common.config.clone() };
            Ok(docker::run(&here, arguments.iter().cloned()))
        }
        Command::Doctor => doctor::run(common),
        Command::Completions { shell } => manual::completions(*shell),
        Command::Man => manual::page(),
    }
}
