//! Numbers: the JSON grammar, the strict profile's ranges, JavaScript's shortest form. Must not know strings or objects.
use super::CanonicalCode;

/// Which numbers are allowed; everything else is the same in both profiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Profile {
    /// Only numbers that every language reads and prints alike.
    Strict,
    /// RFC 8785: every finite double.
    Jcs,
}

/// Largest whole number up to which every whole number is a double of its own.
const WHOLE_MAX: f64 = 9_007_199_254_740_991.0;

/// Whole numbers of so few digits are below [`WHOLE_MAX`] and stand in canonical spelling already.
const PLAIN_DIGITS_MAX: usize = 15;

/// Length of the number at the start of `bytes`, or where its grammar breaks.
pub(super) fn number_len(bytes: &[u8]) -> Result<usize, usize> {
    let mut at = usize::from(bytes.first() == Some(&b'-'));
    at = match bytes.get(at) {
        Some(b'0') => at + 1,
        Some(b'1'..=b'9') => digits(bytes, at),
        Some(_) | None => return Err(at),
    };
    if bytes.get(at) == Some(&b'.') {
        at = some_digits(bytes, at + 1)?;
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
        at = some_digits(bytes, at + 1 + sign)?;
    }
    Ok(at)
}

/// Whether a number (in valid grammar) is canonical as it stands.
pub(super) fn is_canonical(text: &str) -> bool {
    is_plain(text) || canonical(text, Profile::Strict, &mut ryu_js::Buffer::new()).is_ok_and(|form| form == text)
}

/// The canonical spelling of a number in valid grammar. The ranges are those of the double it rounds to.
pub(super) fn canonical<'a>(
    text: &'a str,
    profile: Profile,
    buffer: &'a mut ryu_js::Buffer,
) -> Result<&'a str, CanonicalCode> {
    if is_plain(text) {
        return Ok(text);
    }
    let number: f64 = text.parse().map_err(|_| CanonicalCode::InvalidJson)?;
    if !number.is_finite() {
        return Err(CanonicalCode::NumberOverflow);
    }
    if profile == Profile::Strict {
        let size = number.abs();
        if number.fract() == 0.0 {
            if size > WHOLE_MAX {
                return Err(CanonicalCode::IntegerOutOfRange);
            }
        } else if !(1e-4..1e16).contains(&size) {
            return Err(CanonicalCode::FloatOutOfDomain);
        }
    }
    Ok(buffer.format_finite(number))
}

/// A short whole number without sign tricks: what almost every number in a ledger is.
fn is_plain(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    digits.len() <= PLAIN_DIGITS_MAX && digits.bytes().all(|byte| byte.is_ascii_digit()) && text != "-0"
}

fn digits(bytes: &[u8], from: usize) -> usize {
    from + bytes.iter().skip(from).take_while(|byte| byte.is_ascii_digit()).count()
}

fn some_digits(bytes: &[u8], from: usize) -> Result<usize, usize> {
    let end = digits(bytes, from);
    if end > from { Ok(end) } else { Err(from) }
}
