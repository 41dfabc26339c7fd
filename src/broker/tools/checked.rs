//! Declared tools, checked at start-up, and how each kind is called.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use serde_json::{Map, Value};
use turnjail_protocol::{ToolSpec, valid_tool_name};

use super::callback::Callback;
use super::{CommandTool, HostTool, Tool, ToolError};
use crate::call::{Call, Failure};
use crate::credential::Slot;
use crate::error::SetupError;
use crate::events::CallOutcome;
use crate::schema;
use crate::settings::BrokerSettings;
use crate::upstream::Endpoint;
use crate::validate::Validator;

/// A tool whose declaration has been checked.
pub(crate) struct CheckedTool {
    pub spec: ToolSpec,
    validator: Option<Validator>,
    kind: Kind,
}

enum Kind {
    Host(Arc<dyn HostTool>),
    Command(CommandTool),
    Callback(Callback),
}

impl CheckedTool {
    pub fn check(tool: &Tool, settings: &BrokerSettings) -> Result<Self, SetupError> {
        let spec = tool.spec().clone();
        let setting = format!("tools.{}", spec.name);
        check_spec(&setting, &spec)?;
        let kind = match tool {
            Tool::Host(tool) => Kind::Host(Arc::clone(tool)),
            Tool::Command(tool) => Kind::Command(tool.checked(&setting)?),
            Tool::Callback(tool) => Kind::Callback(Callback::check(&setting, tool, settings)?),
        };
        let validator =
            tool.validate().then(|| Validator::new(&setting, &spec.parameters)).transpose()?;
        Ok(Self { spec, validator, kind })
    }

    pub fn endpoint(&self) -> Option<&Endpoint> {
        match &self.kind {
            Kind::Callback(callback) => Some(&callback.endpoint),
            _ => None,
        }
    }

    pub fn credential(&self) -> Option<&Slot> {
        match &self.kind {
            Kind::Callback(callback) => callback.credential.as_ref(),
            _ => None,
        }
    }

    /// Calls the tool and returns its text.
    pub async fn call(
        &self,
        input: Map<String, Value>,
        call: &Call<'_>,
    ) -> Result<String, Failure> {
        if self.validator.as_ref().is_some_and(|validator| !validator.accepts(&input)) {
            return Err(Failure::failed(
                CallOutcome::Refused,
                "the input does not fit the tool's schema",
            ));
        }
        let context = call.tool_context();
        let _cancelled_when_dropped = context.cancel.clone().drop_guard();
        match &self.kind {
            Kind::Host(tool) => {
                // A panic in the embedder's code is a failure of this call and of nothing else.
                let called = AssertUnwindSafe(tool.call(input, &context)).catch_unwind().await;
                called
                    .unwrap_or_else(|_| Err(ToolError::failed("the tool panicked")))
                    .map_err(Failure::from)
            }
            Kind::Command(tool) => tool.run(&input, &context, call).await,
            Kind::Callback(callback) => callback.run(input, &context, call).await,
        }
    }
}

/// Checks what the model is told about a tool as the model's own requests are checked.
pub(crate) fn check_spec(setting: &str, spec: &ToolSpec) -> Result<(), SetupError> {
    if let Err(schema::SchemaFault(keyword)) = schema::check(&spec.parameters) {
        return Err(SetupError::setting(
            setting,
            format!("has parameters with `{keyword}`, which may only refer to `#...` inside them"),
        ));
    }
    // A bad name is told apart, by its list.
    if valid_tool_name(&spec.name) && !spec.is_valid() {
        return Err(SetupError::setting(setting, "has parameters that are nested too deep"));
    }
    Ok(())
}

impl From<ToolError> for Failure {
    fn from(error: ToolError) -> Self {
        let outcome = match &error {
            ToolError::Failed(_) => CallOutcome::Tool,
            ToolError::Input(_) => CallOutcome::Refused,
        };
        Self::failed(outcome, error.to_string())
    }
}
