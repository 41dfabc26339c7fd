//! Errors of the layers below to the command line's: cause, remedy, exit code.

use turnjail_driver::DriverError;
use turnjail_images::ImageError;
use turnjail_pull::PullError;
use turnjail_runtime::{SetupError, TurnError};

use crate::config::Config;
use crate::error::{CliError, Exit};

/// The code of a required policy that is not met.
const POLICY: &str = "policy";
/// The codes of a container engine that cannot be used as it is set up.
const DOCKER: &str = "docker-";

/// The settings that options of the layers below come from, where their names differ.
const SETTINGS: [(&str, &str); 18] = [
    ("image", "turn.image"),
    ("run_root", "directories.run"),
    ("workspace_root", "directories.workspaces"),
    ("prompt", "turn.prompt"),
    ("time_zone", "turn.time_zone"),
    ("memory_mb", "limits.memory_mb"),
    ("cpus", "limits.cpus"),
    ("pids", "limits.pids"),
    ("turn_timeout", "turn.timeout_s"),
    ("max_waiting", "turn.max_waiting"),
    ("max_wait", "turn.max_wait_s"),
    ("max_calls", "turn.max_calls"),
    ("model", "model.name"),
    ("model_url", "model.url"),
    ("model_timeout", "model.timeout_s"),
    ("credential", "model.api_key"),
    ("credential_header", "model.credential_header"),
    ("skills", "turn.skills"),
];

/// Why a runtime did not start.
pub fn setup(error: &SetupError) -> CliError {
    use turnjail_broker::SetupError as BrokerError;
    let exit = match error {
        SetupError::Driver(error) => driver_exit(error),
        SetupError::Broker(BrokerError::Mcp { .. }) => Exit::Failed,
        _ => Exit::Usage,
    };
    let option = match error {
        SetupError::Option { option, .. } => option,
        SetupError::Broker(BrokerError::Setting { setting, .. }) => setting.as_str(),
        _ => "",
    };
    let setting = SETTINGS.iter().find(|(name, _)| *name == option).map(|(_, setting)| *setting);
    let fallback = match setting {
        Some(setting) => {
            format!("change {setting}; `turnjail config check` shows what is in effect")
        }
        None => "change the setting; `turnjail config check` shows what is in effect".to_owned(),
    };
    CliError::new(exit, error.code(), error, error.remedy().unwrap_or(&fallback))
}

/// The same of a configuration: with the place of the setting, by the name that it has there.
pub fn setup_of(error: &SetupError, config: &Config) -> CliError {
    use turnjail_broker::SetupError as BrokerError;
    let mut said = setup(error);
    let option = match error {
        SetupError::Option { option, .. } | SetupError::Root { option, .. } => option,
        SetupError::Broker(BrokerError::Setting { setting, .. }) => setting.as_str(),
        SetupError::Skill { .. } => "skills",
        _ => return said,
    };
    let setting = SETTINGS.iter().find(|(name, _)| *name == option).map(|(_, setting)| *setting);
    for problem in &mut said.problems {
        let setting = setting.unwrap_or(option);
        let cause = match problem.cause.strip_prefix(option) {
            Some(rest) => format!("{setting}{rest}"),
            None => std::mem::take(&mut problem.cause),
        };
        problem.cause = format!("{}{cause}", config.place_of(setting));
        problem.remedy = problem.remedy.replace(option, setting);
    }
    said
}

/// Why a driver did not start.
pub fn driver(error: &DriverError) -> CliError {
    let fallback = "run `turnjail doctor`";
    CliError::new(driver_exit(error), error.code(), error, error.remedy().unwrap_or(fallback))
}

/// What is wrong with an image or the store.
pub fn image(error: &ImageError) -> CliError {
    let exit = match error {
        ImageError::InUse(_) => Exit::Busy,
        ImageError::Io { .. } => Exit::Failed,
        _ => Exit::Usage,
    };
    CliError::new(exit, error.code(), error, error.remedy())
}

/// Why an image was not pulled.
pub fn pull(error: &PullError) -> CliError {
    match error {
        PullError::Image(error) => image(error),
        error => CliError::new(Exit::Failed, error.code(), error, error.remedy()),
    }
}

/// Why a turn gave no reply.
pub fn turn(error: &TurnError) -> CliError {
    let (exit, fallback) = match error {
        TurnError::ChannelBusy
        | TurnError::QueueFull { .. }
        | TurnError::WaitedTooLong { .. }
        | TurnError::WorkspaceBusy { .. }
        | TurnError::Stopped { .. }
        | TurnError::ShuttingDown => (Exit::Busy, "try again"),
        TurnError::Timeout { .. } => {
            (Exit::Timeout, "raise turn.timeout_s, or look why the model takes so long")
        }
        TurnError::TooLarge { .. } | TurnError::Refused { .. } => {
            (Exit::Usage, "change what is asked; `turnjail turn --help` shows how")
        }
        TurnError::Driver(error) => (driver_exit(error), "run `turnjail doctor`"),
        TurnError::WorkerFailed { code, .. } => (Exit::Failed, worker_remedy(code.as_deref())),
        _ => (Exit::Failed, "run it again with TURNJAIL_LOG_LEVEL=debug to see more"),
    };
    CliError::new(exit, error.code(), error, error.remedy().unwrap_or(fallback))
}

fn driver_exit(error: &DriverError) -> Exit {
    match error {
        DriverError::Start { code, .. } if *code == POLICY => Exit::PolicyUnmet,
        DriverError::Start { code, .. } if code.starts_with(DOCKER) => Exit::Failed,
        DriverError::Start { .. } => Exit::CannotJail,
        DriverError::Image { .. } | DriverError::Spec(_) => Exit::Usage,
        _ => Exit::Failed,
    }
}

/// What to do about a worker's own failure code.
fn worker_remedy(code: Option<&str>) -> &'static str {
    match code {
        Some("model_refused") => {
            "check model.url (it ends in /chat/completions), model.name and the key; the log says what the endpoint did"
        }
        Some("model_invalid" | "no_final_text" | "too_many_calls") => {
            "the model answered badly: try again, or use another model"
        }
        Some("invalid_history" | "invalid_memory") => {
            "run `turnjail workspace repair` for the channel: it puts the broken file aside"
        }
        Some("tool_descriptions" | "request_budget") => {
            "declare fewer or shorter tools, or raise budgets"
        }
        Some("time_zone") => "set turn.time_zone to an IANA name such as Europe/Berlin",
        _ => "run it again with TURNJAIL_LOG_LEVEL=debug to see more",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_way_of_not_answering_has_its_exit_code() {
        for (error, exit) in [
            (TurnError::ChannelBusy, Exit::Busy),
            (TurnError::QueueFull { waiting: 4 }, Exit::Busy),
            (TurnError::WorkspaceBusy { holder: "process 1".into() }, Exit::Busy),
            (TurnError::Stopped { waiting: false }, Exit::Busy),
            (TurnError::Timeout { after: Duration::from_secs(1) }, Exit::Timeout),
            (TurnError::Refused { problem: "no".into() }, Exit::Usage),
            (TurnError::Driver(start("userns-disabled")), Exit::CannotJail),
            (TurnError::Driver(start(POLICY)), Exit::PolicyUnmet),
            (TurnError::Driver(DriverError::Cancelled), Exit::Failed),
        ] {
            let said = turn(&error);
            assert_eq!(said.exit, exit, "{error}");
            assert!(!said.problems[0].remedy.is_empty());
        }
    }

    fn start(code: &'static str) -> DriverError {
        DriverError::Start { code, cause: "no".into(), remedy: None }
    }
}
