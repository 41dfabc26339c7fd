//! `turnjail image import`: from an archive to an image.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use serde_json::json;
use turnjail_images::{ImageConfig, ImportOptions, Imported, Source};

use super::arguments::ImportArguments;
use super::open;
use super::progress::Bars;
use crate::cli::failure;
use crate::cli::output::{print_json, print_line};
use crate::cli::receipt::bytes;
use crate::config::ForImages;
use crate::error::CliError;

/// The most that a configuration of a root filesystem may hold.
const CONFIG_BYTES: usize = 1024 * 1024;

/// Imports.
pub fn import(
    settings: &ForImages,
    arguments: &ImportArguments,
    json: bool,
) -> Result<ExitCode, CliError> {
    let bars = Bars::new(json);
    let options = ImportOptions {
        limits: settings.limits,
        format: arguments.format.into(),
        platform: arguments.platform.clone(),
        select: arguments.select.clone(),
        config: arguments.image_config.as_deref().map(read_config).transpose()?,
        keep_names: false,
        progress: Some(&bars),
    };
    let source = if arguments.source == Path::new("-") {
        Source::Stream(Box::new(std::io::stdin()))
    } else {
        Source::Path(arguments.source.clone())
    };
    let imported = open(settings)?.import(source, &arguments.name, &options);
    bars.finish();
    told(&imported.map_err(|error| failure::image(&error))?, json)
}

fn read_config(path: &Path) -> Result<ImageConfig, CliError> {
    let refuse = |what: String| {
        CliError::usage(
            format_args!("the image configuration {} {what}", path.display()),
            "write JSON such as {\"Entrypoint\": [\"/bin/sh\"], \"Env\": [\"A=b\"], \"Labels\": {}}",
        )
    };
    let text = turnjail_broker::read_file(path, CONFIG_BYTES)
        .map_err(|error| refuse(format!("cannot be read: {error}")))?;
    serde_json::from_slice(&text).map_err(|error| refuse(format!("is not understood: {error}")))
}

/// What was made.
pub fn told(imported: &Imported, json: bool) -> Result<ExitCode, CliError> {
    let (image, skipped) = (&imported.image, &imported.skipped);
    if json {
        return print_json(&json!({
            "name": imported.name.to_string(),
            "digest": image.digest,
            "size": image.size,
            "layers": imported.layers,
            "protocol": image.config.protocol(),
            "skipped": {
                "devices": skipped.devices,
                "fifos": skipped.fifos,
                "setIdBits": skipped.set_id_bits,
                "attributes": skipped.attributes,
            },
        }));
    }
    let size = bytes(image.size);
    let layers = match imported.layers {
        1 => "1 layer".to_owned(),
        layers => format!("{layers} layers"),
    };
    let mut text = format!("{}\n{}, {layers}, {size}", imported.name, image.digest);
    let left_out = [
        (skipped.devices, "devices"),
        (skipped.fifos, "pipes"),
        (skipped.set_id_bits, "set-id bits"),
        (skipped.attributes, "extended attributes"),
    ];
    let left_out = left_out.iter().filter(|(count, _)| *count > 0);
    let left_out: Vec<_> = left_out.map(|(count, what)| format!("{count} {what}")).collect();
    if !left_out.is_empty() {
        let _ = write!(text, "\nleft out: {}", left_out.join(", "));
    }
    print_line(&text)
}
