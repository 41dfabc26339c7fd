//! The file tools: the model's own files, below `files/` in the workspace.
//!
//! A call's result is JSON: what was asked for, or `{"error": …}` in words that the model can act on.

mod page;
mod path;
mod tree;
mod write;

use turnjail_protocol::json::{Map, Value};
use turnjail_protocol::offer::Function;
use turnjail_protocol::{Files as Limits, json};

use crate::store::Dir;
use crate::sys::Errno;
use path::FilePath;

/// The files of a workspace.
#[derive(Debug)]
pub struct Files<'a> {
    workspace: &'a Dir,
    limits: Limits,
    /// The bytes of all files, once they have been counted: nobody else writes during a turn.
    total: Option<u64>,
    /// Whether what killed workers left behind has been removed.
    cleaned: bool,
}

/// Why a call is refused: one sentence for the model.
#[derive(Debug, PartialEq, Eq)]
pub struct Refusal(String);

impl Refusal {
    fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }

    /// The system's answer about something, in words.
    fn of(errno: Errno, what: &str) -> Self {
        let why = match errno {
            Errno::NOENT => "does not exist",
            Errno::NOTDIR | Errno::LOOP => {
                "is not a regular file or directory, or leads through one"
            }
            Errno::NAMETOOLONG => "has a part over 255 bytes",
            Errno::NOSPC | Errno::DQUOT => "does not fit: the workspace's disk is full",
            Errno::FBIG => "does not fit: it is over the workspace's limit of one file",
            Errno::ACCESS | Errno::PERM => "may not be used: permission denied",
            Errno::XDEV => {
                "cannot be put into place: this system does not move files between directories"
            }
            Errno::EXIST | Errno::NOTEMPTY => "is a directory that is not empty",
            Errno::ISDIR => "is a directory",
            _ => "could not be used: the system refused",
        };
        Self(format!("{what} {why}"))
    }

    fn to_json(&self) -> String {
        let mut out = b"{\"error\":".to_vec();
        json::push_string(&mut out, &self.0);
        out.push(b'}');
        String::from_utf8(out).expect("JSON is written as UTF-8")
    }
}

impl<'a> Files<'a> {
    /// The files of a workspace, with limits on writing.
    pub fn new(workspace: &'a Dir, limits: Limits) -> Self {
        Self { workspace, limits, total: None, cleaned: false }
    }

    /// Carries out a call of one of the file tools. The result's JSON encoding as a string has at
    /// most `result_bytes`, which is what the model gets.
    pub fn call(
        &mut self,
        function: Function<'_>,
        input: &Map<String, Value>,
        result_bytes: usize,
    ) -> String {
        let result = match function {
            Function::FilesList => self.list(input, result_bytes),
            Function::FilesRead => self.read(input, result_bytes),
            Function::FilesWrite => self.write(input),
            Function::FilesDelete => self.delete(input),
            _ => Err(Refusal::new("this is no file tool")),
        };
        result.unwrap_or_else(|refusal| refusal.to_json())
    }

    fn list(&self, input: &Map<String, Value>, bytes: usize) -> Result<String, Refusal> {
        let path = match input.get("path") {
            None | Some(Value::Null) => None,
            Some(value) => Some(path_of(Some(value))?),
        };
        tree::list(self.workspace, path.as_ref(), bytes)
    }

    fn read(&self, input: &Map<String, Value>, bytes: usize) -> Result<String, Refusal> {
        let path = path_of(input.get("path"))?;
        let offset = count(input, "offset")?.unwrap_or_default();
        let limit = count(input, "limit")?;
        if limit == Some(0) {
            return Err(Refusal::new("limit must be at least 1"));
        }
        page::read(self, &path, offset, limit, bytes)
    }

    fn write(&mut self, input: &Map<String, Value>) -> Result<String, Refusal> {
        let path = path_of(input.get("path"))?;
        let text = input.get("text").and_then(Value::as_str);
        let text = text.ok_or_else(|| Refusal::new("text must be a string"))?;
        let append = match input.get("append") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(append)) => *append,
            Some(_) => return Err(Refusal::new("append must be true or false")),
        };
        let size = write::write(self, &path, text.as_bytes(), append)?;
        Ok(format!("{{\"written\":true,\"size\":{size}}}"))
    }

    fn delete(&mut self, input: &Map<String, Value>) -> Result<String, Refusal> {
        let path = path_of(input.get("path"))?;
        write::delete(self, &path)?;
        Ok("{\"deleted\":true}".into())
    }
}

fn path_of(value: Option<&Value>) -> Result<FilePath, Refusal> {
    let text = value.and_then(Value::as_str);
    FilePath::parse(text.ok_or_else(|| Refusal::new("path must be a string"))?)
}

/// A whole number of code units.
fn count(input: &Map<String, Value>, name: &str) -> Result<Option<usize>, Refusal> {
    const MOST: f64 = 9_007_199_254_740_992.0;
    match input.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_f64() {
            Some(number) if (0.0..=MOST).contains(&number) && number.fract() == 0.0 => {
                Ok(Some(number as usize))
            }
            _ => Err(Refusal::new(format!("{name} must be a whole number, 0 or more"))),
        },
    }
}
