//! The rules: what the demonstration's model calls or says. One step at a time, by what is known so far.

use serde_json::{Value, json};

use super::conversation::Conversation;

/// The next step of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// The turn is over.
    Say(String),
    /// A function is called.
    Call {
        /// Its name.
        name: &'static str,
        /// Its arguments.
        arguments: Value,
    },
}

/// What a guest may want.
#[derive(Debug, Clone, PartialEq)]
enum Wish {
    Remember { key: String, text: String },
    Recall { key: String },
    Dice { count: u64 },
    WriteAndRead { path: String, text: String },
    Unknown,
}

/// Decides the next step.
pub fn decide(conversation: &Conversation) -> Answer {
    let wish = Wish::of(&conversation.message);
    match wish.steps().into_iter().nth(conversation.results.len()) {
        Some((name, arguments)) if conversation.functions.iter().any(|known| known == name) => {
            Answer::Call { name, arguments }
        }
        Some((name, _)) => {
            Answer::Say(format!("I am not given the tool {name}, so I cannot do that."))
        }
        None => Answer::Say(wish.conclude(conversation)),
    }
}

impl Wish {
    fn of(message: &str) -> Self {
        let message = message.trim();
        if let Some((key, text)) = between(message, "emember that my ", " is ") {
            return Self::Remember { key: key.to_owned(), text: trimmed(text) };
        }
        if let Some((_, key)) = message.split_once("hat is my ") {
            return Self::Recall { key: trimmed(key) };
        }
        if let Some((_, rest)) = message.split_once("oll ") {
            let count = match rest.split_whitespace().next() {
                Some("two") => 2,
                Some("three") => 3,
                Some(word) => word.parse().unwrap_or(1),
                None => 1,
            };
            return Self::Dice { count };
        }
        if let Some((text, path)) = between(message, "rite \"", "\" to ") {
            let path = path.split_whitespace().next().unwrap_or_default();
            return Self::WriteAndRead {
                path: path.trim_end_matches([',', '.']).to_owned(),
                text: text.to_owned(),
            };
        }
        Self::Unknown
    }

    /// The calls that the wish takes, in order.
    fn steps(&self) -> Vec<(&'static str, Value)> {
        match self {
            Self::Remember { key, text } => {
                vec![("memory_set", json!({ "scope": "speaker", "key": key, "text": text }))]
            }
            Self::Recall { key } => vec![("memory_get", json!({ "scope": "speaker", "key": key }))],
            Self::Dice { count } => vec![("host_roll_dice", json!({ "count": count }))],
            Self::WriteAndRead { path, text } => vec![
                ("files_write", json!({ "path": path, "text": text })),
                ("files_read", json!({ "path": path })),
            ],
            Self::Unknown => Vec::new(),
        }
    }

    /// What is said once all calls are made, from what they answered and nothing else.
    fn conclude(&self, conversation: &Conversation) -> String {
        let result = conversation.results.last().map_or("", |result| result.content.as_str());
        if result == turnjail_protocol::TOOL_REFUSED {
            return "A tool refused or failed, so I could not do that.".to_owned();
        }
        match self {
            Self::Remember { key, text } => format!("I will remember that your {key} is {text}."),
            Self::Recall { key } => match remembered(result) {
                Some(text) => format!("Your {key} is {text}. You told me so."),
                None => format!("I do not know your {key} yet."),
            },
            Self::Dice { .. } => match text_of(result) {
                Some(rolled) => format!("You rolled {rolled}."),
                None => "The dice got lost.".to_owned(),
            },
            Self::WriteAndRead { path, .. } => {
                let text = text_of(result).unwrap_or_else(|| result.to_owned());
                format!("{path} now says: {text}")
            }
            Self::Unknown => {
                "I am a small scripted model. I can remember that your key is a value, recall it, roll \
                 dice, and write a text to a file and read it back."
                    .to_owned()
            }
        }
    }
}

/// The text of the first entry that the memory answered with.
fn remembered(result: &str) -> Option<String> {
    let entries: Value = serde_json::from_str(result).ok()?;
    Some(entries.get(0)?.get("text")?.as_str()?.to_owned())
}

/// The `text` of a result that is an object.
fn text_of(result: &str) -> Option<String> {
    let value: Value = serde_json::from_str(result).ok()?;
    Some(value.get("text")?.as_str()?.to_owned())
}

/// What stands between `start` and `middle`, and what follows.
fn between<'t>(text: &'t str, start: &str, middle: &str) -> Option<(&'t str, &'t str)> {
    text.split_once(start)?.1.split_once(middle)
}

fn trimmed(text: &str) -> String {
    text.trim().trim_end_matches(['.', '?', '!']).to_owned()
}
