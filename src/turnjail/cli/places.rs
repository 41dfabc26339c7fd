//! What a start would find of the directories, the image and the audit file that a configuration names.
//! Nothing is made, opened for writing, or changed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::unistd::{AccessFlags, access, geteuid};
use turnjail_images::{BUILTIN, ImageStore};

use crate::config::{Config, Driver, shown};
use crate::error::{CliError, Exit, Problem};

/// Every problem at once.
pub fn check(config: &Config) -> Result<(), CliError> {
    let directories = &config.settings.directories;
    let audit = config.settings.audit.as_deref();
    let found = [
        ("directories.run", directory(&directories.run)),
        ("directories.workspaces", directory(&directories.workspaces)),
        ("directories.images", directory(&directories.images)),
        ("audit.file", audit.map_or(Ok(()), file)),
        ("turn.image", image(config)),
    ];
    let problem = |(key, found): (&str, Result<(), Wrong>)| {
        let Wrong { cause, remedy } = found.err()?;
        Some(Problem { cause: format!("{}{key} {cause}", config.place_of(key)), remedy })
    };
    let problems: Vec<Problem> = found.into_iter().filter_map(problem).collect();
    if problems.is_empty() {
        return Ok(());
    }
    Err(CliError { problems, exit: Exit::Usage, code: "config".to_owned() })
}

/// What is wrong with a place, and what to do.
struct Wrong {
    cause: String,
    remedy: String,
}

impl Wrong {
    fn new(path: &Path, what: &str, remedy: &str) -> Self {
        Self { cause: format!("{} {what}", shown(path)), remedy: remedy.to_owned() }
    }
}

/// One that is there is this user's; one that is not can be made.
fn directory(path: &Path) -> Result<(), Wrong> {
    let Ok(found) = fs::metadata(path) else { return can_be_made(path) };
    if !found.is_dir() {
        return Err(Wrong::new(
            path,
            "is not a directory",
            "name another, or remove what is there",
        ));
    }
    // Root may look at the configuration of a service without being its user.
    if !geteuid().is_root() && found.uid() != geteuid().as_raw() {
        let what = format!("belongs to user {}, not to this one", found.uid());
        return Err(Wrong::new(path, &what, "name a directory of this user's"));
    }
    writable(path)
}

fn can_be_made(path: &Path) -> Result<(), Wrong> {
    let above = path.ancestors().skip(1).find(|above| above.exists()).unwrap_or(Path::new("/"));
    if !above.is_dir() {
        let what = format!("cannot be made: {} is not a directory", shown(above));
        return Err(Wrong::new(path, &what, "name a path below a directory"));
    }
    writable(above).map_err(|wrong| {
        Wrong::new(path, &format!("cannot be made: {}", wrong.cause), &wrong.remedy)
    })
}

fn writable(path: &Path) -> Result<(), Wrong> {
    access(path, AccessFlags::W_OK | AccessFlags::X_OK).map_err(|errno| {
        let what = format!("cannot be written by this user: {errno}");
        Wrong::new(path, &what, "give this user the directory, or name another")
    })
}

/// A file that a line is added to.
fn file(path: &Path) -> Result<(), Wrong> {
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => {
            Err(Wrong::new(path, "is not a regular file", "name a file"))
        }
        Ok(_) => access(path, AccessFlags::W_OK).map_err(|errno| {
            let what = format!("cannot be written by this user: {errno}");
            Wrong::new(path, &what, "give this user the file, or name another")
        }),
        Err(_) => {
            let directory = path.parent().unwrap_or(Path::new("/"));
            if !directory.is_dir() {
                let what = format!("cannot be made: {} is not a directory", shown(directory));
                return Err(Wrong::new(path, &what, "make the directory, or name another file"));
            }
            writable(directory)
        }
    }
}

/// Whether the store has the image. The built-in one is in this program.
fn image(config: &Config) -> Result<(), Wrong> {
    let settings = &config.settings;
    let (store, image) = (&settings.directories.images, &settings.turn.image);
    let elsewhere = settings.turn.driver != Driver::Jail || geteuid().is_root();
    if elsewhere || image.split([':', '@']).next() == Some(BUILTIN) {
        return Ok(());
    }
    let absent =
        |cause: String, remedy: String| Wrong { cause: format!("{image:?}: {cause}"), remedy };
    if !store.is_dir() {
        let remedy =
            format!("import it with `turnjail image import`, or set turn.image = {BUILTIN:?}");
        return Err(absent(format!("there is no store at {} yet", shown(store)), remedy));
    }
    let found = ImageStore::open(store).and_then(|store| store.resolve(image));
    found.map(drop).map_err(|error| absent(error.to_string(), error.remedy()))
}
