//! Checks of options that need nothing but the options.

use std::time::Duration;

use jiff::tz::TimeZoneDatabase;
use turnjail_driver::Limits;
use turnjail_protocol::limits::{
    MEMORY_PREVIEW_BYTES, PROMPT_BYTES_RANGE, REQUEST_BYTES_RANGE, TOOL_DESCRIPTIONS_BYTES,
    TOOL_RESULT_BYTES_RANGE, USER_ENTRY_BYTES,
};
use turnjail_protocol::{Budgets, Files};

use crate::SetupError;
use crate::options::{SandboxOptions, WorkspaceMode};

/// What a turn may take.
const TURN_TIMEOUT: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(600);
/// How long a turn may wait.
const MAX_WAIT: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(3600);
/// How many turns may wait for a workspace.
const MAX_WAITING: usize = 100;
/// What a tool's result must hold when a skill or a file is read in pages.
const PAGED_RESULT_BYTES: usize = 4_096;
/// What a request holds beside everything that is counted by itself.
const REQUEST_FRAME_BYTES: usize = 4_096;
/// The most bytes a limit of the file tools may name: JavaScript's largest exact number.
const MOST_BYTES: u64 = 1 << 53;

/// Checks every option by itself and the budgets together.
pub(crate) fn check(options: &SandboxOptions) -> Result<(), SetupError> {
    check_text("image", &options.image)?;
    check_root("run_root", &options.run_root)?;
    check_root("workspace_root", &options.workspace_root)?;
    check_time_zone(&options.time_zone)?;
    check_limits(options)?;
    check_times(options)?;
    check_files(options.files)?;
    let paged = !options.skills.is_empty() || options.files.is_some();
    check_budgets(options.budgets, paged)
}

/// The options that an older worker would ignore, as the errors name them. An empty budgets object
/// changes nothing.
pub(crate) fn protocol_2_options(options: &SandboxOptions) -> Vec<&'static str> {
    [
        (options.workspace == WorkspaceMode::Server, "workspace = \"server\""),
        (given(options.budgets).is_some(), "budgets"),
        (options.files.is_some(), "files"),
        (!options.skills.is_empty(), "skills"),
    ]
    .into_iter()
    .filter_map(|(used, name)| used.then_some(name))
    .collect()
}

/// The budgets if any is set.
pub(crate) fn given(budgets: Budgets) -> Option<Budgets> {
    (budgets != Budgets::default()).then_some(budgets)
}

fn check_text(option: &'static str, text: &str) -> Result<(), SetupError> {
    if text.trim().is_empty() {
        return Err(SetupError::option(option, "must not be empty"));
    }
    Ok(())
}

fn check_root(option: &'static str, path: &std::path::Path) -> Result<(), SetupError> {
    if !path.is_absolute() || path.parent().is_none() {
        return Err(SetupError::option(
            option,
            format!("must be the absolute path of a directory for this alone, but is {path:?}"),
        ));
    }
    Ok(())
}

fn check_time_zone(name: &str) -> Result<(), SetupError> {
    // The worker has this database too, and no other.
    if TimeZoneDatabase::bundled().get(name).is_ok() || is_offset(name) {
        return Ok(());
    }
    Err(SetupError::option(
        "time_zone",
        format!(
            "must be an IANA name such as Europe/Vienna or an offset such as +05:30, but is {name:?}"
        ),
    ))
}

/// The offsets that JavaScript takes: `+05`, `+0530` and `+05:30`, with either sign.
fn is_offset(name: &str) -> bool {
    let Some(digits) = name.strip_prefix(['+', '-']) else { return false };
    let (hours, minutes) = match digits.split_once(':') {
        Some(parts) => parts,
        None if digits.len() == 2 => (digits, "00"),
        None if digits.len() == 4 && digits.is_ascii() => digits.split_at(2),
        None => return false,
    };
    let below = |digits: &str, limit: u8| {
        digits.len() == 2
            && digits.bytes().all(|byte| byte.is_ascii_digit())
            && digits.parse::<u8>().is_ok_and(|number| number < limit)
    };
    below(hours, 24) && below(minutes, 60)
}

