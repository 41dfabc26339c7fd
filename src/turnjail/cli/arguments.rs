//! What can be typed.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use super::output::{Palette, unwritable, write_out};
use crate::config::{Config, ForImages, Host, Overlay, load, load_for_images, load_without_file};
use crate::error::{CliError, Exit};

/// How every command ends; shown below the help and in the manual.
pub const EXIT_CODES: &str = "\
Exit codes:
    0  ok
    1  the turn failed, or its reply says that it is not ok
    2  the command line or the configuration is wrong
    3  refused as busy or stopped
    4  this host cannot run jails (turnjail doctor says why)
    5  it can, but a required policy is not met
  124  the turn's time was used up
  130  ended by Ctrl-C (143: by SIGTERM or SIGHUP); the turn was cancelled and nothing of it is left";

/// Runs guest-facing agent turns in rootless jails.
#[derive(Debug, Parser)]
#[command(name = "turnjail", version, after_help = EXIT_CODES, max_term_width = 100)]
pub struct Arguments {
    /// What every command understands.
    #[command(flatten)]
    pub common: Common,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Debug, Args)]
pub struct Common {
    /// The configuration [default: $XDG_CONFIG_HOME/turnjail/turnjail.toml]
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "TURNJAIL_CONFIG",
        hide_env_values = true
    )]
    pub config: Option<PathBuf>,
    /// Set one setting, above environment and file, for example limits.memory_mb=256
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Write JSON for machines instead of text for people
    #[arg(long, global = true)]
    pub json: bool,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show everything for real on this machine: no set-up, no key
    Demo,
    /// Answer one message by the configuration
    Turn(TurnArguments),
    /// Look at the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Import, pull, list, export, verify and remove images
    #[command(subcommand)]
    Image(super::image::ImageCommand),
    /// Find, measure, forget or mend what a channel or guild has stored
    #[command(subcommand)]
    Workspace(WorkspaceCommand),
    /// Find out whether this host can run jails, and what to do if not
    Doctor,
    /// Answer as docker does, for programs that drive it; also by the name turnjail-docker
    #[command(disable_help_flag = true)]
    Docker {
        /// What docker would be told
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
        arguments: Vec<std::ffi::OsString>,
    },
    /// Print the completions of a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page (roff)
    Man,
}

/// Looking at the configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check it and print what is in effect, and where each value came from
    Check,
}

/// What to do with stored things.
#[derive(Debug, Subcommand)]
pub enum WorkspaceCommand {
    /// Print the directory of a channel; its own state on a second line where the workspace is shared
    Path(WorkspaceArguments),
    /// Print every workspace with its size and last use
    List,
    /// Remove a channel's things: its workspace, or beside a shared one its own state
    Remove(WorkspaceArguments),
    /// Put a history or memory aside that keeps a channel from working
    Repair(WorkspaceArguments),
}

/// Whose things.
#[derive(Debug, Args)]
pub struct WorkspaceArguments {
    /// The channel
    #[arg(long, value_name = "CHANNEL", default_value = "cli:default")]
    pub channel: String,
    /// The guild that the channel belongs to
    #[arg(long, value_name = "SPACE")]
    pub space: Option<String>,
    /// The workspace that all channels of the guild share
    #[arg(long, requires = "space")]
    pub shared: bool,
}

/// One message.
#[derive(Debug, Args)]
pub struct TurnArguments {
    /// The channel that the message comes from
    #[arg(long, value_name = "CHANNEL", default_value = "cli:default")]
    pub channel: String,
    /// Who speaks, as the channel knows them [default: the user's name]
    #[arg(long, value_name = "ID")]
    pub speaker: Option<String>,
    /// The name that the speaker goes by [default: the speaker's id]
    #[arg(long, value_name = "NAME")]
    pub speaker_name: Option<String>,
    /// Who the host holds responsible; never told to the worker [default: cli:<uid>]
    #[arg(long, value_name = "PRINCIPAL")]
    pub principal: Option<String>,
    /// The guild that the channel belongs to
    #[arg(long, value_name = "SPACE")]
    pub space: Option<String>,
    /// Forget the history first; memory stays
    #[arg(long)]
    pub fresh: bool,
    /// The message; - reads it from standard input
    #[arg(value_name = "TEXT")]
    pub text: String,
}

