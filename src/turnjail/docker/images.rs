//! `image inspect`, `images`, `load` and `save`: the image store in Docker's words.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use serde_json::{Value, json};
use turnjail_images::{ExportFormat, ImageError, ImportOptions, Listed, Source};

use super::failure::Failure;
use super::flags::{Flag, Typed, Until, parse};
use super::{Done, Here, template};

/// Shows images, whole or by a format. One that is absent is told, and the rest shown all the same.
pub fn inspect(here: &Here, arguments: &[String]) -> Result<Done, Failure> {
    const KNOWN: &[Flag] = &[Flag::value("format").short('f')];
    let typed = parse(KNOWN, arguments, Until::End)?;
    if typed.rest.is_empty() {
        return Err(Failure::plain("\"docker image inspect\" requires at least 1 argument."));
    }
    let store = here.store()?;
    let mut found = Vec::new();
    let mut errors = Vec::new();
    for reference in &typed.rest {
        match store.inspect(reference) {
            Ok(image) => found.push(image),
            Err(error) => errors.push(match error {
                ImageError::Absent(_) => format!("Error: No such image: {reference}"),
                error @ ImageError::Reference { .. } => {
                    format!("Error: invalid reference format: {error}")
                }
                error => format!("Error: {error}"),
            }),
        }
    }
    let mut done = if let Some(format) = typed.last("format") {
        template::lines(format, &found)?
    } else {
        let text = serde_json::to_string_pretty(&Value::Array(found)).unwrap_or_default();
        Done::said(
            text + "
",
        )
    };
    done.code = u8::from(!errors.is_empty());
    done.stderr = errors.into_iter().flat_map(|line| (line + "\n").into_bytes()).collect();
    Ok(done)
}

/// Lists the images of the store.
pub fn list(here: &Here, arguments: &[String]) -> Result<Done, Failure> {
    const KNOWN: &[Flag] = &[
        Flag::switch("all").short('a'),
        Flag::switch("quiet").short('q'),
        Flag::switch("no-trunc"),
        Flag::value("format"),
    ];
    let typed = parse(KNOWN, arguments, Until::End)?;
    let wanted = match &typed.rest[..] {
        [] => None,
        [one] => Some(one),
        _ => return Err(Failure::plain("\"docker images\" requires at most 1 argument.")),
    };
    let rows: Vec<Value> = here
        .store()?
        .list()?
        .iter()
        .map(|image| row(image, typed.on("no-trunc")))
        .filter(|row| wanted.is_none_or(|wanted| names(row, wanted)))
        .collect();
    if typed.on("quiet") {
        return Ok(template::ids(&rows));
    }
    match typed.last("format") {
        Some(format) => template::lines(format, &rows),
        None => Ok(Done::said(template::table(
            &rows,
            &["REPOSITORY:Repository", "TAG:Tag", "IMAGE ID:ID", "SIZE:Size"],
        ))),
    }
}

fn row(image: &Listed, whole: bool) -> Value {
    let reference = &image.reference;
    let hex = image.digest.hex();
    json!({
        "Repository": reference.familiar_repository(),
        "Tag": reference.tag().unwrap_or("<none>"),
        "ID": if whole { image.digest.as_str() } else { &hex[..hex.len().min(12)] },
        "Digest": image.digest.as_str(),
        "CreatedAt": image.created,
        "Size": format!("{:.3}MB", image.size as f64 / 1e6),
    })
}

/// Whether a row is of the repository, or of its tag.
fn names(row: &Value, wanted: &str) -> bool {
    let text = |field: &str| row[field].as_str().unwrap_or_default().to_owned();
    let (repository, tag) = (text("Repository"), text("Tag"));
    wanted == repository || wanted == format!("{repository}:{tag}")
}

/// Takes images from an archive, under the names that they have there.
pub fn load(here: &Here, arguments: &[String]) -> Result<Done, Failure> {
    const KNOWN: &[Flag] = &[Flag::value("input").short('i'), Flag::switch("quiet").short('q')];
    let typed = parse(KNOWN, arguments, Until::End)?;
    no_arguments(&typed, "load")?;
    let source = match typed.last("input") {
        Some(file) => Source::Path(PathBuf::from(file)),
        None if io::stdin().is_terminal() => {
            return Err(Failure::plain("requested load from stdin, but stdin is empty"));
        }
        None => Source::Stream(Box::new(io::stdin())),
    };
    let loaded = here.store()?.load(source, &ImportOptions::default())?;
    let lines = loaded.iter().map(|image| format!("Loaded image: {}\n", image.name));
    Ok(Done::said(lines.collect::<String>()))
}

/// Writes an image as an archive that `docker load` takes.
pub fn save(here: &Here, arguments: &[String]) -> Result<Done, Failure> {
    const KNOWN: &[Flag] = &[Flag::value("output").short('o')];
    let typed = parse(KNOWN, arguments, Until::End)?;
    let [reference] = &typed.rest[..] else {
        return Err(Failure::plain("turnjail saves one image at a time: name one"));
    };
    let store = here.store()?;
    match typed.last("output") {
        None if io::stdout().is_terminal() => Err(Failure::plain(
            "cowardly refusing to save to a terminal. Use the -o flag or redirect",
        )),
        None => {
            let mut out = io::stdout().lock();
            store.export(reference, ExportFormat::Docker, &mut out)?;
            out.flush().map_err(|error| Failure::plain(format!("Error: {error}")))?;
            Ok(Done::default())
        }
        Some(path) => {
            // Looked up first: a file that was there is not lost to a mistyped name.
            store.inspect(reference)?;
            let failed = |error: io::Error| Failure::plain(format!("Error: {path}: {error}"));
            let mut file: File = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(path)
                .map_err(failed)?;
            store.export(reference, ExportFormat::Docker, &mut file)?;
            file.sync_all().map_err(failed)?;
            Ok(Done::default())
        }
    }
}

fn no_arguments(typed: &Typed, command: &str) -> Result<(), Failure> {
    if typed.rest.is_empty() {
        return Ok(());
    }
    Err(Failure::plain(format!("\"docker {command}\" accepts no arguments.")))
}
