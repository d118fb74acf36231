//! Signed notes (C2SP signed-note) and the checkpoints they carry (C2SP tlog-checkpoint, exactly three lines). Must not
//! know where notes are kept, nor which key is trusted.
mod key;
mod pem;
#[cfg(test)]
mod tests;

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

pub use key::{Signer, VerifierKey};
pub use pem::{
    KeyTexts, PemError, key_from_seed, private_key_from_pem, private_key_to_pem, public_key_from_pem, public_key_to_pem,
};

use crate::hash::{Hash, unhex};
use crate::ids::LedgerId;

/// Longest note that is read; a checkpoint with a hundred signatures stays far below.
pub const NOTE_BYTES_MAX: usize = 65_536;

/// Most signatures that are read.
const SIGNATURES_MAX: usize = 100;

/// Longest key name or origin, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// Why a text is no signed note, or why a note proves nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoteError {
    /// Not in the form of a signed note.
    #[error("this is no signed note: {why}")]
    Malformed {
        /// The rule that it breaks.
        why: &'static str,
    },
    /// The note's text is not a checkpoint of a ledger.
    #[error("the note is no checkpoint of a ledger: {why}")]
    NoCheckpoint {
        /// The rule that it breaks.
        why: &'static str,
    },
    /// A key name or origin that can't stand in a note.
    #[error("a key name or origin has 1 to 255 bytes, no white space, no control character and no '+', got {got:?}")]
    BadName {
        /// What stood there (at most 80 characters of it).
        got: String,
    },
    /// A text that is no verifier key, or a key that anybody could sign for.
    #[error("{got:?} is no verifier key of the form name+hash+key: {why}")]
    BadKey {
        /// What stood there (at most 120 characters of it).
        got: String,
        /// The rule that it breaks.
        why: &'static str,
    },
    /// None of the signatures is by this key.
    #[error("the note is not signed by {wanted}, but by {found}")]
    OtherKey {
        /// The key that was asked for, as name and hash.
        wanted: String,
        /// The keys that the note names.
        found: String,
    },
    /// A signature in this key's name that the key did not make.
    #[error("the signature by {key} is not valid: the note was changed after signing, or the signature was")]
    BadSignature {
        /// The key, as name and hash.
        key: String,
    },
}

/// What a ledger's key signs: how many records there were, and the root of the Merkle tree over them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Who runs the ledger, a name like a host and path without scheme.
    pub origin: String,
    /// The ledger.
    pub ledger: LedgerId,
    /// Number of records covered.
    pub size: u64,
    /// Root of the RFC 6962 tree over their leaf hashes.
    pub root: Hash,
}

impl Checkpoint {
    /// The note's first line: what names this log among all logs.
    pub fn log(&self) -> String {
        format!("{}/{}", self.origin, self.ledger)
    }

    /// The text that is signed.
    pub fn text(&self) -> String {
        format!("{}\n{}\n{}\n", self.log(), self.size, BASE64.encode(self.root.0))
    }

    /// Reads a note's text; every checkpoint has one spelling.
    pub fn parse(text: &str) -> Result<Self, NoteError> {
        let wrong = |why| NoteError::NoCheckpoint { why };
        let body = text.strip_suffix('\n').ok_or(wrong("its last line has no end"))?;
        let lines: Vec<&str> = body.split('\n').collect();
        let [log, size, root] = lines[..] else {
            return Err(wrong("it doesn't have exactly three lines"));
        };
        let (origin, ledger) = log.rsplit_once('/').ok_or(wrong("its first line is not origin/ledger"))?;
        check_name(origin)?;
        let ledger = ledger.parse().map_err(|_| wrong("its first line doesn't end in a ledger id"))?;
        let number: u64 = size.parse().map_err(|_| wrong("its second line is no number of records"))?;
        if number.to_string() != size {
            return Err(wrong("its second line has a sign or leading zeros"));
        }
        let bytes = BASE64.decode(root).map_err(|_| wrong("its third line is not base64"))?;
        let root = bytes.try_into().map_err(|_| wrong("its third line doesn't hold 32 bytes"))?;
        Ok(Self { origin: origin.to_owned(), ledger, size: number, root: Hash(root) })
    }
}