impl Common {
    /// Loads the configuration that these options name. Where the usual file is absent, flags and
    /// variables may say everything.
    pub fn load(&self) -> Result<Config, CliError> {
        let host = Host::of_this_process();
        let overlay = self.overlay()?;
        let Some(named) = self.config.clone() else {
            let file = host.config_file();
            let alone = overlay.says_something_of("model");
            return match file {
                Some(file) if !alone || file.exists() => load(&file, overlay, &host),
                _ if alone => load_without_file(overlay, &host),
                _ => Err(CliError::usage(
                    "no configuration is named, and neither XDG_CONFIG_HOME nor HOME is set",
                    "name one with --config FILE",
                )),
            };
        };
        let file = std::path::absolute(&named).map_err(|error| {
            CliError::usage(
                format_args!("the configuration {} cannot be found: {error}", named.display()),
                "name it by its absolute path",
            )
        })?;
        load(&file, overlay, &host)
    }

    /// Loads what the commands that deal with images need, from the usual file where there is one.
    pub fn load_for_images(&self) -> Result<ForImages, CliError> {
        let host = Host::of_this_process();
        let overlay = self.overlay()?;
        let file = match &self.config {
            Some(named) => Some(std::path::absolute(named).map_err(|error| {
                CliError::usage(
                    format_args!("the configuration {} cannot be found: {error}", named.display()),
                    "name it by its absolute path",
                )
            })?),
            None => host.config_file().filter(|file| file.exists()),
        };
        load_for_images(file.as_deref(), overlay, &host)
    }

    /// Whether the configuration's usual place holds one.
    pub fn default_file_exists() -> bool {
        Host::of_this_process().config_file().is_some_and(|file| file.exists())
    }

    fn overlay(&self) -> Result<Overlay, CliError> {
        let flags = self.set.iter().map(|set| {
            // Not repeated in the message: somebody may have typed a secret.
            let (key, value) = set.split_once('=').ok_or_else(|| {
                CliError::usage(
                    "an option --set has no =",
                    "write --set KEY=VALUE, for example --set limits.memory_mb=256",
                )
            })?;
            let key = key.trim();
            Ok((key.to_owned(), value.to_owned(), format!("--set {key}")))
        });
        let environment = std::env::vars_os().filter_map(|(name, value)| {
            let name = name.into_string().ok()?;
            let ours = name.starts_with("TURNJAIL_");
            ours.then_some((name, value.into_string().unwrap_or_default()))
        });
        Ok(Overlay {
            flags: flags.collect::<Result<_, CliError>>()?,
            environment: environment.collect(),
        })
    }
}

/// Help and version are no errors; everything else is a wrong command line, in the same two lines.
pub fn refuse(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let help = error.render();
        let text =
            if Palette::of_stdout().is_on() { help.ansi().to_string() } else { help.to_string() };
        let printed = if crate::sys::stdout_was_closed() {
            Err(unwritable("it is closed"))
        } else {
            write_out(text.as_bytes())
        };
        return printed.unwrap_or_else(|error| super::report(&error, false));
    }
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return ExitCode::from(Exit::Usage.code());
    }
    let json = std::env::args_os().any(|argument| argument == "--json");
    let rendered = error.render().to_string();
    let mut paragraphs = rendered.split("\n\n");
    let cause = paragraphs.next().unwrap_or_default().trim().trim_start_matches("error: ");
    let tip = paragraphs
        .flat_map(str::lines)
        .map(str::trim)
        .find(|line| line.starts_with("tip: "))
        .map_or("`turnjail --help` shows what can be typed", |line| {
            line.trim_start_matches("tip: ")
        });
    super::report(&CliError::usage(cause, tip), json)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_help_documents_every_exit_code() {
        for code in ["0 ", "1 ", "2 ", "3 ", "4 ", "5 ", "124 ", "130 "] {
            assert!(EXIT_CODES.lines().any(|line| line.trim_start().starts_with(code)), "{code}");
        }
    }

    #[test]
    fn options_stand_before_and_after_the_command() {
        for line in [
            &["turnjail", "--json", "turn", "hi"][..],
            &["turnjail", "turn", "--json", "hi"],
            &["turnjail", "turn", "hi", "--json"],
        ] {
            assert!(Arguments::try_parse_from(line).unwrap().common.json, "{line:?}");
        }
    }

    #[test]
    fn a_set_without_value_is_refused_without_repeating_it() {
        let common = Common { config: None, set: vec!["sk-secret".into()], json: false };
        let error = common.overlay().unwrap_err();
        assert!(!format!("{error:?}").contains("sk-secret"));
    }
}
