//! Inputs checked against a tool's schema, where the operator wants it.

use serde_json::{Map, Value};

use crate::error::SetupError;

/// A compiled schema.
#[cfg(feature = "validate")]
pub(crate) struct Validator {
    schema: jsonschema::Validator,
}

/// A build without the feature has none.
#[cfg(not(feature = "validate"))]
pub(crate) enum Validator {}

#[cfg(feature = "validate")]
impl Validator {
    /// Compiles a schema. Nothing is fetched for it, and its regular expressions run in linear time.
    pub fn new(setting: &str, schema: &Map<String, Value>) -> Result<Self, SetupError> {
        jsonschema::options()
            .offline()
            .with_pattern_options(jsonschema::PatternOptions::regex())
            .build(&Value::Object(schema.clone()))
            .map(|schema| Self { schema })
            .map_err(|error| {
                SetupError::setting(
                    setting,
                    format!("has a schema that nothing can be checked against: {error}"),
                )
            })
    }

    /// Whether an input fits.
    pub fn accepts(&self, input: &Map<String, Value>) -> bool {
        self.schema.is_valid(&Value::Object(input.clone()))
    }
}

#[cfg(not(feature = "validate"))]
impl Validator {
    /// Refuses: this build cannot check inputs.
    pub fn new(setting: &str, _: &Map<String, Value>) -> Result<Self, SetupError> {
        Err(SetupError::setting(
            setting,
            "asks for validation, which this build has not (feature `validate`)",
        ))
    }

    /// Never called, since none is ever made.
    pub fn accepts(&self, _: &Map<String, Value>) -> bool {
        match *self {}
    }
}
