//! `turnjail docker`, and the same program by the name `turnjail-docker`: what programs that drive the
//! `docker` client call, answered with jails.
//!
//! Whoever drives Docker for a turn's worker switches by naming this program as its docker binary.
//! Answers and exit codes are Docker's. What it does not know it refuses, and what it cannot do as told
//! it refuses as well: an option that isolates is never passed over.

mod failure;
mod flags;
mod images;
mod info;
mod list;
mod mount;
mod process;
mod registry;
mod remove;
mod run;
mod run_options;
mod size;
mod template;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use turnjail_images::ImageStore;

use crate::cli::write_out;
use crate::config::{HostSettings, host_settings};
use failure::Failure;

/// The name of the program that is this command.
const PROGRAM: &str = "turnjail-docker";

/// The commands, as an unknown one is told.
const COMMANDS: &str = "run, rm, ps, image inspect, images, load, save, version and info";

/// Whether the program was started by the name of this command.
pub fn is_called(program: Option<&OsStr>) -> bool {
    let name = program.map(Path::new).and_then(Path::file_name);
    name.is_some_and(|name| name == PROGRAM)
}

/// Where the settings are that do not come from the arguments.
#[derive(Debug, Clone, Default)]
pub struct Here {
    /// The configuration; none is `TURNJAIL_CONFIG`, else the usual file, which may be absent.
    pub config: Option<PathBuf>,
}

impl Here {
    fn settings(&self) -> Result<HostSettings, Failure> {
        let named =
            self.config.clone().or_else(|| std::env::var_os("TURNJAIL_CONFIG").map(Into::into));
        Ok(host_settings(named.as_deref())?)
    }

    /// The store that turns use.
    fn store(&self) -> Result<ImageStore, Failure> {
        Ok(ImageStore::open(&self.settings()?.directories.images)?)
    }
}

/// Does what the arguments say, which are those of `docker`.
pub fn run(here: &Here, arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Result<Vec<String>, _> =
        arguments.into_iter().map(OsString::into_string).collect();
    let done = match arguments {
        Ok(arguments) => dispatch(here, &arguments),
        Err(_) => Err(Failure::engine("an argument is not UTF-8")),
    };
    match done {
        Ok(done) => done.print(),
        Err(failure) => failure.print(),
    }
}

/// What a command printed and how it ends.
#[derive(Debug, Default)]
pub struct Done {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    code: u8,
}

impl Done {
    /// A command that went well.
    fn said(stdout: impl Into<Vec<u8>>) -> Self {
        Self { stdout: stdout.into(), ..Self::default() }
    }

    fn print(self) -> ExitCode {
        use std::io::Write as _;
        let written = write_out(&self.stdout);
        let _ = std::io::stderr().write_all(&self.stderr);
        if self.code == 0 && written.is_err() {
            return ExitCode::FAILURE;
        }
        ExitCode::from(self.code)
    }
}

fn dispatch(here: &Here, arguments: &[String]) -> Result<Done, Failure> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        [] | ["help" | "--help" | "-h"] => Ok(Done::said(help())),
        ["--version" | "-v"] => Ok(Done::said(info::version_line())),
        ["run", ..] => run::run(here, &arguments[1..]),
        ["container", "run", ..] => run::run(here, &arguments[2..]),
        ["rm", ..] => remove::run(&arguments[1..]),
        ["container", "rm", ..] => remove::run(&arguments[2..]),
        ["ps", ..] => list::run(&arguments[1..]),
        ["container", "ls" | "list" | "ps", ..] => list::run(&arguments[2..]),
        ["image", "inspect", ..] => images::inspect(here, &arguments[2..]),
        ["images", ..] => images::list(here, &arguments[1..]),
        ["image", "ls" | "list", ..] => images::list(here, &arguments[2..]),
        ["load", ..] => images::load(here, &arguments[1..]),
        ["image", "load", ..] => images::load(here, &arguments[2..]),
        ["save", ..] => images::save(here, &arguments[1..]),
        ["image", "save", ..] => images::save(here, &arguments[2..]),
        ["version", ..] => info::version(&arguments[1..]),
        ["info", ..] => info::info(here, &arguments[1..]),
        ["system", "info", ..] => info::info(here, &arguments[2..]),
        [flag, ..] if flag.starts_with('-') => {
            Err(Failure::engine(format!("unknown flag: {flag}")))
        }
        [command, ..] => Err(Failure::plain(format!(
            "docker: '{command}' is not a docker command that turnjail knows: it knows {COMMANDS}"
        ))),
    }
}

fn help() -> String {
    format!(
        "turnjail docker: what programs that drive docker call, answered with jails\n\n\
         Commands: {COMMANDS}\n\n\
         docs/docker.md says which options each understands. Others are errors.\n"
    )
}
