//! `[turn]`, `[limits]`, `[budgets]` and `[files]`: what one turn is told and may use.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use turnjail_protocol::limits::{
    MAX_FILE_BYTES, MAX_TOTAL_BYTES, PROMPT_BYTES_RANGE, REQUEST_BYTES_RANGE,
    TOOL_RESULT_BYTES_RANGE,
};
use turnjail_protocol::{Budgets, Files};

use super::model::seconds;
use super::paths::{Base, path, shown_option};
use super::section::Section;

/// The longest prompt that is read, in bytes; the budget of a request is smaller still.
const PROMPT_BYTES: usize = 256 * 1024;

/// What runs workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    /// turnjail's own jails.
    Jail,
    /// Containers of Docker or podman.
    Docker,
}

/// `[turn]` and `[limits]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Turn {
    /// The image that the worker comes from.
    pub image: String,
    /// What runs the worker.
    pub driver: Driver,
    /// Whether the channels of a guild share a workspace.
    pub guild_workspace: bool,
    /// Directories of skills.
    pub skills: Vec<PathBuf>,
    /// The system prompt; none is the built-in one.
    pub prompt: Option<String>,
    /// The IANA name of the time zone that the worker tells the model.
    pub time_zone: String,
    /// How long a turn may run.
    pub timeout: Duration,
    /// How many turns may wait for one workspace.
    pub max_waiting: usize,
    /// How long a turn may wait; none is as long as it may run.
    pub max_wait: Option<Duration>,
    /// Calls to model and tools in one turn.
    pub max_calls: u32,
    /// Memory of a jail in MiB.
    pub memory_mb: u32,
    /// CPUs of a jail.
    pub cpus: f64,
    /// Processes of a jail.
    pub pids: u32,
}

impl Turn {
    pub(super) fn read(section: Section<'_>, limits: Section<'_>, base: &Base<'_>) -> Option<Self> {
        let image = section.text("image", 512).or(turnjail_images::BUILTIN.to_owned());
        let drivers = [("jail", Driver::Jail), ("docker", Driver::Docker)];
        let driver = section.choice("driver", &drivers, Driver::Jail);
        let modes = [("channel", false), ("server", true)];
        let guild_workspace = section.choice("workspace", &modes, false);
        let skills = skills(&section, base);
        let prompt = prompt(&section, base);
        let time_zone = section.text("time_zone", 64).or("UTC".to_owned());
        let timeout = seconds(section.integer("timeout_s", 1..=600).or(120));
        let max_waiting = section.integer("max_waiting", 0..=100).or(4) as usize;
        let max_wait = section.integer("max_wait_s", 1..=3600).optional().map(seconds);
        let max_calls = section.integer("max_calls", 1..=1000).or(48) as u32;
        section.finish();
        let memory_mb = limits.integer("memory_mb", 64..=1_048_576).or(512) as u32;
        let cpus = limits.number("cpus", 0.01..=1024.0).or(1.0);
        let pids = limits.integer("pids", 8..=32_768).or(64) as u32;
        limits.finish();
        Some(Self {
            image,
            driver,
            guild_workspace,
            skills: skills?,
            prompt: prompt.ok()?,
            time_zone,
            timeout,
            max_waiting,
            max_wait,
            max_calls,
            memory_mb,
            cpus,
            pids,
        })
    }
}

fn skills(section: &Section<'_>, base: &Base<'_>) -> Option<Vec<PathBuf>> {
    let texts = section.texts("skills").or_shown(Vec::new(), Into::into);
    let paths: Option<Vec<_>> = texts.iter().map(|text| base.resolve(text)).collect();
    if paths.is_none() {
        section.find(
            section.origin(),
            format_args!("{} names a directory that cannot be meant", section.name("skills")),
            "write absolute paths, or paths below ~/, without ..",
        );
    }
    paths
}

/// The prompt or the text of the file that holds it. An error is a finding already.
fn prompt(section: &Section<'_>, base: &Base<'_>) -> Result<Option<String>, ()> {
    let text = section.text("prompt", PROMPT_BYTES).optional();
    let file: Option<PathBuf> =
        path(section, "prompt_file", base).map(Some).or_shown(None, shown_option);
    let Some(file) = file else { return Ok(text) };
    let name = section.name("prompt_file");
    let origin = section.lookup("prompt_file").map_or(section.origin(), |item| item.origin);
    if text.is_some() {
        section.find(origin, "turn.prompt and turn.prompt_file are both set", "keep one of them");
        return Err(());
    }
    let read = turnjail_broker::read_file(&file, PROMPT_BYTES)
        .map_err(|error| error.to_string())
        .and_then(|bytes| {
            std::str::from_utf8(&bytes).map(str::to_owned).map_err(|error| error.to_string())
        });
    read.map(Some).map_err(|reason| {
        section.find(
            origin,
            format_args!("{name}: {} cannot be used: {reason}", file.display()),
            format_args!("set {name} to a readable UTF-8 file of at most {PROMPT_BYTES} bytes"),
        );
    })
}

/// `[budgets]`: sizes in bytes of JSON, each only if it is set.
pub(super) fn budgets(section: Section<'_>) -> Budgets {
    let size = |key, range: RangeInclusive<usize>| {
        let range = *range.start() as i64..=*range.end() as i64;
        section.integer(key, range).optional().map(|bytes| bytes as usize)
    };
    let budgets = Budgets {
        prompt_bytes: size("prompt_bytes", PROMPT_BYTES_RANGE),
        tool_result_bytes: size("tool_result_bytes", TOOL_RESULT_BYTES_RANGE),
        request_bytes: size("request_bytes", REQUEST_BYTES_RANGE),
    };
    section.finish();
    budgets
}

/// `[files]`; none when the file has no such section: the tools are off.
pub(super) fn files(section: Section<'_>) -> Option<Files> {
    let file = section.integer("max_file_bytes", 1..=1 << 30).optional();
    let total = section.integer("max_total_bytes", 1..=1 << 40).optional();
    // A flag or variable turns the tools on as well.
    let on = section.present() || file.is_some() || total.is_some();
    section.finish();
    on.then(|| Files {
        max_file_bytes: file.map_or(MAX_FILE_BYTES, i64::unsigned_abs),
        max_total_bytes: total.map_or(MAX_TOTAL_BYTES, i64::unsigned_abs),
    })
}
