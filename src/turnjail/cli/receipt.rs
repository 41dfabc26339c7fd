//! A turn's receipt: as JSON, and as tables of what was in force.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};
use turnjail_driver::{Receipt, WallState};
use turnjail_runtime::TurnReceipt;

use super::output::{Palette, Style, visible};

/// The whole receipt for machines.
pub fn as_json(receipt: &TurnReceipt) -> Value {
    let calls = &receipt.calls;
    json!({
        "turn": receipt.turn,
        "reset": receipt.reset,
        "waited_us": micros(receipt.waited),
        "took_us": micros(receipt.took),
        "calls": {
            "all": calls.calls,
            "model": calls.model_calls,
            "failed": calls.failed,
            "request_bytes": calls.request_bytes,
            "answer_bytes": calls.answer_bytes,
            "tokens": calls.tokens,
            "each": calls.ended,
        },
        "run": receipt.run,
    })
}

/// What stood around the worker and what bounded it, a line each.
pub fn in_force(run: &Receipt, palette: Palette) -> String {
    let walls = run.walls.iter().map(|wall| {
        let (style, state) = match wall.state {
            WallState::Enforced => (Style::Good, "enforced"),
            WallState::Degraded => (Style::Warning, "degraded"),
            WallState::Absent => (Style::Bad, "absent"),
        };
        (wall.name, style, state, wall.by.clone())
    });
    let limits = run.limits.iter().map(|limit| match &limit.by {
        Some(by) => (limit.name, Style::Good, "enforced", format!("{} by {by}", limit.asked)),
        None => (limit.name, Style::Warning, "not enforced", format!("{} asked", limit.asked)),
    });
    let (walls, limits) = (walls.collect::<Vec<_>>(), limits.collect::<Vec<_>>());
    let width = walls.iter().chain(&limits).map(|(name, ..)| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (title, lines) in [("walls", walls), ("limits", limits)] {
        let _ = writeln!(text, "{}", palette.paint(Style::Strong, title));
        for (name, style, state, by) in lines {
            let state = palette.paint(style, &format!("{state:12}"));
            let _ = writeln!(text, "  {name:width$}  {state}  {}", visible(&by));
        }
    }
    text
}

/// Driver, profile and image in one line.
pub fn ran_by(run: &Receipt) -> String {
    let digest = run.image_digest.as_deref().map(|digest| {
        let short: String = digest.chars().take("sha256:".len() + 12).collect();
        format!(", {short}")
    });
    let loopback = if run.loopback == Some(true) { " with a loopback" } else { "" };
    let profile = run.profile.map(|profile| format!(", profile {profile}{loopback}"));
    let (profile, digest) = (profile.unwrap_or_default(), digest.unwrap_or_default());
    visible(&format!("driver {}{profile}, image {}{digest}", run.driver, run.image))
}

/// A duration with three digits or so.
pub fn time(duration: Duration) -> String {
    let micros = duration.as_micros();
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..10_000 => format!("{:.2} ms", micros as f64 / 1e3),
        10_000..100_000 => format!("{:.1} ms", micros as f64 / 1e3),
        100_000..1_000_000 => format!("{} ms", micros / 1000),
        _ => format!("{:.2} s", duration.as_secs_f64()),
    }
}

/// A size in the unit that fits.
pub fn bytes(number: u64) -> String {
    match number {
        0..1024 => format!("{number} B"),
        1024..1_048_576 => format!("{:.1} KiB", number as f64 / 1024.0),
        _ => format!("{:.1} MiB", number as f64 / 1_048_576.0),
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use turnjail_driver::{ExitReason, Limit, Timing, Usage, Wall};

    use super::*;

    #[test]
    fn times_and_sizes_read_well() {
        let times =
            [7, 1_234, 45_678, 456_789, 1_500_000].map(|us| time(Duration::from_micros(us)));
        assert_eq!(times, ["7 µs", "1.23 ms", "45.7 ms", "456 ms", "1.50 s"]);
        assert_eq!([12, 2048, 3_145_728].map(bytes), ["12 B", "2.0 KiB", "3.0 MiB"]);
    }

    #[test]
    fn what_is_missing_is_said_as_plainly_as_what_stands() {
        let run = Receipt {
            driver: "jail",
            image: "turnjail-worker".into(),
            image_digest: Some(format!("sha256:{}", "ab".repeat(32))),
            profile: Some("sealed"),
            loopback: None,
            walls: vec![
                Wall {
                    name: "network",
                    state: WallState::Enforced,
                    by: "network namespace".into(),
                },
                Wall {
                    name: "landlock",
                    state: WallState::Absent,
                    by: "this kernel has none".into(),
                },
            ],
            limits: vec![
                Limit { name: "memory", asked: "512 MiB".into(), by: Some("RLIMIT_AS".into()) },
                Limit { name: "cpu", asked: "1".into(), by: None },
            ],
            exit: ExitReason::Ok,
            timing: Timing::default(),
            usage: Usage::default(),
        };
        let text = in_force(&run, Palette::plain());
        assert_eq!(
            text,
            "walls\n  \
               network   enforced      network namespace\n  \
               landlock  absent        this kernel has none\n\
             limits\n  \
               memory    enforced      512 MiB by RLIMIT_AS\n  \
               cpu       not enforced  1 asked\n"
        );
        assert_eq!(
            ran_by(&run),
            "driver jail, profile sealed, image turnjail-worker, sha256:abababababab"
        );
        let open = Receipt { profile: Some("general"), loopback: Some(true), ..run };
        assert!(ran_by(&open).contains("profile general with a loopback,"), "{}", ran_by(&open));
    }
}
