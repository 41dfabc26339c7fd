//! Skills: instructions that the model reads when it needs them.
//!
//! They are read from the operator's directories once, at start, into memory; the prompt ends with an
//! index of them, and a host tool hands out their files in pages. Nothing of them is ever mounted.

mod frontmatter;
mod load;
mod page;
mod tool;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;

use turnjail_broker::Tool;

use crate::SetupError;

pub(crate) use tool::READ_SKILL;

/// The file of a skill that says what it is for.
const SKILL_FILE: &str = "SKILL.md";

/// All skills of a runtime, by name.
#[derive(Debug, Default, Clone)]
pub(crate) struct Skills {
    skills: Arc<BTreeMap<String, Skill>>,
}

/// One skill.
#[derive(Debug)]
struct Skill {
    description: String,
    /// Its files by their path in its folder, with `/` between parts.
    files: BTreeMap<String, SkillFile>,
    /// Where it was read from.
    folder: PathBuf,
}

/// One file of a skill.
#[derive(Debug)]
struct SkillFile {
    bytes: u64,
    content: Content,
}

#[derive(Debug, PartialEq, Eq)]
enum Content {
    Text(String),
    Binary,
    TooLarge,
}

impl Skills {
    /// Reads every skill of every directory.
    pub fn load(directories: &[PathBuf]) -> Result<Self, SetupError> {
        let mut skills: BTreeMap<String, Skill> = BTreeMap::new();
        for directory in directories {
            for (name, skill) in load::directory(directory)? {
                if let Some(other) = skills.get(&name) {
                    return Err(SetupError::Skill {
                        file: skill.folder.join(SKILL_FILE),
                        line: None,
                        problem: format!("a skill of this name is in {:?} too", other.folder),
                    });
                }
                skills.insert(name, skill);
            }
        }
        Ok(Self { skills: Arc::new(skills) })
    }

    pub fn is_empty(&self) -> bool {
        self.skills.is_empty()
    }

    /// What the prompt ends with, if there are skills.
    pub fn index(&self) -> Option<String> {
        if self.is_empty() {
            return None;
        }
        let mut index = format!(
            "Skills (name: what it is for). Read one with host_{READ_SKILL} before you do what it is for:"
        );
        for (name, skill) in self.skills.iter() {
            let words: Vec<&str> = skill.description.split_whitespace().collect();
            let _ = write!(index, "\n- {name}: {}", words.join(" "));
        }
        Some(index)
    }

    /// The host tool that reads them.
    pub fn tool(&self) -> Tool {
        Arc::new(tool::ReadSkill::new(self.clone())).into()
    }
}
