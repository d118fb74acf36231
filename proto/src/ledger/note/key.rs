//! The two halves of a note's key. Must not know checkpoints' contents beyond the name they are signed under.
use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use sha2::{Digest, Sha256};

use super::{BASE64, Checkpoint, NoteError, NoteSignature, SignedNote, check_name, key_hash_from_hex};

/// The number of Ed25519 among C2SP's signature types.
const ED25519: u8 = 1;

/// A public key with its name: what somebody pins. Printed as `name+hash+base64(type, key)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifierKey {
    name: String,
    key: VerifyingKey,
    hash: u32,
}

impl VerifierKey {
    /// Names a public key. A key of small order is refused: everybody can sign for it.
    pub fn new(name: &str, key: VerifyingKey) -> Result<Self, NoteError> {
        check_name(name)?;
        let bytes = key.to_bytes();
        // A point with two spellings would be one key with two hashes.
        if key.is_weak() || key.to_edwards().compress().to_bytes() != bytes {
            return Err(NoteError::BadKey {
                got: format!("{name}+...+{}", BASE64.encode(typed(&bytes))),
                why: "it is a weak key, for which anybody can sign",
            });
        }
        let digest: [u8; 32] =
            Sha256::new().chain_update(name).chain_update(b"\n").chain_update(typed(&bytes)).finalize().into();
        let [a, b, c, d, ..] = digest;
        Ok(Self { name: name.to_owned(), key, hash: u32::from_be_bytes([a, b, c, d]) })
    }

    /// The key's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The first four bytes of the key's hash, which signature lines carry.
    pub fn hash(&self) -> u32 {
        self.hash
    }

    /// The public key itself.
    pub fn key(&self) -> &VerifyingKey {
        &self.key
    }

    /// Name and hash, for messages.
    pub fn short(&self) -> String {
        format!("{}+{:08x}", self.name, self.hash)
    }

    /// Whether the key is named for this log: after its whole first line (as C2SP advises) or after its origin.
    pub fn is_for(&self, checkpoint: &Checkpoint) -> bool {
        self.name == checkpoint.log() || self.name == checkpoint.origin
    }

    /// Whether this key made the signature. Strict: no second spelling of a signature, no point of small order.
    pub(super) fn made(&self, text: &str, signature: &[u8]) -> bool {
        Signature::from_slice(signature).is_ok_and(|s| self.key.verify_strict(text.as_bytes(), &s).is_ok())
    }
}

impl fmt::Display for VerifierKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{:08x}+{}", self.name, self.hash, BASE64.encode(typed(self.key.as_bytes())))
    }
}

impl FromStr for VerifierKey {
    type Err = NoteError;
    fn from_str(text: &str) -> Result<Self, NoteError> {
        let wrong = |why| NoteError::BadKey { got: text.chars().take(120).collect(), why };
        // The base64 part may hold a '+' itself, so the parts are counted from the left.
        let mut parts = text.splitn(3, '+');
        let (Some(name), Some(hash), Some(key)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(wrong("it doesn't have three parts"));
        };
        let hash = key_hash_from_hex(hash).ok_or(wrong("its hash is not eight lower-case hex digits"))?;
        let bytes = BASE64.decode(key).map_err(|_| wrong("its key is not base64"))?;
        let [ED25519, point @ ..] = &bytes[..] else {
            return Err(wrong("its key is not of type 1 (Ed25519)"));
        };
        let point: &[u8; 32] = point.try_into().map_err(|_| wrong("its key doesn't hold 32 bytes"))?;
        let point = VerifyingKey::from_bytes(point).map_err(|_| wrong("its key is no point of the curve"))?;
        let key = Self::new(name, point)?;
        if key.hash == hash { Ok(key) } else { Err(wrong("its hash is not that of the name and key")) }
    }
}

/// A private key with its name.
pub struct Signer {
    key: SigningKey,
    verifier: VerifierKey,
}

impl Signer {
    /// Names a private key; `name` is best the checkpoint's first line, [`Checkpoint::log`].
    pub fn new(name: &str, key: SigningKey) -> Result<Self, NoteError> {
        let verifier = VerifierKey::new(name, key.verifying_key())?;
        Ok(Self { key, verifier })
    }

    /// The public half.
    pub fn verifier(&self) -> &VerifierKey {
        &self.verifier
    }

    /// Signs a checkpoint.
    pub fn sign(&self, checkpoint: &Checkpoint) -> Result<SignedNote, NoteError> {
        check_name(&checkpoint.origin)?;
        let text = checkpoint.text();
        let bytes = self.key.sign(text.as_bytes()).to_vec();
        let signature = NoteSignature { name: self.verifier.name.clone(), hash: self.verifier.hash, bytes };
        Ok(SignedNote { text, signatures: vec![signature] })
    }
}

impl fmt::Debug for Signer {
    /// Private keys stay out of logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signer({})", self.verifier.short())
    }
}

/// A public key behind its type byte.
fn typed(key: &[u8; 32]) -> [u8; 33] {
    let mut typed = [ED25519; 33];
    typed[1..].copy_from_slice(key);
    typed
}
