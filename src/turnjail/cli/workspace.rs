//! `turnjail workspace`: where a channel's things are, how much they take, forgetting and mending them.
//!
//! What is in a workspace is only ever looked at by a worker in a jail.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::SystemTime;

use serde_json::{Value, json};
use turnjail_images::BUILTIN;
use turnjail_runtime::{
    TurnDirectories, WorkspaceInfo, WorkspaceMode, Workspaces, guild_workspace, turn_directories,
};

use super::arguments::{Common, WorkspaceArguments, WorkspaceCommand};
use super::output::{print_json, print_line};
use super::{failure, session};
use crate::config::{Driver, Settings};
use crate::error::CliError;
use crate::host;

/// Does what is asked for.
pub fn run(common: &Common, command: &WorkspaceCommand) -> Result<ExitCode, CliError> {
    host::refuse_root("workspace")?;
    let settings = common.load()?.settings;
    session::log(settings.log);
    match command {
        WorkspaceCommand::Path(which) => path(&settings, which, common.json),
        WorkspaceCommand::List => list(&settings, common.json),
        WorkspaceCommand::Remove(which) => remove(&settings, which, common.json),
        WorkspaceCommand::Repair(which) => repair(&settings, which, common.json),
    }
}

/// The directories of a channel, or of a guild's shared workspace alone.
fn directories(settings: &Settings, which: &WorkspaceArguments) -> TurnDirectories {
    let surface = which.channel.split_once(':').map_or(&*which.channel, |(surface, _)| surface);
    match &which.space {
        Some(space) if which.shared => {
            TurnDirectories { workspace: guild_workspace(surface, space), state: None }
        }
        space => {
            let shared = settings.turn.guild_workspace;
            let mode = if shared { WorkspaceMode::Server } else { WorkspaceMode::Channel };
            turn_directories(mode, &which.channel, space.as_deref())
        }
    }
}

async fn open(settings: &Settings) -> Result<Workspaces, CliError> {
    let driver = session::driver(settings).await?;
    let directories = &settings.directories;
    let (run, workspaces) = (&directories.run, &directories.workspaces);
    // Errands are the built-in worker's: another image's may know none.
    let image = match settings.turn.driver {
        Driver::Jail => BUILTIN,
        Driver::Docker => &settings.turn.image,
    };
    Workspaces::open(run, workspaces, image, driver).await.map_err(|error| failure::setup(&error))
}

fn path(settings: &Settings, which: &WorkspaceArguments, json: bool) -> Result<ExitCode, CliError> {
    let names = directories(settings, which);
    let root = &settings.directories.workspaces;
    let workspace = root.join(&names.workspace);
    let state = names.state.map(|name| root.join(name));
    if json {
        return print_json(&json!({ "workspace": workspace, "channel": state }));
    }
    let state = state.map(|state| format!("\n{}", state.display())).unwrap_or_default();
    print_line(&format!("{}{state}", workspace.display()))
}

fn list(settings: &Settings, json: bool) -> Result<ExitCode, CliError> {
    let list = session::block_on(async {
        open(settings).await?.list().await.map_err(|error| failure::turn(&error))
    })?;
    if json {
        return print_json(&list.iter().map(row).collect::<Value>());
    }
    let mut text = format!("{:<72} {:>10} {:>8}  last used", "workspace", "bytes", "entries");
    for info in &list {
        let (bytes, entries) = match info.size {
            None => ("in use".to_owned(), String::new()),
            Some(size) => {
                let more = if size.cut { "+" } else { "" };
                (format!("{}{more}", size.bytes), format!("{}{more}", size.entries))
            }
        };
        let days = days_since(info.last_used);
        let _ = write!(text, "\n{:<72} {bytes:>10} {entries:>8}  {days} days ago", info.name);
    }
    print_line(&text)
}

fn row(info: &WorkspaceInfo) -> Value {
    let seconds =
        info.last_used.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let size = info
        .size
        .map(|size| json!({ "bytes": size.bytes, "entries": size.entries, "cut": size.cut }));
    json!({ "name": info.name, "lastUsed": seconds, "size": size })
}

fn days_since(time: SystemTime) -> u64 {
    const DAY: u64 = 24 * 60 * 60;
    SystemTime::now().duration_since(time).unwrap_or_default().as_secs() / DAY
}

fn remove(
    settings: &Settings,
    which: &WorkspaceArguments,
    json: bool,
) -> Result<ExitCode, CliError> {
    let names = directories(settings, which);
    let removed = session::block_on(async {
        open(settings).await?.remove(&names).await.map_err(|error| failure::turn(&error))
    })?;
    if json {
        return print_json(&json!({ "removed": removed }));
    }
    print_line(if removed { "removed" } else { "there was nothing to remove" })
}

fn repair(
    settings: &Settings,
    which: &WorkspaceArguments,
    json: bool,
) -> Result<ExitCode, CliError> {
    let names = directories(settings, which);
    let aside = session::block_on(async {
        open(settings).await?.repair(&names).await.map_err(|error| failure::turn(&error))
    })?;
    if json {
        return print_json(&json!({ "aside": aside }));
    }
    match &aside[..] {
        [] => print_line("nothing was broken"),
        aside => print_line(&format!("put aside: {}", aside.join(", "))),
    }
}
