//! What a turn does while it does it, for somebody at a terminal.

use std::io::Write as _;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use turnjail_broker::{CallOutcome, CallRoute};
use turnjail_runtime::{Event, EventKind, EventReceiver};

use super::output::{Palette, Style, visible};
use super::receipt::{bytes, time};

/// How often the line at the bottom moves.
const TICK: Duration = Duration::from_millis(100);

/// Collects the events of a turn until it is over, and shows them meanwhile on a terminal.
pub async fn watch(mut events: EventReceiver, shown: bool) -> Vec<Event> {
    let palette = Palette::of_stderr();
    let bar = if shown { spinner() } else { ProgressBar::hidden() };
    let mut seen = Vec::new();
    while let Some(event) = events.recv().await {
        if let Some(line) = line(&event).filter(|_| shown) {
            let line = palette.paint(Style::Faint, &line);
            // On a dumb terminal there is no moving line, and the library prints nothing at all.
            if bar.is_hidden() {
                let _ = writeln!(std::io::stderr(), "{line}");
            } else {
                bar.println(line);
            }
        }
        if let Some(now) = now(&event) {
            bar.set_message(now);
        }
        seen.push(event);
    }
    bar.finish_and_clear();
    seen
}

/// A line at the bottom that says what is being waited for, and for how long.
fn spinner() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
        bar.set_style(style);
    }
    bar.set_message("starting");
    bar.enable_steady_tick(TICK);
    bar
}

/// What is being waited for from this event on.
fn now(event: &Event) -> Option<String> {
    match &event.kind {
        EventKind::TurnStarted => Some("making a jail".to_owned()),
        EventKind::JailReady { .. } | EventKind::CallEnded { .. } => Some("worker".to_owned()),
        EventKind::CallStarted { route, .. } => Some(visible(&called(route))),
        _ => None,
    }
}

/// One event in words; none for those that say nothing new.
fn line(event: &Event) -> Option<String> {
    match &event.kind {
        EventKind::JailReady { took } => Some(format!("jail ready after {}", time(*took))),
        EventKind::CallEnded { route, outcome, took, answer_bytes, .. } => {
            let route = visible(&called(route));
            let took = time(*took);
            Some(match outcome {
                CallOutcome::Ok => format!("{route}: {took}, {}", bytes(*answer_bytes as u64)),
                outcome => format!("{route}: {} after {took}", outcome.as_str()),
            })
        }
        _ => None,
    }
}

/// What a route is called.
pub fn called(route: &CallRoute) -> String {
    match route {
        CallRoute::Model => "model".to_owned(),
        CallRoute::Tool { name } => format!("tool {name}"),
        CallRoute::Mcp { server, tool: None } => format!("mcp {server}"),
        CallRoute::Mcp { server, tool: Some(tool) } => format!("mcp {server}/{tool}"),
    }
}
