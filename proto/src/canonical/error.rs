//! Why a text has no canonical form, or isn't in it. Must not quote the text: it may hold what nobody should read.
use std::fmt;

use serde::{Serialize, Serializer};

/// Why a text has no canonical form, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{} (byte {offset})", code.sentence())]
pub struct CanonicalError {
    /// The reason, stable for programs.
    pub code: CanonicalCode,
    /// Offset in bytes from the start of the text.
    pub offset: usize,
}

/// The reasons; their names are the same in every SDK.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CanonicalCode {
    /// Not UTF-8: overlong forms and encoded surrogates included.
    InvalidUtf8,
    /// Not JSON; a byte order mark, NaN and trailing commas are not JSON either.
    InvalidJson,
    /// An object has a key twice, compared after unescaping.
    DuplicateKey,
    /// Half of a surrogate pair in a string.
    LoneSurrogate,
    /// A number above what a double holds.
    NumberOverflow,
    /// A whole number beyond 2^53-1, where doubles skip numbers.
    IntegerOutOfRange,
    /// A number with a fraction outside 1e-4 to 1e16, where languages print doubles differently.
    FloatOutOfDomain,
    /// Arrays and objects nest deeper than [`DEPTH_MAX`](super::DEPTH_MAX).
    TooDeep,
    /// Valid, but in another spelling than the canonical one.
    NotCanonical,
    /// The Rust value can't be written as JSON (a map whose keys are no strings, say).
    NotSerializable,
}

impl CanonicalCode {
    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidUtf8 => "invalid_utf8",
            Self::InvalidJson => "invalid_json",
            Self::DuplicateKey => "duplicate_key",
            Self::LoneSurrogate => "lone_surrogate",
            Self::NumberOverflow => "number_overflow",
            Self::IntegerOutOfRange => "integer_out_of_range",
            Self::FloatOutOfDomain => "float_out_of_domain",
            Self::TooDeep => "too_deep",
            Self::NotCanonical => "not_canonical",
            Self::NotSerializable => "not_serializable",
        }
    }

    fn sentence(self) -> &'static str {
        match self {
            Self::InvalidUtf8 => "the text is not valid UTF-8",
            Self::InvalidJson => "the text is not valid JSON",
            Self::DuplicateKey => "an object has the same key twice, and readers disagree about which one counts",
            Self::LoneSurrogate => "a string holds half of a surrogate pair, which is no character",
            Self::NumberOverflow => "a number is larger than a double can hold; pass it as a string",
            Self::IntegerOutOfRange => "a whole number is beyond 9007199254740991 (2^53-1); pass it as a string",
            Self::FloatOutOfDomain => "a number with a fraction is outside 1e-4 to 1e16; pass it as a string",
            Self::TooDeep => "arrays and objects nest deeper than 127 levels",
            Self::NotCanonical => "the text is valid JSON but not in canonical spelling",
            Self::NotSerializable => "the value can't be written as JSON",
        }
    }
}

impl fmt::Display for CanonicalCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for CanonicalCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
