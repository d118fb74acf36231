//! Instants as integers. Knows no clock: `now` always comes in as an argument.
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Microseconds since 1970-01-01T00:00:00Z, printed in exactly 27 characters: `2026-10-01T00:00:02.000000Z`
/// (RFC 3339, UTC). Valid from year 0 to 9999.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

/// The first instant that is not read back: 9999-12-30T22:00:00Z, where the parser of jiff ends.
const END_MICROS: i64 = 253_402_207_200_000_000;

impl Timestamp {
    /// From microseconds; clamped to what can be printed.
    pub fn from_micros(micros: i64) -> Self {
        Self(micros.clamp(0, END_MICROS - 1))
    }

    /// Microseconds since the epoch.
    pub fn micros(self) -> i64 {
        self.0
    }

    /// This instant and `ms` milliseconds.
    #[must_use]
    pub fn plus_ms(self, ms: u64) -> Self {
        let micros = i64::try_from(ms).unwrap_or(i64::MAX).saturating_mul(1000);
        Self::from_micros(self.0.saturating_add(micros))
    }

    /// Milliseconds from `earlier` to this instant, 0 if it isn't earlier.
    pub fn ms_since(self, earlier: Self) -> u64 {
        u64::try_from((self.0 - earlier.0) / 1000).unwrap_or(0)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, micros) = (self.0.div_euclid(86_400_000_000), self.0.rem_euclid(86_400_000_000));
        let (year, month, day) = civil(days);
        let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
    }
}

/// Days since the epoch to (year, month, day) of the proleptic Gregorian calendar: Howard Hinnant's `civil_from_days`.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_shifted + 2) / 5 + 1;
    let month = if month_shifted < 10 { month_shifted + 3 } else { month_shifted - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// The text is not an instant in its one spelling.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a time like 2026-10-01T00:00:02.000000Z, got {got:?}")]
pub struct TimeError {
    /// What stood there.
    pub got: String,
}

impl FromStr for Timestamp {
    type Err = TimeError;
    /// Reads the 27-character form and nothing else, so that an instant has one spelling.
    fn from_str(text: &str) -> Result<Self, TimeError> {
        let wrong = || TimeError { got: text.chars().take(40).collect() };
        if text.len() != 27 || !text.ends_with('Z') {
            return Err(wrong());
        }
        let instant: jiff::Timestamp = text.parse().map_err(|_| wrong())?;
        let time = Self(instant.as_microsecond());
        if (0..END_MICROS).contains(&time.0) && time.to_string() == text { Ok(time) } else { Err(wrong()) }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() { serializer.collect_str(self) } else { serializer.serialize_i64(self.0) }
    }
}
impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
        } else {
            i64::deserialize(deserializer).map(Self::from_micros)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_design_page_example() {
        let text = "2026-10-01T00:00:02.000000Z";
        assert_eq!(text.parse::<Timestamp>().unwrap().to_string(), text);
        assert!("2026-10-01T00:00:02Z".parse::<Timestamp>().is_err());
        assert!("2026-10-01T00:00:02.00000+Z".parse::<Timestamp>().is_err());
        assert!("2026-02-30T00:00:02.000000Z".parse::<Timestamp>().is_err());
    }

    proptest! {
        #[test]
        fn prints_and_parses(micros in 0..END_MICROS) {
            let time = Timestamp::from_micros(micros);
            let text = time.to_string();
            prop_assert_eq!(text.len(), 27);
            prop_assert_eq!(text.parse::<Timestamp>().unwrap(), time);
        }
    }
}
