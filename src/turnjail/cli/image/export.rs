//! `turnjail image export`: one archive, whole or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;
use turnjail_images::{ExportFormat, ImageStore};

use super::arguments::{ExportArguments, ExportFormatArgument};
use crate::cli::failure;
use crate::cli::output::print_json;
use crate::error::{CliError, Exit};

/// Exports.
pub fn export(
    store: &ImageStore,
    arguments: &ExportArguments,
    json: bool,
) -> Result<ExitCode, CliError> {
    let format = match arguments.format {
        ExportFormatArgument::Oci => ExportFormat::Oci,
        ExportFormatArgument::Docker => ExportFormat::Docker,
    };
    if arguments.output == Path::new("-") {
        if io::stdout().is_terminal() {
            let cause = "an archive is not written to a terminal";
            return Err(CliError::usage(cause, "name a file with --output, or use a pipe"));
        }
        let mut out = BufWriter::with_capacity(256 * 1024, io::stdout().lock());
        let written = store.export(&arguments.reference, format, &mut out);
        written.map_err(|error| failure::image(&error))?;
        out.flush().map_err(|error| unwritable(&arguments.output, &error))?;
        return Ok(ExitCode::SUCCESS);
    }
    to_file(store, arguments, format)?;
    if json {
        return print_json(&json!({ "output": arguments.output }));
    }
    Ok(ExitCode::SUCCESS)
}

/// Under another name until it is whole.
fn to_file(
    store: &ImageStore,
    arguments: &ExportArguments,
    format: ExportFormat,
) -> Result<(), CliError> {
    let output = &arguments.output;
    let mut partial = output.clone().into_os_string();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let file = File::create(&partial).map_err(|error| unwritable(output, &error))?;
    let mut out = BufWriter::with_capacity(256 * 1024, file);
    let written = store.export(&arguments.reference, format, &mut out);
    let written = written.map_err(|error| failure::image(&error)).and_then(|()| {
        out.flush()
            .and_then(|()| fs::rename(&partial, output))
            .map_err(|error| unwritable(output, &error))
    });
    if written.is_err() {
        let _ = fs::remove_file(&partial);
    }
    written
}

fn unwritable(path: &Path, error: &io::Error) -> CliError {
    CliError::new(
        Exit::Failed,
        "export",
        format_args!("{} cannot be written: {error}", path.display()),
        "name a file in a directory that this user may write and that has room",
    )
}