/// One signature line of a note. That it is there says nothing: see [`SignedNote::verify`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoteSignature {
    /// Name of the key.
    pub name: String,
    /// First four bytes of the key's hash.
    pub hash: u32,
    /// The signature; 64 bytes for Ed25519.
    pub bytes: Vec<u8>,
}

impl NoteSignature {
    /// The key as people read it.
    pub fn key(&self) -> String {
        format!("{}+{:08x}", self.name, self.hash)
    }

    fn parse(line: &str) -> Option<Self> {
        let (name, blob) = line.strip_prefix("\u{2014} ")?.split_once(' ')?;
        check_name(name).ok()?;
        let blob = BASE64.decode(blob).ok()?;
        let (hash, bytes) = blob.split_first_chunk::<4>()?;
        let signature = Self { name: name.to_owned(), hash: u32::from_be_bytes(*hash), bytes: bytes.to_vec() };
        (!bytes.is_empty()).then_some(signature)
    }
}

/// A text with signatures. Parsing checks the form only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedNote {
    text: String,
    signatures: Vec<NoteSignature>,
}

impl SignedNote {
    /// Reads a note: a text, an empty line, signature lines.
    pub fn parse(bytes: &[u8]) -> Result<Self, NoteError> {
        let wrong = |why| NoteError::Malformed { why };
        if bytes.len() > NOTE_BYTES_MAX {
            return Err(wrong("it is longer than 65,536 bytes"));
        }
        let note = std::str::from_utf8(bytes).map_err(|_| wrong("it is not valid UTF-8"))?;
        if note.bytes().any(|byte| byte != b'\n' && byte.is_ascii_control()) {
            return Err(wrong("it holds a control character (CR line ends are not allowed)"));
        }
        let split = note.rfind("\n\n").ok_or(wrong("no empty line stands between text and signatures"))?;
        let (text, lines) = (&note[..=split], &note[split + 2..]);
        let lines = lines.strip_suffix('\n').ok_or(wrong("the last signature line has no end, or is missing"))?;
        let lines: Vec<&str> = lines.split('\n').collect();
        if lines.len() > SIGNATURES_MAX {
            return Err(wrong("it has more than 100 signatures"));
        }
        let signatures: Option<Vec<_>> = lines.into_iter().map(NoteSignature::parse).collect();
        let signatures = signatures.ok_or(wrong("a signature line is not '\u{2014} name base64'"))?;
        Ok(Self { text: text.to_owned(), signatures })
    }

    /// The text that is signed, its last LF included.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The signatures as they stand there, unverified.
    pub fn signatures(&self) -> &[NoteSignature] {
        &self.signatures
    }

    /// The checkpoint in the text. It counts only as far as the note's signature does.
    pub fn checkpoint(&self) -> Result<Checkpoint, NoteError> {
        Checkpoint::parse(&self.text)
    }

    /// Whether this key signed the note. Signatures by other keys are ignored; every one in this key's name must hold.
    pub fn verify(&self, trust: &VerifierKey) -> Result<(), NoteError> {
        let mut own = self.signatures.iter().filter(|s| s.name == trust.name() && s.hash == trust.hash()).peekable();
        if own.peek().is_none() {
            let found: Vec<String> = self.signatures.iter().take(5).map(NoteSignature::key).collect();
            return Err(NoteError::OtherKey { wanted: trust.short(), found: found.join(", ") });
        }
        if own.all(|signature| trust.made(&self.text, &signature.bytes)) {
            Ok(())
        } else {
            Err(NoteError::BadSignature { key: trust.short() })
        }
    }
}

impl fmt::Display for SignedNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.text)?;
        for signature in &self.signatures {
            let mut blob = signature.hash.to_be_bytes().to_vec();
            blob.extend_from_slice(&signature.bytes);
            writeln!(f, "\u{2014} {} {}", signature.name, BASE64.encode(blob))?;
        }
        Ok(())
    }
}

/// Whether a text may name a key or be an origin.
fn check_name(name: &str) -> Result<(), NoteError> {
    let ends = |c: char| c.is_whitespace() || c.is_control() || c == '+';
    if (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.contains(ends) {
        Ok(())
    } else {
        Err(NoteError::BadName { got: name.chars().take(80).collect() })
    }
}

/// The eight hex digits of a key's hash.
fn key_hash_from_hex(digits: &str) -> Option<u32> {
    unhex::<4>(digits).ok().map(u32::from_be_bytes)
}
