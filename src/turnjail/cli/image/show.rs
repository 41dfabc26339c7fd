//! `turnjail image list`, `inspect`, `remove`, `verify` and `gc`.

use std::fmt::Write as _;
use std::process::ExitCode;

use serde_json::{Value, json};
use turnjail_images::{ImageStore, Verified};

use super::progress::Bars;
use crate::cli::failure;
use crate::cli::output::{print_json, print_line, visible};
use crate::cli::receipt::bytes;
use crate::error::{CliError, Exit};

/// Every image.
pub fn list(store: &ImageStore, json: bool) -> Result<ExitCode, CliError> {
    let list = store.list().map_err(|error| failure::image(&error))?;
    if json {
        let rows = list.iter().map(|one| {
            json!({
                "name": one.reference.to_string(),
                "digest": one.digest.as_str(),
                "size": one.size,
                "protocol": one.protocol,
                "created": one.created,
                "builtIn": one.builtin,
                "inUse": one.in_use,
            })
        });
        return print_json(&rows.collect::<Value>());
    }
    let width = list.iter().map(|one| one.reference.to_string().len()).max().unwrap_or(0).max(5);
    let mut text =
        format!("{:<width$}  {:<12}  {:>10}  {:<8}", "image", "digest", "size", "protocol");
    for one in &list {
        let protocol = one.protocol.map_or_else(|| "-".to_owned(), |number| number.to_string());
        let notes = [(one.builtin, "built in"), (one.in_use, "in use")];
        let notes = notes.iter().filter(|(so, _)| *so).map(|(_, note)| *note);
        let notes = notes.collect::<Vec<_>>().join(", ");
        let line = format!(
            "{:<width$}  {:.12}  {:>10}  {protocol:<8}  {notes}",
            one.reference.to_string(),
            one.digest.hex(),
            bytes(one.size),
        );
        let _ = write!(text, "\n{}", line.trim_end());
    }
    print_line(&text)
}

/// One image, always as JSON.
pub fn inspect(store: &ImageStore, reference: &str) -> Result<ExitCode, CliError> {
    print_json(&store.inspect(reference).map_err(|error| failure::image(&error))?)
}

/// Removes names. The first that cannot be removed ends it.
pub fn remove(
    store: &ImageStore,
    references: &[String],
    force: bool,
    json: bool,
) -> Result<ExitCode, CliError> {
    let mut rows = Vec::new();
    let mut lines = Vec::new();
    for reference in references {
        let removed = store.remove(reference, force).map_err(|error| failure::image(&error))?;
        let digest = removed.deleted.as_ref().map(turnjail_images::Digest::as_str);
        rows.push(json!({ "untagged": removed.untagged.to_string(), "deleted": digest }));
        lines.push(format!("untagged: {}", removed.untagged));
        lines.extend(digest.map(|digest| format!("deleted: {digest}")));
    }
    if json { print_json(&rows.into()) } else { print_line(&lines.join("\n")) }
}

/// Exit code 1 where something is not as it should be.
pub fn verify(store: &ImageStore, json: bool) -> Result<ExitCode, CliError> {
    let bars = Bars::new(json);
    bars.start("verifying".to_owned(), 0);
    let verified = store.verify_telling(&|read, of| bars.at(read, of));
    bars.finish();
    let verified = verified.map_err(|error| failure::image(&error))?;
    if json {
        print_json(&verified_json(&verified))?
    } else {
        print_line(&verified_text(&verified))?
    };
    let clean = verified.differences.is_empty();
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::from(Exit::Failed.code()) })
}

fn verified_json(verified: &Verified) -> Value {
    let differences = verified
        .differences
        .iter()
        .map(|one| json!({ "image": one.image, "object": one.object, "what": one.what }));
    json!({
        "clean": verified.differences.is_empty(),
        "images": verified.images,
        "blobs": verified.blobs,
        "bytes": verified.bytes,
        "unreferenced": verified.unreferenced,
        "differences": differences.collect::<Value>(),
    })
}

fn verified_text(verified: &Verified) -> String {
    let mut text = String::new();
    for one in &verified.differences {
        let image = one.image.as_ref().map(|image| format!("{image}: ")).unwrap_or_default();
        let _ = writeln!(text, "{image}{} {}", visible(&one.object), one.what);
    }
    let (images, blobs) = (verified.images, verified.blobs);
    let size = bytes(verified.bytes);
    let _ = match verified.differences.len() {
        0 => write!(text, "clean: {images} images, {blobs} blobs, {size}"),
        count => write!(
            text,
            "{count} differences in {images} images and {blobs} blobs\nimporting or pulling an image again \
             mends it"
        ),
    };
    if verified.unreferenced > 0 {
        let count = verified.unreferenced;
        let _ = write!(
            text,
            "\n{count} root filesystems without a name: `turnjail image gc` removes them"
        );
    }
    text
}

/// Removes what no name leads to.
pub fn gc(store: &ImageStore, json: bool) -> Result<ExitCode, CliError> {
    let freed = store.gc().map_err(|error| failure::image(&error))?;
    if json {
        return print_json(&json!({
            "blobs": freed.blobs,
            "blobBytes": freed.blob_bytes,
            "roots": freed.roots,
            "keptInUse": freed.kept_in_use,
            "leftOver": freed.left_over,
        }));
    }
    let size = bytes(freed.blob_bytes);
    let mut text = format!(
        "removed {} blobs ({size}), {} root filesystems, {} left by processes that died",
        freed.blobs, freed.roots, freed.left_over
    );
    if freed.kept_in_use > 0 {
        let _ = write!(text, "\nkept {} that running jails use", freed.kept_in_use);
    }
    print_line(&text)
}
