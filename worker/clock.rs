//! The current time in the turn's zone, as the model is told it.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone, TimeZoneDatabase};
use turnjail_protocol::WorkerCode;

use crate::sys;

/// Whether a zone is one that a worker knows: an IANA name in any letter case, from the database
/// inside the program, or an offset such as `+05:30`, `-0800` or `+05`.
pub fn is_known(zone: &str) -> bool {
    find(zone).is_some()
}

/// The current date and time in `zone`, such as `7/4/2026, 3:05:09 PM`.
pub(crate) fn now(zone: &str) -> Result<String, WorkerCode> {
    let zone = find(zone).ok_or(WorkerCode::TimeZone)?;
    let (seconds, nanoseconds) = sys::now().map_err(|_| WorkerCode::Io)?;
    let time = Timestamp::new(seconds, nanoseconds).map_err(|_| WorkerCode::Io)?;
    Ok(format(zone.to_datetime(time)))
}

fn find(zone: &str) -> Option<TimeZone> {
    match zone.as_bytes() {
        [b'+' | b'-', ..] => offset(zone.as_bytes()).map(TimeZone::fixed),
        _ => TimeZoneDatabase::bundled().get(zone).ok(),
    }
}

/// `±HH`, `±HHMM` or `±HH:MM`.
fn offset(text: &[u8]) -> Option<Offset> {
    let (sign, hours, minutes) = match *text {
        [sign, a, b] => (sign, [a, b], [b'0', b'0']),
        [sign, a, b, c, d] | [sign, a, b, b':', c, d] => (sign, [a, b], [c, d]),
        _ => return None,
    };
    let hours = two_digits(hours).filter(|hours| *hours < 24)?;
    let minutes = two_digits(minutes).filter(|minutes| *minutes < 60)?;
    let seconds = (hours * 60 + minutes) * 60;
    Offset::from_seconds(if sign == b'-' { -seconds } else { seconds }).ok()
}

fn two_digits(digits: [u8; 2]) -> Option<i32> {
    let digit = |digit: u8| char::from(digit).to_digit(10).and_then(|d| i32::try_from(d).ok());
    Some(digit(digits[0])? * 10 + digit(digits[1])?)
}

/// As JavaScript's `toLocaleString("en-US")` writes it, with plain spaces.
fn format(time: DateTime) -> String {
    let (half, hour) = match time.hour() {
        0 => ("AM", 12),
        hour @ 1..=11 => ("AM", hour),
        12 => ("PM", 12),
        hour => ("PM", hour - 12),
    };
    format!(
        "{}/{}/{}, {hour}:{:02}:{:02} {half}",
        time.month(),
        time.day(),
        time.year(),
        time.minute(),
        time.second()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::civil::datetime;

    fn at(zone: &str, timestamp: &str) -> String {
        format(find(zone).unwrap().to_datetime(timestamp.parse::<Timestamp>().unwrap()))
    }

    #[test]
    fn hours_count_to_twelve_twice() {
        let cases = [
            (0, "12:05:09 AM"),
            (1, "1:05:09 AM"),
            (11, "11:05:09 AM"),
            (12, "12:05:09 PM"),
            (13, "1:05:09 PM"),
            (23, "11:05:09 PM"),
        ];
        for (hour, time) in cases {
            let text = format(datetime(2026, 7, 4, hour, 5, 9, 999_999_999));
            assert_eq!(text, format!("7/4/2026, {time}"));
        }
    }

    #[test]
    fn a_zone_has_its_summer_time() {
        assert_eq!(at("America/New_York", "2026-07-04T19:05:09Z"), "7/4/2026, 3:05:09 PM");
        assert_eq!(at("America/New_York", "2026-01-04T20:05:09Z"), "1/4/2026, 3:05:09 PM");
        assert_eq!(at("Asia/Taipei", "2025-12-31T16:00:00Z"), "1/1/2026, 12:00:00 AM");
        assert_eq!(at("Australia/Lord_Howe", "2026-01-01T00:00:00Z"), "1/1/2026, 11:00:00 AM");
    }

    #[test]
    fn far_years_follow_the_zones_rule() {
        assert_eq!(at("Europe/Berlin", "2090-07-01T12:00:00Z"), "7/1/2090, 2:00:00 PM");
    }

    #[test]
    fn names_have_any_letter_case() {
        for zone in
            ["UTC", "utc", "Etc/GMT+5", "europe/BERLIN", "us/eastern", "Asia/Calcutta", "GMT"]
        {
            assert!(is_known(zone), "{zone}");
        }
    }

    #[test]
    fn offsets_have_three_forms() {
        assert_eq!(at("+05:30", "2026-07-04T00:00:00Z"), "7/4/2026, 5:30:00 AM");
        assert_eq!(at("-0800", "2026-07-04T00:00:00Z"), "7/3/2026, 4:00:00 PM");
        assert_eq!(at("+23:59", "2026-07-04T00:00:00Z"), "7/4/2026, 11:59:00 PM");
        assert_eq!(at("-00", "2026-07-04T00:00:00Z"), "7/4/2026, 12:00:00 AM");
    }

    #[test]
    fn other_zones_are_unknown() {
        let zones = [
            "",
            " UTC",
            "UTC ",
            "Mars/Olympus",
            "../UTC",
            "/etc/localtime",
            "+24:00",
            "+05:60",
            "+5",
            "+5:30",
            "+05:3",
            "+05:30:00",
            "+0a:00",
            "\u{2212}05:00",
            "UTC+1",
            "local",
            "a\0b",
        ];
        for zone in zones {
            assert!(!is_known(zone), "{zone:?}");
        }
        assert!(!is_known(&"x".repeat(100_000)));
    }
}
