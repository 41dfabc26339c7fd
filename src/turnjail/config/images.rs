//! `[images."reference"]`: what an operator changes in the isolation of single images.

use serde_json::Value;
use turnjail_images::Reference;
use turnjail_jail::{ImageSettings, Profile};

use super::document::Raw;
use super::section::Section;

/// The settings of one image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageEntry {
    /// The reference as typed.
    pub reference: String,
    /// What is set for it.
    pub settings: ImageSettings,
}

impl ImageEntry {
    /// Every table below `[images]`.
    pub(super) fn read_all(images: &Section<'_>) -> Vec<Self> {
        let named = images.named_sections().into_iter();
        named.map(|(reference, section)| Self::read(reference, section)).collect()
    }

    fn read(reference: String, section: Section<'_>) -> Self {
        if let Err(error) = reference.parse::<Reference>() {
            section.find(
                section.origin(),
                format_args!("a table of [images] is named by no image reference: {error}"),
                "name it as turn.image would, for example [images.\"python:3\"]",
            );
        }
        let words = [("sealed", Some(Profile::Sealed)), ("general", Some(Profile::General))];
        let settings = ImageSettings {
            profile: section.choice("profile", &words, None),
            loopback: section.flag("loopback").or(false),
            address_space_limit: flag(&section, "address_space_limit"),
            data_limit: flag(&section, "data_limit"),
        };
        if settings.loopback && settings.profile == Some(Profile::Sealed) {
            let name = section.name("loopback");
            section.find(
                section.origin(),
                format_args!("{name} is true, and the sealed profile has no loopback"),
                "set profile to \"general\", or remove loopback",
            );
        }
        section.finish();
        Self { reference, settings }
    }
}

/// `true` or `false`, or what the image's profile and label say.
fn flag(section: &Section<'_>, key: &'static str) -> Option<bool> {
    let setting = section.value(key, "true or false", |raw| match raw {
        Raw::Bool(flag) => Some(Some(*flag)),
        _ => None,
    });
    setting.or_shown(None, |value| value.map_or(Value::Null, Value::Bool))
}
