//! What a turn does while it does it, for somebody at a terminal.

use std::io::Write;

use turnjail_broker::{CallOutcome, CallRoute};
use turnjail_runtime::{Event, EventKind, EventReceiver};

use super::output::{Palette, Style, visible};
use super::receipt::{bytes, time};

/// Prints events on standard error until the turn is over.
pub async fn show(mut events: EventReceiver) {
    let palette = Palette::of_stderr();
    while let Some(event) = events.recv().await {
        if let Some(line) = line(&event) {
            let _ = writeln!(std::io::stderr(), "{}", palette.paint(Style::Faint, &line));
        }
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
