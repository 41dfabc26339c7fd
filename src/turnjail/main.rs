//! The command line: `turnjail demo`, `turnjail turn` and the rest. See `turnjail --help`.
#![forbid(unsafe_code)]

mod cli;
mod config;
mod demo;
mod error;
mod host;

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Err(error) = host::protect_this_process() {
        return cli::report(&error, false);
    }
    cli::run()
}
