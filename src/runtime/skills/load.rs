//! Reading skill folders into memory, within limits.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::{Content, SKILL_FILE, Skill, SkillFile, frontmatter};
use crate::SetupError;

/// The most bytes of one skill kept in memory.
const SKILL_BYTES: u64 = 8 * 1024 * 1024;
/// The most files of one skill, and likewise the most folders.
const SKILL_FILES: usize = 512;
/// The largest file that the model can read, in bytes.
const FILE_BYTES: u64 = 256 * 1024;

/// Every skill in a directory: each folder that holds a SKILL.md. Hidden folders are passed over.
pub(super) fn directory(directory: &Path) -> Result<Vec<(String, Skill)>, SetupError> {
    let mut found = Vec::new();
    for (name, path) in entries(directory)? {
        let skill_file = path.join(SKILL_FILE);
        match fs::metadata(&skill_file) {
            Ok(_) => found.push((name, skill(&path)?)),
            // Files beside the folders, and folders of other things.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                tracing::debug!(?path, "no skill: it holds no {SKILL_FILE}");
            }
            Err(error) => return Err(unreadable(&skill_file, &error)),
        }
    }
    if found.is_empty() {
        tracing::warn!(?directory, "no skill is in this directory");
    }
    Ok(found)
}

fn skill(folder: &Path) -> Result<Skill, SetupError> {
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let real = folder.canonicalize().map_err(|error| unreadable(folder, &error))?;
    let files = Folder { real, files: BTreeMap::new(), bytes: 0 }.read()?;
    let file = folder.join(SKILL_FILE);
    let Some(SkillFile { content: Content::Text(text), .. }) = files.get(SKILL_FILE) else {
        return Err(problem(&file, format!("must be text of at most {FILE_BYTES} bytes")));
    };
    let description = frontmatter::description(text, name).map_err(|found| SetupError::Skill {
        file,
        line: Some(found.line),
        problem: found.text,
    })?;
    Ok(Skill { description, files, folder: folder.to_owned() })
}

/// One skill's folder while it is read.
struct Folder {
    /// Without links, so that a link that leaves it is seen.
    real: PathBuf,
    files: BTreeMap<String, SkillFile>,
    bytes: u64,
}

impl Folder {
    fn read(mut self) -> Result<BTreeMap<String, SkillFile>, SetupError> {
        let mut folders = vec![(String::new(), self.real.clone())];
        let mut folder_count = 0;
        while let Some((prefix, folder)) = folders.pop() {
            folder_count += 1;
            if folder_count > SKILL_FILES {
                return Err(problem(&self.real, format!("holds over {SKILL_FILES} folders")));
            }
            for (name, path) in entries(&folder)? {
                let inside = format!("{prefix}{name}");
                let link = fs::symlink_metadata(&path)
                    .map_err(|error| unreadable(&path, &error))?
                    .is_symlink();
                let real = if link { self.resolved(&path)? } else { path.clone() };
                let metadata = fs::metadata(&real).map_err(|error| unreadable(&path, &error))?;
                if metadata.is_file() {
                    self.add(inside, &path, &real)?;
                } else if !metadata.is_dir() {
                    return Err(problem(&path, "is neither a file nor a folder"));
                } else if !link {
                    // What a link to a folder shows is read where it really is.
                    folders.push((format!("{inside}/"), path));
                }
            }
        }
        Ok(self.files)
    }

    fn resolved(&self, link: &Path) -> Result<PathBuf, SetupError> {
        let real = link.canonicalize().map_err(|error| unreadable(link, &error))?;
        if !real.starts_with(&self.real) {
            return Err(problem(link, "is a symbolic link that leaves the skill's folder"));
        }
        Ok(real)
    }

    fn add(&mut self, inside: String, path: &Path, real: &Path) -> Result<(), SetupError> {
        if self.files.len() == SKILL_FILES {
            return Err(problem(&self.real, format!("holds over {SKILL_FILES} files")));
        }
        let file = read(real).map_err(|error| unreadable(path, &error))?;
        if let Content::Text(text) = &file.content {
            self.bytes += text.len() as u64;
        }
        if self.bytes > SKILL_BYTES {
            return Err(problem(&self.real, format!("holds over {SKILL_BYTES} bytes of text")));
        }
        self.files.insert(inside, file);
        Ok(())
    }
}

fn read(path: &Path) -> io::Result<SkillFile> {
    let file = File::open(path)?;
    let bytes = file.metadata()?.len();
    if bytes > FILE_BYTES {
        return Ok(SkillFile { bytes, content: Content::TooLarge });
    }
    let mut content = Vec::with_capacity(bytes as usize);
    file.take(FILE_BYTES + 1).read_to_end(&mut content)?;
    let bytes = content.len() as u64;
    if bytes > FILE_BYTES {
        return Ok(SkillFile { bytes, content: Content::TooLarge });
    }
    let content = match String::from_utf8(content) {
        Ok(text) if !text.contains('\0') => Content::Text(text),
        _ => Content::Binary,
    };
    Ok(SkillFile { bytes, content })
}

/// The entries of a directory in order of name, without hidden ones.
fn entries(directory: &Path) -> Result<Vec<(String, PathBuf)>, SetupError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(|error| unreadable(directory, &error))? {
        let path = entry.map_err(|error| unreadable(directory, &error))?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            return Err(problem(&path, "has a name that is not UTF-8"));
        };
        if name.chars().any(char::is_control) {
            return Err(problem(&path, "has a name with a control character"));
        }
        if !name.starts_with('.') {
            found.push((name.to_owned(), path));
        }
    }
    found.sort();
    Ok(found)
}

fn unreadable(path: &Path, error: &io::Error) -> SetupError {
    problem(path, format!("cannot be read: {error}"))
}

fn problem(file: &Path, problem: impl Into<String>) -> SetupError {
    SetupError::Skill { file: file.to_owned(), line: None, problem: problem.into() }
}
