//! `ps`: the jails that run.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::failure::Failure;
use super::flags::{Flag, Until, parse};
use super::registry::{Registry, Running};
use super::{Done, template};

const KNOWN: &[Flag] = &[
    Flag::switch("all").short('a'),
    Flag::switch("quiet").short('q'),
    Flag::switch("no-trunc"),
    Flag::value("filter").short('f'),
    Flag::value("format"),
];

/// Lists running jails. There are no others, so `--all` changes nothing.
pub fn run(arguments: &[String]) -> Result<Done, Failure> {
    let typed = parse(KNOWN, arguments, Until::End)?;
    if !typed.rest.is_empty() {
        return Err(Failure::plain("\"docker ps\" accepts no arguments."));
    }
    let filters: Result<Vec<Filter>, Failure> = typed.all("filter").map(Filter::parse).collect();
    let filters = filters?;
    let list = Registry::open()?.list().map_err(|error| {
        Failure::plain(format!("Error: the registry of running jails cannot be read: {error}"))
    })?;
    let list = list.iter().filter(|running| filters.iter().all(|filter| filter.takes(running)));
    let whole = typed.on("no-trunc");
    let rows: Vec<Value> = list.map(|running| row(running, whole)).collect();
    if typed.on("quiet") {
        return Ok(template::ids(&rows));
    }
    match typed.last("format") {
        Some(format) => template::lines(format, &rows),
        None => Ok(Done::said(template::table(
            &rows,
            &[
                "CONTAINER ID:ID",
                "IMAGE:Image",
                "CREATED:RunningFor",
                "STATUS:Status",
                "NAMES:Names",
            ],
        ))),
    }
}

/// The fields that a format can name.
fn row(running: &Running, whole: bool) -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let seconds = now.saturating_sub(running.created);
    let mounts = running.mounts.iter().map(|mount| {
        let mount = mount.display().to_string();
        if whole || mount.chars().count() <= 15 {
            return mount;
        }
        // As Docker cuts them.
        mount.chars().take(14).chain(['…']).collect()
    });
    let id = if whole { &running.id } else { &running.id[..running.id.len().min(12)] };
    json!({
        "ID": id,
        "Image": running.image,
        "Command": "",
        "CreatedAt": running.created.to_string(),
        "RunningFor": format!("{seconds} seconds ago"),
        "Status": format!("Up {seconds} seconds"),
        "State": "running",
        "Names": running.name,
        "Mounts": mounts.collect::<Vec<_>>().join(","),
        "Networks": "none",
        "Ports": "",
        "Labels": "",
    })
}

/// A `--filter`: of what Docker has, the ones that say something about jails.
#[derive(Debug, PartialEq, Eq)]
enum Filter {
    /// A part of the name, at its start or end where anchored.
    Name { part: String, start: bool, end: bool },
    /// A state; every jail is running.
    Status(bool),
}

impl Filter {
    fn parse(text: &str) -> Result<Self, Failure> {
        match text.split_once('=') {
            Some(("name", pattern)) => {
                let start = pattern.starts_with('^');
                let part = pattern.trim_start_matches('^').trim_start_matches('/');
                let end = part.ends_with('$');
                let part = part.trim_end_matches('$');
                let plain = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
                if !part.chars().all(plain) {
                    return Err(Failure::plain(format!(
                        "Error: turnjail takes a part of a name, with ^ and $, and no other pattern: {pattern:?}"
                    )));
                }
                Ok(Self::Name { part: part.to_owned(), start, end })
            }
            Some(("status", state)) => Ok(Self::Status(state == "running")),
            _ => Err(Failure::plain(format!(
                "Error: invalid filter '{text}': turnjail knows name and status"
            ))),
        }
    }

    fn takes(&self, running: &Running) -> bool {
        match self {
            Self::Status(running) => *running,
            Self::Name { part, start, end } => {
                let name = running.name.as_str();
                match (start, end) {
                    (true, true) => name == part,
                    (true, false) => name.starts_with(part),
                    (false, true) => name.ends_with(part),
                    (false, false) => name.contains(part.as_str()),
                }
            }
        }
    }
}
