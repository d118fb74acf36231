//! Plain YAML scalars by the core schema of YAML 1.2: `no` is text, `0o17` is a number. Also durations. Knows no field.
use super::node::{Kind, WHOLE_MAX, number_kind};

/// A plain scalar that cannot be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NumberRange;

/// What an unquoted scalar means.
pub(crate) fn plain(text: &str) -> Result<Kind, NumberRange> {
    let kind = match text {
        "" | "~" | "null" | "Null" | "NULL" => Kind::Null,
        "true" | "True" | "TRUE" => Kind::Bool(true),
        "false" | "False" | "FALSE" => Kind::Bool(false),
        _ if is_not_finite(text) => return Err(NumberRange),
        _ => {
            if let Some(digits) = text.strip_prefix("0o").filter(|d| all(d, |b| matches!(b, b'0'..=b'7'))) {
                return radix(digits, 8);
            }
            if let Some(digits) = text.strip_prefix("0x").filter(|d| all(d, |b| b.is_ascii_hexdigit())) {
                return radix(digits, 16);
            }
            if is_decimal(text) {
                return number_kind(text.strip_prefix('+').unwrap_or(text)).ok_or(NumberRange);
            }
            Kind::Text(text.into())
        }
    };
    Ok(kind)
}

fn all(text: &str, check: impl Fn(u8) -> bool) -> bool {
    !text.is_empty() && text.bytes().all(check)
}

fn radix(digits: &str, radix: u32) -> Result<Kind, NumberRange> {
    let whole = i64::from_str_radix(digits, radix).map_err(|_| NumberRange)?;
    if whole <= WHOLE_MAX { Ok(Kind::Whole(whole)) } else { Err(NumberRange) }
}

fn is_not_finite(text: &str) -> bool {
    matches!(text.strip_prefix(['+', '-']).unwrap_or(text), ".inf" | ".Inf" | ".INF" | ".nan" | ".NaN" | ".NAN")
}

/// `[-+]? ( \. [0-9]+ | [0-9]+ ( \. [0-9]* )? ) ( [eE] [-+]? [0-9]+ )?`
fn is_decimal(text: &str) -> bool {
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))),
        None => (text, None),
    };
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let mantissa_fits = match mantissa.split_once('.') {
        Some(("", fraction)) => !fraction.is_empty() && digits(fraction),
        Some((whole, fraction)) => digits(whole) && digits(fraction),
        None => !mantissa.is_empty() && digits(mantissa),
    };
    mantissa_fits && exponent.is_none_or(|e| !e.is_empty() && digits(e))
}

/// The longest duration that a manifest may name: a year.
pub(crate) const DURATION_MAX_MS: u64 = 365 * 24 * 3_600_000;

/// Why a text is no duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DurationFault {
    /// Not whole digits and one unit.
    Form,
    /// Longer than a year.
    TooLong,
}

/// `500ms`, `30s`, `15m`, `2h`, `1d`: whole digits and one unit, in milliseconds.
pub(crate) fn duration_ms(text: &str) -> Result<u64, DurationFault> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit()).ok_or(DurationFault::Form)?;
    let (digits, unit) = text.split_at(unit_at);
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(DurationFault::Form),
    };
    if digits.is_empty() {
        return Err(DurationFault::Form);
    }
    let ms = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(unit_ms));
    ms.filter(|ms| *ms <= DURATION_MAX_MS).ok_or(DurationFault::TooLong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_core_schema_of_yaml_1_2() {
        for text in
            ["no", "yes", "on", "off", "1_000", "12:30", "0b1", "1.2.3", "2026-10-01", ".", "-", "+", "e5", "0x"]
        {
            assert!(matches!(plain(text), Ok(Kind::Text(t)) if &*t == text), "{text}");
        }
        for (text, whole) in [("0o17", 15), ("0x1F", 31), ("+5", 5), ("-5", -5), ("007", 7), ("1.", 1), ("1E3", 1000)] {
            assert!(matches!(plain(text), Ok(Kind::Whole(n)) if n == whole), "{text}");
        }
        assert!(matches!(plain(".5"), Ok(Kind::Fraction(_))));
        assert!(matches!(plain("True"), Ok(Kind::Bool(true))));
        assert!(matches!(plain("~"), Ok(Kind::Null)));
        for text in [".inf", "-.INF", ".nan", "1e999", "0xFFFFFFFFFFFFFFFFFF", "9007199254740992"] {
            assert_eq!(plain(text).map(|_| ()), Err(NumberRange), "{text}");
        }
    }

    // C1 C4
    #[test]
    fn durations_have_one_form() {
        let good =
            [("500ms", 500), ("30s", 30_000), ("15m", 900_000), ("2h", 7_200_000), ("1d", 86_400_000), ("0s", 0)];
        for (text, ms) in good {
            assert_eq!(duration_ms(text), Ok(ms), "{text}");
        }
        for text in ["", "s", "30", "1.5s", "-1s", "+1s", "10 s", " 10s", "1h30m", "1S", "1w", "30sec", "１s"] {
            assert_eq!(duration_ms(text), Err(DurationFault::Form), "{text}");
        }
        for text in ["366d", "99999999999999999999999s", "18446744073709551615d"] {
            assert_eq!(duration_ms(text), Err(DurationFault::TooLong), "{text}");
        }
    }
}
