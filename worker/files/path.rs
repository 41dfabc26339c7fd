//! Paths of workspace files, checked before anything is opened.

use std::fmt;

use turnjail_protocol::limits::{FILE_PATH_BYTES, FILE_PATH_LEVELS};

use super::Refusal;

/// A relative path of 1 to [`FILE_PATH_LEVELS`] parts, none of which is empty, `.` or `..` or has a
/// control character.
#[derive(Debug, PartialEq, Eq)]
pub struct FilePath(String);

impl FilePath {
    /// Checks a path.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let refuse = |why: &str| Err(Refusal::new(format!("path {why}")));
        if text.is_empty() {
            return refuse("must not be empty");
        }
        if text.len() > FILE_PATH_BYTES {
            return refuse(&format!("has {} bytes; the limit is {FILE_PATH_BYTES}", text.len()));
        }
        if text.starts_with('/') {
            return refuse("must be relative, such as notes/today.txt");
        }
        if text.chars().any(char::is_control) {
            return refuse("must not have control characters");
        }
        if text.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return refuse("must not have an empty part, . or ..");
        }
        let levels = text.split('/').count();
        if levels > FILE_PATH_LEVELS {
            return refuse(&format!("has {levels} levels; the limit is {FILE_PATH_LEVELS}"));
        }
        Ok(Self(text.to_owned()))
    }

    /// The directories to go through, and the name in the last one.
    pub fn split(&self) -> (impl Iterator<Item = &str>, &str) {
        let (dirs, name) = self.0.rsplit_once('/').unwrap_or(("", &self.0));
        (dirs.split('/').filter(|part| !part.is_empty()), name)
    }

    /// All parts.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        self.0.split('/')
    }
}

impl fmt::Display for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "files/{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_are_taken_apart() {
        let path = FilePath::parse("a/b c/ä.txt").unwrap();
        let (dirs, name) = path.split();
        assert_eq!((dirs.collect::<Vec<_>>(), name), (vec!["a", "b c"], "ä.txt"));
        let path = FilePath::parse("...").unwrap();
        let (dirs, name) = path.split();
        assert_eq!((dirs.count(), name), (0, "..."));
    }

    #[test]
    fn no_user_name_is_special() {
        for text in
            [".turnjail", "a.tmp", "history.json", "-rf", ".hidden", "a\\b", "*", "con", " "]
        {
            assert!(FilePath::parse(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn paths_that_could_lead_elsewhere_are_refused() {
        let long = "a/".repeat(16) + "a";
        let texts = [
            "",
            "/",
            "/etc/passwd",
            "..",
            ".",
            "../a",
            "a/../b",
            "a/..",
            "./a",
            "a/./b",
            "a//b",
            "a/",
            "a\0b",
            "a\nb",
            "\u{7f}",
            "\u{85}",
            &long,
        ];
        for text in texts {
            assert!(FilePath::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn length_and_levels_have_limits() {
        assert!(FilePath::parse(&"a".repeat(512)).is_ok());
        assert!(FilePath::parse(&"a".repeat(513)).is_err());
        assert!(FilePath::parse(&("a/".repeat(15) + "a")).is_ok());
        let refusal = FilePath::parse(&("a/".repeat(16) + "a")).unwrap_err();
        assert_eq!(refusal.0, "path has 17 levels; the limit is 16");
    }
}
