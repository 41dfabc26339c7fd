//! `rm`: ends a jail that another command runs, and returns when nothing of it is left.

use std::time::Duration;

use rustix::process::Signal;

use super::Done;
use super::failure::Failure;
use super::flags::{Flag, Until, parse};
use super::process::Identity;
use super::registry::{Found, Registry};

const KNOWN: &[Flag] = &[Flag::switch("force").short('f'), Flag::switch("volumes").short('v')];

/// How long the command that runs a jail has to end it by itself.
const ASKED: Duration = Duration::from_secs(2);
/// How long what was killed has to be gone.
const KILLED: Duration = Duration::from_secs(3);

/// The signal that tells the command that its jail is to be removed.
pub const REMOVE: Signal = Signal::USR1;

/// Removes every name; one that does not exist is told, and no failure with `--force`.
pub fn run(arguments: &[String]) -> Result<Done, Failure> {
    let typed = parse(KNOWN, arguments, Until::End)?;
    if typed.rest.is_empty() {
        return Err(Failure::plain("\"docker rm\" requires at least 1 argument."));
    }
    let registry = Registry::open()?;
    let force = typed.on("force");
    let mut done = Done::default();
    for name in &typed.rest {
        match one(&registry, name, force) {
            Ok(true) => done.stdout.extend(format!("{name}\n").into_bytes()),
            Ok(false) => {
                done.stderr.extend(format!("Error: No such container: {name}\n").into_bytes());
                done.code = done.code.max(u8::from(!force));
            }
            Err(why) => {
                done.stderr.extend(format!("Error: {why}\n").into_bytes());
                done.code = 1;
            }
        }
    }
    Ok(done)
}

/// Whether there was one; when this returns it is gone.
fn one(registry: &Registry, name: &str, force: bool) -> Result<bool, String> {
    if !is_name(name) {
        return Ok(false);
    }
    let unreadable = |error| format!("the registry of running jails cannot be read: {error}");
    let (keeper, ours) = match registry.find(name).map_err(unreadable)? {
        Found::Nothing => return Ok(false),
        Found::Left(running, entry) => (running.keeper, Some(entry)),
        Found::Alive(running) if !force => {
            return Err(format!(
                "You cannot remove a running container {}. Stop the container before attempting \
                 removal or force remove",
                running.id
            ));
        }
        Found::Alive(running) => {
            end(running.host)?;
            (running.keeper, None)
        }
    };
    // Its end is that of the last process of the jail, also where its command was killed.
    let was_there = match keeper.hold() {
        None => ours.is_none(),
        Some(keeper) if keeper.wait(KILLED) => true,
        Some(_) => return Err(format!("the jail {name} does not end")),
    };
    if ours.is_none() {
        // A command that had to be killed has left its file.
        let _ = registry.find(name);
    }
    Ok(was_there)
}

/// Ends the command that runs a jail: asked first, so that it can tell its caller, then killed.
fn end(host: Identity) -> Result<(), String> {
    let Some(process) = host.hold() else { return Ok(()) };
    process.signal(REMOVE);
    if process.wait(ASKED) {
        return Ok(());
    }
    process.signal(Signal::KILL);
    if process.wait(KILLED) { Ok(()) } else { Err("a command does not end".to_owned()) }
}

/// Whether it can be the name of a jail; nothing else is looked for, least of all in other directories.
pub fn is_name(name: &str) -> bool {
    let first = name.bytes().next();
    first.is_some_and(|byte| byte.is_ascii_alphanumeric())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
}
