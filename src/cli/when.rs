//! Instants for people: absolute in UTC, and how far from the daemon's now. Must not know a clock.
use reversi_proto::time::Timestamp;

use super::out::clean;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// `2026-10-01 00:00:02 UTC`; a text that is no instant stays what it is.
pub(super) fn instant(text: &str) -> String {
    match text.parse::<Timestamp>() {
        Ok(_) => format!("{} {} UTC", &text[..10], &text[11..19]),
        Err(_) => clean(text),
    }
}

/// `00:00:02`.
pub(super) fn time_of_day(at: Timestamp) -> String {
    at.to_string()[11..19].to_owned()
}

/// `2026-10-01 00:15:02 UTC (in 12 min)`.
pub(super) fn with_distance(text: &str, now: Option<Timestamp>) -> String {
    match distance(text, now) {
        Some(distance) => format!("{} ({distance})", instant(text)),
        None => instant(text),
    }
}

/// `in 12 min` or `3 h ago`, rounded down: nobody is told of time that they don't have. None where no now is known.
pub(super) fn distance(text: &str, now: Option<Timestamp>) -> Option<String> {
    let (at, now) = (text.parse::<Timestamp>().ok()?, now?);
    Some(if at >= now {
        format!("in {}", span(at.ms_since(now) / 1000))
    } else {
        format!("{} ago", span(now.ms_since(at) / 1000))
    })
}

fn span(seconds: u64) -> String {
    match seconds {
        ..MINUTE => format!("{seconds} s"),
        MINUTE..HOUR => format!("{} min", seconds / MINUTE),
        HOUR..DAY => format!("{} h {} min", seconds / HOUR, seconds % HOUR / MINUTE),
        DAY.. => format!("{} d {} h", seconds / DAY, seconds % DAY / HOUR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_said_as_people_say_them() {
        let now = "2026-10-01T00:00:00.000000Z".parse().ok();
        let said = |text| distance(text, now).unwrap();
        assert_eq!(said("2026-10-01T00:12:59.999999Z"), "in 12 min");
        assert_eq!(said("2026-10-01T00:00:00.000000Z"), "in 0 s");
        assert_eq!(said("2026-10-01T05:06:07.000000Z"), "in 5 h 6 min");
        assert_eq!(said("2026-10-04T05:06:07.000000Z"), "in 3 d 5 h");
        assert_eq!(said("2026-09-30T23:59:01.000000Z"), "59 s ago");
        assert_eq!(with_distance("2026-10-01T00:00:02.000000Z", None), "2026-10-01 00:00:02 UTC");
        assert_eq!(with_distance("so\u{1b}on", now), "so\u{fffd}on");
    }
}
