//! What flags and environment variables say, before the file is asked.

use super::document::{Item, Origin, Raw, parse};

/// What flags and environment variables say.
#[derive(Debug, Clone, Default)]
pub struct Overlay {
    /// `(key, value, option as typed)`, for example `("limits.memory_mb", "256", "--set")`.
    pub flags: Vec<(String, String, String)>,
    /// `(name, value)` of every environment variable that starts with `TURNJAIL_`.
    pub environment: Vec<(String, String)>,
}

impl Overlay {
    /// Whether a flag or variable is about the section.
    pub fn says_something_of(&self, section: &str) -> bool {
        let prefix = format!("{}_", variable(section));
        self.flags.iter().any(|(key, ..)| key.starts_with(&format!("{section}.")))
            || self.environment.iter().any(|(name, _)| name.starts_with(&prefix))
    }

    /// What is said about a key. Flags win, and of these the last.
    pub fn lookup(&self, key: &str) -> Option<Item> {
        if let Some((_, value, flag)) = self.flags.iter().rfind(|(name, ..)| *name == key) {
            return Some(typed(value, Origin::Flag(flag.clone())));
        }
        let wanted = variable(key);
        let (_, value) = self.environment.iter().find(|(name, _)| *name == wanted)?;
        Some(typed(value, Origin::Environment(wanted)))
    }
}

/// The environment variable of a key: `limits.memory_mb` is `TURNJAIL_LIMITS_MEMORY_MB`.
pub fn variable(key: &str) -> String {
    format!("TURNJAIL_{}", key.replace('.', "_").to_uppercase())
}

/// What a flag or variable says, read as TOML where it is TOML, else as text.
fn typed(value: &str, origin: Origin) -> Item {
    let raw = parse(&format!("value = {value}"))
        .ok()
        .filter(|table| table.0.len() == 1)
        .and_then(|table| table.0.into_iter().next())
        .map_or_else(|| Raw::Text(value.to_owned()), |(_, item)| item.value);
    Item { value: raw, origin }
}

/// What a flag or variable says is text that may only look like a number.
pub fn as_text(item: &Item) -> Option<Raw> {
    if matches!(item.origin, Origin::Line(_) | Origin::Default) {
        return None;
    }
    match &item.value {
        Raw::Integer(number) => Some(Raw::Text(number.to_string())),
        Raw::Float(number) => Some(Raw::Text(number.to_string())),
        Raw::Bool(flag) => Some(Raw::Text(flag.to_string())),
        _ => None,
    }
}
