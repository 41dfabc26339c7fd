//! `turnjail completions` and `turnjail man`: both made from the same description as the help.

use std::process::ExitCode;

use clap::CommandFactory;

use super::arguments::Arguments;
use super::output::write_out;
use crate::error::{CliError, Exit};

/// Completions for one shell, to be sourced or put where the shell looks.
pub fn completions(shell: clap_complete::Shell) -> Result<ExitCode, CliError> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "turnjail", &mut text);
    write_out(&text)
}

/// The manual page with every subcommand below the main one.
pub fn page() -> Result<ExitCode, CliError> {
    let mut command = Arguments::command();
    command.build();
    let mut text = Vec::new();
    let mut written = clap_mangen::Man::new(command.clone()).render(&mut text);
    for command in command.get_subcommands().filter(|command| command.get_name() != "help") {
        let page = clap_mangen::Man::new(command.clone());
        written = written
            .and_then(|()| page.render_name_section(&mut text))
            .and_then(|()| page.render_synopsis_section(&mut text))
            .and_then(|()| page.render_options_section(&mut text));
    }
    written.map_err(|error| {
        CliError::new(
            Exit::Failed,
            "man",
            format_args!("the manual page cannot be made: {error}"),
            "use `turnjail --help`",
        )
    })?;
    write_out(&text)
}
