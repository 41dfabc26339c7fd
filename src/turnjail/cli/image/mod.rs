//! `turnjail image`: bringing images to this machine, looking at them, and taking them away.

mod arguments;
mod bring;
mod export;
mod progress;
mod pull;
mod show;

use std::process::ExitCode;

use turnjail_images::ImageStore;

pub use arguments::ImageCommand;

use super::arguments::Common;
use super::{failure, session};
use crate::config::ForImages;
use crate::error::CliError;
use crate::host;

/// Does what is asked for.
pub fn run(common: &Common, command: &ImageCommand) -> Result<ExitCode, CliError> {
    host::refuse_root("image")?;
    let settings = common.load_for_images()?;
    session::log(settings.log);
    let json = common.json;
    match command {
        ImageCommand::Import(import) => bring::import(&settings, import, json),
        ImageCommand::Pull(arguments) => pull::pull(&settings, arguments, json),
        ImageCommand::List => show::list(&open(&settings)?, json),
        ImageCommand::Inspect { reference } => show::inspect(&open(&settings)?, reference),
        ImageCommand::Remove { references, force } => {
            show::remove(&open(&settings)?, references, *force, json)
        }
        ImageCommand::Export(arguments) => export::export(&open(&settings)?, arguments, json),
        ImageCommand::Verify => show::verify(&open(&settings)?, json),
        ImageCommand::Gc => show::gc(&open(&settings)?, json),
    }
}

fn open(settings: &ForImages) -> Result<ImageStore, CliError> {
    ImageStore::open(&settings.directories.images).map_err(|error| failure::image(&error))
}
