//! Takes acts apart and does them.

use serde_json::{Value, json};

use crate::{call, files, misbehave, process, report};

/// Does the acts in order and reports each. None when one is not understood; the rest is not done.
pub fn perform(acts: &[Value], arguments: &[String], report: &mut dyn FnMut(&Value)) -> Option<()> {
    let mut done = call::Done::default();
    for act in acts {
        let (name, parameters) = act.as_array()?.split_first()?;
        let outcome = one(name.as_str()?, parameters, arguments, &mut done)?;
        report(&outcome);
        done.add(&outcome);
    }
    Some(())
}

fn one(
    name: &str,
    parameters: &[Value],
    arguments: &[String],
    done: &mut call::Done,
) -> Option<Value> {
    let text = |index: usize| parameters.get(index).and_then(Value::as_str);
    let number = |index: usize| parameters.get(index).and_then(Value::as_u64);
    Some(match name {
        "call" => call::system_call(number(0)?, parameters.get(1..)?, done)?,
        "int80" => call::int80(number(0)?, parameters.get(1..)?)?,
        "arguments" => json!({"list": arguments}),
        "environment" => environment(),
        "directory" => files::working_directory(),
        "read" => files::read(text(0)?),
        "list" => files::list(text(0)?),
        "status" => files::status(text(0)?),
        "write" => files::write(text(0)?, text(1)?, number(2).unwrap_or(0o600)),
        "descriptors" => files::descriptors(),
        "input" => report::text(&files::input()),
        "wait" => files::wait(text(0)?),
        "connect" => files::connect(text(0)?),
        "talk" => files::talk(text(0)?, text(1)?),
        "hang" => files::hang(text(0)?, text(1)?),
        "times" => times(number(0)?, parameters.get(1)?.as_array()?, arguments)?,
        "child" => process::child(parameters.first()?.as_array()?),
        "execute" => report::value(process::execute(&process::strings(parameters)?)),
        "run" => process::run(&process::strings(parameters)?),
        "forks" => process::forks(number(0)?),
        "relay" => process::relay(number(0)?),
        "ignore" => process::ignore(),
        "echo" => report::value(files::write_all(1, &files::input())),
        "reserve" => misbehave::reserve(number(0)?),
        "orphan" => process::orphan(number(0)?),
        "survivor" => process::survivor(parameters.first()?.as_array()?),
        "chain" => process::chain(number(0)?),
        "zombies" => process::zombies(number(0)?),
        "threads" => process::threads(number(0)?),
        "touch" => misbehave::touch(number(0)?),
        "hide" => misbehave::hide(number(0)?),
        "spin" => misbehave::spin(number(0)?),
        "sleep" => misbehave::sleep(number(0)?),
        "crash" => call::crash(),
        "abort" => std::process::abort(),
        "flood" => misbehave::flood(number(0)?, number(1)?),
        "fill" => misbehave::fill(text(0)?, number(1)?),
        "files" => misbehave::files(text(0)?, number(1)?),
        "print" => report::value(files::write_all(1, text(0)?.as_bytes())),
        "exit" => std::process::exit(number(0)? as i32),
        _ => return None,
    })
}

/// Does one act over and over. Tells the last outcome and how many were equal to it.
fn times(count: u64, act: &[Value], arguments: &[String]) -> Option<Value> {
    let (name, parameters) = act.split_first()?;
    let (mut last, mut equal) = (Value::Null, 0);
    for _ in 0..count {
        let outcome = one(name.as_str()?, parameters, arguments, &mut call::Done::default())?;
        equal = if outcome == last { equal + 1 } else { 1 };
        last = outcome;
    }
    Some(json!({"last": last, "equal": equal}))
}

fn environment() -> Value {
    let pairs = std::env::vars_os()
        .map(|(name, value)| format!("{}={}", name.to_string_lossy(), value.to_string_lossy()));
    json!({"list": pairs.collect::<Vec<_>>()})
}
