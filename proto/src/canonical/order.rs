//! The order of object keys: by UTF-16 code units (RFC 8785, section 3.2.3). Must not know JSON syntax.
use std::cmp::Ordering;

/// Compares two keys (unescaped) by their UTF-16 code units. Bytes would sort U+10000 and above after U+FFFF.
pub(super) fn by_utf16(left: &str, right: &str) -> Ordering {
    if left.is_ascii() && right.is_ascii() {
        return left.cmp(right);
    }
    left.chars().map(units).cmp(right.chars().map(units))
}

/// The one or two UTF-16 code units of a character in a number that sorts as they do.
pub(super) fn units(character: char) -> u32 {
    let mut units = [0; 2];
    character.encode_utf16(&mut units);
    u32::from(units[0]) << 16 | u32::from(units[1])
}