fn check_limits(options: &SandboxOptions) -> Result<(), SetupError> {
    if options.memory_mb < Limits::MIN_MEMORY_MB {
        return Err(SetupError::option(
            "memory_mb",
            format!("must be at least {}, but is {}", Limits::MIN_MEMORY_MB, options.memory_mb),
        ));
    }
    if !options.cpus.is_finite() || options.cpus <= 0.0 {
        return Err(SetupError::option(
            "cpus",
            format!("must be a number over 0, but is {}", options.cpus),
        ));
    }
    if options.pids < Limits::MIN_PIDS {
        return Err(SetupError::option(
            "pids",
            format!("must be at least {}, but is {}", Limits::MIN_PIDS, options.pids),
        ));
    }
    Ok(())
}

fn check_times(options: &SandboxOptions) -> Result<(), SetupError> {
    let between = |option, value: Duration, range: std::ops::RangeInclusive<Duration>| {
        if range.contains(&value) {
            return Ok(());
        }
        let (from, to) = (range.start().as_secs_f64(), range.end().as_secs_f64());
        Err(SetupError::option(
            option,
            format!("must be {from} s to {to} s, but is {} s", value.as_secs_f64()),
        ))
    };
    between("turn_timeout", options.turn_timeout, TURN_TIMEOUT)?;
    if let Some(wait) = options.max_wait {
        between("max_wait", wait, MAX_WAIT)?;
    }
    if options.max_waiting > MAX_WAITING {
        return Err(SetupError::option(
            "max_waiting",
            format!("must be 0 to {MAX_WAITING}, but is {}", options.max_waiting),
        ));
    }
    Ok(())
}

fn check_files(files: Option<Files>) -> Result<(), SetupError> {
    let Some(files) = files else { return Ok(()) };
    for (option, bytes) in [
        ("files.max_file_bytes", files.max_file_bytes),
        ("files.max_total_bytes", files.max_total_bytes),
    ] {
        if !(1..=MOST_BYTES).contains(&bytes) {
            return Err(SetupError::option(
                option,
                format!("must be 1 to {MOST_BYTES}, but is {bytes}"),
            ));
        }
    }
    if files.max_file_bytes > files.max_total_bytes {
        return Err(SetupError::option(
            "files.max_file_bytes",
            format!(
                "must be at most files.max_total_bytes, which is {}, but is {}",
                files.max_total_bytes, files.max_file_bytes
            ),
        ));
    }
    Ok(())
}

/// Each budget by itself, then whether a request has room for the largest parts that it must hold.
fn check_budgets(budgets: Budgets, paged: bool) -> Result<(), SetupError> {
    let within = |option, bytes: Option<usize>, range: std::ops::RangeInclusive<usize>| match bytes
    {
        Some(bytes) if !range.contains(&bytes) => Err(SetupError::option(
            option,
            format!("must be {} to {}, but is {bytes}", range.start(), range.end()),
        )),
        _ => Ok(()),
    };
    within("budgets.prompt_bytes", budgets.prompt_bytes, PROMPT_BYTES_RANGE)?;
    within("budgets.tool_result_bytes", budgets.tool_result_bytes, TOOL_RESULT_BYTES_RANGE)?;
    within("budgets.request_bytes", budgets.request_bytes, REQUEST_BYTES_RANGE)?;
    if paged && budgets.tool_result() < PAGED_RESULT_BYTES {
        return Err(SetupError::option(
            "budgets.tool_result_bytes",
            format!(
                "must be at least {PAGED_RESULT_BYTES} when skills or files are on, but is {}",
                budgets.tool_result()
            ),
        ));
    }
    check_budgets_together(budgets)
}

