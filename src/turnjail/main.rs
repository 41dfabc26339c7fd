//! The command line: `turnjail demo`, `turnjail turn` and the rest. See `turnjail --help`.
#![deny(unsafe_code)]

mod cli;
mod config;
mod demo;
mod docker;
mod error;
mod host;
mod sys;

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Err(error) = host::protect_this_process() {
        return cli::report(&error, false);
    }
    let mut arguments = std::env::args_os();
    if docker::is_called(arguments.next().as_deref()) {
        return docker::run(&docker::Here::default(), arguments);
    }
    cli::run()
}
