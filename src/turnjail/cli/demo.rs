//! `turnjail demo`: the conversation, printed as it goes.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Instant;

use serde_json::{Value, json};
use turnjail_runtime::{Event, EventKind, TurnResult};

use super::arguments::Common;
use super::output::{Palette, Style, print_json, print_line, visible, write_out};
use super::progress::called;
use super::receipt::{self, as_json, time};
use super::session;
use super::signals::Interrupts;
use crate::config::{LogFormat, Logging};
use crate::demo::{Demo, Place, SCRIPT, Step, Watcher, request};
use crate::error::{CliError, Exit};
use crate::host::{self, Account};

/// A step that is done.
struct Done {
    step: Step,
    result: TurnResult,
    events: Vec<Event>,
}

/// Runs the whole demonstration.
pub fn run(common: &Common) -> Result<ExitCode, CliError> {
    // Before any thread starts: the ids of one that runs already would stay root's.
    let account = host::drop_root()?;
    session::log(Logging { level: tracing::Level::ERROR, format: LogFormat::Text });
    let shown = if common.json { None } else { Some(Palette::of_stdout()) };
    if let Some(palette) = shown {
        print_line(&opening(account.as_ref(), palette))?;
    }
    let started = Instant::now();
    let done = session::in_private_place(async |place, interrupts| {
        converse(place, interrupts, shown).await
    })?;
    match shown {
        Some(palette) => write_out(closing(&done, started, palette).as_bytes()),
        None => print_json(&report(&done, account.as_ref(), started)),
    }
}

/// Says every line of the script. A reply that does not hold what it must ends it.
async fn converse(
    place: &Place,
    interrupts: &mut Interrupts,
    shown: Option<Palette>,
) -> Result<Vec<Done>, CliError> {
    let jail = turnjail_jail::JailOptions::new(place.images());
    let demo = interrupts.guard(Box::pin(Demo::start(place, jail))).await?;
    let mut done = Vec::new();
    let mut outcome = Ok(());
    for step in SCRIPT {
        let (watcher, events) = Watcher::new();
        let turn = session::answer(&demo.runtime, request(step.says), events, interrupts).await;
        outcome = turn.and_then(|result| {
            let one = Done { step, result, events: watcher.events() };
            if let Some(palette) = shown {
                print_line(&exchange(&one, palette))?;
            }
            let verdict = check(&one);
            done.push(one);
            verdict
        });
        if outcome.is_err() {
            break;
        }
    }
    demo.runtime.dispose().await;
    outcome.map(|()| done)
}

fn check(done: &Done) -> Result<(), CliError> {
    let reply = &done.result.reply;
    if reply.ok && reply.text.contains(done.step.expects) {
        return Ok(());
    }
    Err(CliError::new(
        Exit::Failed,
        "demo",
        format_args!(
            "to {:?} the reply was {:?}, which is not what it should be",
            done.step.says, reply.text
        ),
        "run `turnjail doctor`, and report this with what it prints",
    ))
}

fn opening(account: Option<&Account>, palette: Palette) -> String {
    let mut text = palette.paint(
        Style::Strong,
        "turnjail demo: each message is answered by a worker in a jail of its own",
    );
    if let Some(account) = account {
        let Account { uid, gid, because } = account;
        let because = visible(because);
        let _ = write!(
            text,
            "
started as root, went on as uid {uid}, gid {gid} ({because})"
        );
    }
    text
}

/// A message, its reply, and what that took.
fn exchange(done: &Done, palette: Palette) -> String {
    let Done { step, result, events } = done;
    let (guest, bot) =
        (palette.paint(Style::Strong, "guest"), palette.paint(Style::Strong, "bot  "));
    let took = palette.paint(Style::Faint, &cost(result, events));
    let shows = palette.paint(Style::Faint, step.shows);
    let reply = visible(&result.reply.text);
    format!("\n{guest}  {}\n{bot}  {reply}\n       {took}\n       shows: {shows}", step.says)
}

fn cost(result: &TurnResult, events: &[Event]) -> String {
    let ready = events.iter().find_map(|event| match event.kind {
        EventKind::JailReady { took } => Some(format!("jail ready in {}", time(took))),
        _ => None,
    });
    let calls = calls(events).into_iter().map(|(name, outcome, took)| match outcome {
        "ok" => format!("{name} {took}"),
        outcome => format!("{name} {outcome} after {took}"),
    });
    let parts =
        ready.into_iter().chain(calls).chain([format!("whole turn {}", time(result.receipt.took))]);
    parts.collect::<Vec<_>>().join(", ")
}

/// The broker's calls of a turn: route, outcome, time.
fn calls(events: &[Event]) -> Vec<(String, &'static str, String)> {
    let ended = events.iter().filter_map(|event| match &event.kind {
        EventKind::CallEnded { route, outcome, took, .. } => {
            Some((called(route), outcome.as_str(), time(*took)))
        }
        _ => None,
    });
    ended.collect()
}

/// What was in force in the last jail, which was made like the others.
fn closing(done: &[Done], started: Instant, palette: Palette) -> String {
    let Some(last) = done.last() else { return String::new() };
    let run = &last.result.receipt.run;
    let whole = time(started.elapsed());
    format!(
        "\nin force in each jail ({})\n{}\n{} turns in {} jails in {whole}; nothing of them is left\n",
        receipt::ran_by(run),
        receipt::in_force(run, palette),
        done.len(),
        done.len(),
    )
}

fn report(done: &[Done], account: Option<&Account>, started: Instant) -> Value {
    let steps = done.iter().map(|done| {
        json!({
            "shows": done.step.shows,
            "says": done.step.says,
            "ok": done.result.reply.ok,
            "text": done.result.reply.text,
            "receipt": as_json(&done.result.receipt),
            "events": done.events,
        })
    });
    json!({
        "ok": true,
        "dropped_to": account.map(|account| json!({ "uid": account.uid, "gid": account.gid })),
        "took_us": u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX),
        "turns": steps.collect::<Vec<_>>(),
    })
}
