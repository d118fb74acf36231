//! Keys as PEM texts. Must not know files or passwords.
use std::ops::Deref;

use ed25519_dalek::pkcs8::spki::der::pem::LineEnding;
use ed25519_dalek::pkcs8::{DecodePrivateKey, DecodePublicKey, EncodePrivateKey, EncodePublicKey, KeypairBytes};
use ed25519_dalek::{SigningKey, VerifyingKey};

use super::{NoteError, VerifierKey};

/// A text that is no Ed25519 key in PEM. The text itself is left out: it may be a private key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this is no Ed25519 {half} key in PEM: {why}")]
pub struct PemError {
    /// `private` or `public`.
    pub half: &'static str,
    /// What the decoder said.
    pub why: String,
}

/// Writes a private key as PKCS#8 v1, without the public half: OpenSSL 3.0 can't read v2. The text is wiped when dropped.
pub fn private_key_to_pem(key: &SigningKey) -> Result<impl Deref<Target = String> + use<>, PemError> {
    let bytes = KeypairBytes { secret_key: key.to_bytes(), public_key: None };
    bytes.to_pkcs8_pem(LineEnding::LF).map_err(|e| PemError { half: "private", why: e.to_string() })
}

/// Reads a private key, PKCS#8 v1 or v2.
pub fn private_key_from_pem(pem: &str) -> Result<SigningKey, PemError> {
    SigningKey::from_pkcs8_pem(pem).map_err(|e| PemError { half: "private", why: e.to_string() })
}

/// Writes a public key as SPKI.
pub fn public_key_to_pem(key: &VerifyingKey) -> Result<String, PemError> {
    key.to_public_key_pem(LineEnding::LF).map_err(|e| PemError { half: "public", why: e.to_string() })
}

/// Reads a public key, SPKI.
pub fn public_key_from_pem(pem: &str) -> Result<VerifyingKey, PemError> {
    VerifyingKey::from_public_key_pem(pem).map_err(|e| PemError { half: "public", why: e.to_string() })
}

/// A new key in every form in which it is kept.
pub struct KeyTexts<P> {
    /// PKCS#8 PEM; wiped when dropped.
    pub private: P,
    /// SPKI PEM.
    pub public: String,
    /// The public key with its name: what somebody pins.
    pub verifier: VerifierKey,
}

/// Makes a named key of 32 random bytes.
pub fn key_from_seed(name: &str, seed: &[u8; 32]) -> Result<KeyTexts<impl Deref<Target = String> + use<>>, NoteError> {
    let key = SigningKey::from_bytes(seed);
    let verifier = VerifierKey::new(name, key.verifying_key())?;
    let unwritable = |error: PemError| NoteError::BadKey { got: error.half.to_owned(), why: "it has no PEM form" };
    let private = private_key_to_pem(&key).map_err(unwritable)?;
    let public = public_key_to_pem(&key.verifying_key()).map_err(unwritable)?;
    Ok(KeyTexts { private, public, verifier })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_key_is_the_same_in_every_form() {
        let texts = key_from_seed("reversi.example/mf", &[9; 32]).unwrap();
        let private = private_key_from_pem(&texts.private).unwrap();
        let public = public_key_from_pem(&texts.public).unwrap();
        assert_eq!((private.verifying_key(), public), (public, *texts.verifier.key()));
        assert_eq!(texts.verifier.name(), "reversi.example/mf");
        assert!(key_from_seed("two words", &[9; 32]).is_err());
    }
}
