//! The demonstration's host tool: dice, which a worker in a jail cannot be trusted to roll.

use async_trait::async_trait;
use serde_json::{Map, Value, json};
use turnjail_broker::{HostTool, ToolContext, ToolError};
use turnjail_protocol::ToolSpec;

/// Rolls 1 to 6 dice.
pub struct Dice {
    spec: ToolSpec,
}

impl Dice {
    /// The tool `roll_dice`.
    pub fn new() -> Self {
        let parameters = json!({
            "type": "object",
            "properties": { "count": { "type": "integer", "minimum": 1, "maximum": 6 } },
            "required": ["count"],
            "additionalProperties": false,
        });
        let parameters = parameters.as_object().cloned().unwrap_or_default();
        Self { spec: ToolSpec::new("roll_dice", "Rolls up to six dice on the host.", parameters) }
    }
}

#[async_trait]
impl HostTool for Dice {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, input: Map<String, Value>, _: &ToolContext) -> Result<String, ToolError> {
        let count =
            input.get("count").and_then(Value::as_u64).filter(|count| (1..=6).contains(count));
        let count = count.ok_or_else(|| ToolError::Input("count is not 1 to 6".to_owned()))?;
        let rolls: Result<Vec<_>, _> = (0..count).map(|_| roll()).collect();
        Ok(rolls?.join(" and "))
    }
}

fn roll() -> Result<String, ToolError> {
    loop {
        let mut byte = [0];
        getrandom::fill(&mut byte).map_err(|error| ToolError::failed(error.to_string()))?;
        // 252 is a multiple of 6; what is above would favour the low numbers.
        if byte[0] < 252 {
            return Ok((byte[0] % 6 + 1).to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_a_die_and_no_other_comes_up() {
        let mut seen = [false; 7];
        for _ in 0..500 {
            seen[roll().unwrap().parse::<usize>().unwrap()] = true;
        }
        assert_eq!(seen, [false, true, true, true, true, true, true]);
    }
}
