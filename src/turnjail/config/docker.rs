//! `[docker]`: how the container engine is reached, where turns run in one.

use std::path::{Path, PathBuf};

use super::document::Raw;
use super::paths::{Base, shown};
use super::section::Section;

/// `[docker]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Docker {
    /// The client's program: a name that is searched in `PATH`, or an absolute path.
    pub program: PathBuf,
    /// `unix:///...`, as `DOCKER_HOST`; none is the client's own default.
    pub host: Option<String>,
}

impl Docker {
    pub(super) fn read(section: Section<'_>, base: &Base<'_>) -> Self {
        let wanted = "a program's name, or its path";
        let program = section.value("program", wanted, |raw| match raw {
            Raw::Text(text) if text.is_empty() || text.contains('\0') => None,
            Raw::Text(text) if text.contains('/') || text == "~" => base.resolve(text),
            Raw::Text(text) => Some(PathBuf::from(text)),
            _ => None,
        });
        let program = program.or_shown(PathBuf::from("docker"), shown);
        let wanted = "a socket of this host, unix:///run/docker.sock for example";
        let host = section.value("host", wanted, |raw| match raw {
            Raw::Text(text) => text
                .strip_prefix("unix://")
                .filter(|path| Path::new(path).is_absolute() && !path.contains('\0'))
                .map(|_| text.clone()),
            _ => None,
        });
        let host = host.optional();
        section.finish();
        Self { program, host }
    }
}
