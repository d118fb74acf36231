//! A SHA-256 value and lower-case hex. Knows nothing of what is hashed.
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// 32 bytes, printed as 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// The first `digits` hex digits, for people.
    pub fn short(&self, digits: usize) -> String {
        let mut text = hex(&self.0);
        text.truncate(digits);
        text
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hash({self})")
    }
}

/// The text is not lower-case hex of the expected length.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected} lower-case hex digits, got {got:?}")]
pub struct HexError {
    /// How many digits were expected.
    pub expected: usize,
    /// What stood there (at most 80 characters of it).
    pub got: String,
}

impl FromStr for Hash {
    type Err = HexError;
    fn from_str(text: &str) -> Result<Self, HexError> {
        unhex(text).map(Self)
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() { serializer.collect_str(self) } else { self.0.serialize(serializer) }
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
        } else {
            <[u8; 32]>::deserialize(deserializer).map(Self)
        }
    }
}

/// Lower-case hex of any bytes.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(DIGITS[usize::from(byte >> 4)] as char);
        text.push(DIGITS[usize::from(byte & 15)] as char);
    }
    text
}

/// Reads exactly `N` bytes of lower-case hex; upper case is refused, so that a value has one spelling.
pub fn unhex<const N: usize>(text: &str) -> Result<[u8; N], HexError> {
    let wrong = || HexError { expected: N * 2, got: text.chars().take(80).collect() };
    let digits = text.as_bytes();
    if digits.len() != N * 2 {
        return Err(wrong());
    }
    let mut bytes = [0; N];
    // One look at the end, not a branch for each digit: verification reads five hashes a record.
    let mut bad = 0;
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let (high, low) = (DIGIT_VALUES[usize::from(pair[0])], DIGIT_VALUES[usize::from(pair[1])]);
        bad |= high | low;
        *byte = high << 4 | low & 15;
    }
    if bad & NO_DIGIT == 0 { Ok(bytes) } else { Err(wrong()) }
}

/// Marks a byte that is no lower-case hex digit; no digit's value has this bit.
const NO_DIGIT: u8 = 0x80;

const DIGIT_VALUES: [u8; 256] = {
    let mut values = [NO_DIGIT; 256];
    let mut value = 0;
    while value < 16 {
        values[b"0123456789abcdef"[value as usize] as usize] = value;
        value += 1;
    }
    values
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_spelling_per_value() {
        let hash = Hash([0xab; 32]);
        assert_eq!(hash.to_string().parse(), Ok(hash));
        assert!(hash.to_string().to_uppercase().parse::<Hash>().is_err());
        assert!("ab".parse::<Hash>().is_err());
    }
}