fn check_budgets_together(budgets: Budgets) -> Result<(), SetupError> {
    let parts = [
        (budgets.prompt(), "prompt_bytes"),
        (budgets.tool_result(), "tool_result_bytes"),
        (USER_ENTRY_BYTES, "user message"),
        (2 * MEMORY_PREVIEW_BYTES, "memory previews"),
        (TOOL_DESCRIPTIONS_BYTES, "tool descriptions"),
        (REQUEST_FRAME_BYTES, "frame"),
    ];
    let needed: usize = parts.iter().map(|(bytes, _)| bytes).sum();
    if budgets.request() >= needed {
        return Ok(());
    }
    let sum: Vec<String> = parts.iter().map(|(bytes, what)| format!("{bytes} ({what})")).collect();
    Err(SetupError::Option {
        option: "budgets.request_bytes",
        problem: format!(
            "must be at least {needed}, the sum of {}, but is {}",
            sum.join(" + "),
            budgets.request()
        ),
        remedy: Some("raise budgets.request_bytes, or lower the other budgets".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budgets(prompt: usize, tool_result: usize, request: usize) -> Budgets {
        Budgets {
            prompt_bytes: Some(prompt),
            tool_result_bytes: Some(tool_result),
            request_bytes: Some(request),
        }
    }

    #[test]
    fn the_least_and_the_greatest_budgets_fit() {
        assert!(check_budgets(budgets(1_024, 512, 95_744), false).is_ok());
        assert!(check_budgets(budgets(65_536, 65_536, 245_760), false).is_ok());
        assert!(check_budgets(Budgets::default(), true).is_ok());
    }

    #[test]
    fn budgets_that_do_not_fit_together_give_the_sum() {
        let error = check_budgets(budgets(1_024, 513, 95_744), false).unwrap_err().to_string();
        assert_eq!(
            error,
            "budgets.request_bytes must be at least 95745, the sum of 1024 (prompt_bytes) + 513 (tool_result_bytes) + 49152 (user message) + 8192 (memory previews) + 32768 (tool descriptions) + 4096 (frame), but is 95744"
        );
        // A budget that is not set counts with the worker's own default.
        let only_request = Budgets { request_bytes: Some(106_495), ..Budgets::default() };
        assert!(check_budgets(only_request, false).unwrap_err().to_string().contains("106496"));
        let enough = Budgets { request_bytes: Some(106_496), ..Budgets::default() };
        assert!(check_budgets(enough, false).is_ok());
    }

    #[test]
    fn a_budget_out_of_range_names_it() {
        for (bad, names) in [
            (budgets(1_023, 512, 245_760), "budgets.prompt_bytes must be 1024 to 65536"),
            (budgets(65_537, 512, 245_760), "budgets.prompt_bytes"),
            (budgets(1_024, 511, 245_760), "budgets.tool_result_bytes must be 512 to 65536"),
            (budgets(1_024, 65_537, 245_760), "budgets.tool_result_bytes"),
            (budgets(1_024, 512, 95_743), "budgets.request_bytes must be 95744 to 245760"),
            (budgets(1_024, 512, 245_761), "budgets.request_bytes"),
        ] {
            let error = check_budgets(bad, false).unwrap_err().to_string();
            assert!(error.starts_with(names), "{error}");
        }
        let error = check_budgets(budgets(1_024, 4_095, 245_760), true).unwrap_err().to_string();
        assert!(error.contains("at least 4096 when skills or files are on"), "{error}");
        assert!(check_budgets(budgets(1_024, 4_096, 245_760), true).is_ok());
    }

    #[test]
    fn time_zones_are_names_in_any_case_and_offsets() {
        for name in ["UTC", "Europe/Vienna", "europe/vienna", "+05:30", "-0800", "+14"] {
            assert!(check_time_zone(name).is_ok(), "{name}");
        }
        for name in ["", "Mars/Olympus", "+24:00", "+05:60", "+5", "05:30", "+05:3", "+0５", "+é0"]
        {
            let error = check_time_zone(name).unwrap_err().to_string();
            assert!(error.starts_with("time_zone must be"), "{name}: {error}");
        }
    }
}
