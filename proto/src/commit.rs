//! Keyed hashes: commitments to arguments and results, their openings, claims and fingerprints. Must not know where the
//! keys come from or where a commitment is stored.
use hkdf::Hkdf;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::canonical::Canonical;
use crate::hash::{Hash, HexError, hex, unhex};
use crate::ids::RunId;

/// Derives the key that every commitment of a run hangs on from the run's own key. It is never disclosed.
pub fn payload_key(run_key: &[u8; 32]) -> [u8; 32] {
    derive(run_key, "reversi.dev/run-payload-key/v1")
}

/// Derives the key that seals the private parts of a run's records from the run's own key.
pub fn seal_key(run_key: &[u8; 32]) -> [u8; 32] {
    derive(run_key, "reversi.dev/run-seal-key/v1")
}

/// The key of one commitment: what a disclosure gives away together with the value. `field` is the place of the
/// commitment in the record's body (`args`, `result`, `mismatch`).
pub fn opening_key(payload_key: &[u8; 32], run: &RunId, run_seq: u64, field: &str) -> [u8; 32] {
    let place = format!("{run}\n{run_seq}\n{field}");
    hmac(payload_key, &[b"reversi.dev/payload-key/v1\n", place.as_bytes()]).0
}

/// Commits to a value by its canonical form.
pub fn commit(k: &[u8; 32], value: &Canonical) -> Hash {
    hmac(k, &[b"reversi.dev/payload/v1\n", value.as_str().as_bytes()])
}

/// Commits to a result that has no canonical form, by its bytes. Never equal to a commitment by canonical form.
pub fn commit_bytes(k: &[u8; 32], raw: &[u8]) -> Hash {
    hmac(k, &[b"reversi.dev/payload-raw/v1\n", raw])
}

/// An HMAC under a ledger key over a list of texts, for idempotency claims, request keys and fingerprints. Each part
/// is preceded by its length, so that `["ab", "c"]` and `["a", "bc"]` differ; `domain` keeps the uses apart.
pub fn keyed(ledger_key: &[u8; 32], domain: &str, parts: &[&str]) -> Hash {
    let mut message = b"reversi.dev/keyed/v1\n".to_vec();
    for part in std::iter::once(&domain).chain(parts) {
        message.extend_from_slice(&(part.len() as u64).to_be_bytes());
        message.extend_from_slice(part.as_bytes());
    }
    hmac(ledger_key, &[&message])
}

/// The key of one commitment, given away to let somebody check one value. In JSON 64 lower-case hex digits.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Opening {
    /// The commitment's own key; it opens nothing else.
    pub k: [u8; 32],
}

impl Opening {
    /// The opening of one field of one record.
    pub fn new(payload_key: &[u8; 32], run: &RunId, run_seq: u64, field: &str) -> Self {
        Self { k: opening_key(payload_key, run, run_seq, field) }
    }

    /// Whether the value is what the commitment was made for.
    pub fn opens(&self, commitment: Hash, value: &Canonical) -> bool {
        commit(&self.k, value) == commitment
    }

    /// Whether the bytes (of a result without canonical form) are what the commitment was made for.
    pub fn opens_bytes(&self, commitment: Hash, raw: &[u8]) -> bool {
        commit_bytes(&self.k, raw) == commitment
    }
}

impl std::fmt::Debug for Opening {
    /// Keys stay out of logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Opening(..)")
    }
}

impl From<Opening> for String {
    fn from(opening: Opening) -> Self {
        hex(&opening.k)
    }
}

impl TryFrom<String> for Opening {
    type Error = HexError;
    fn try_from(text: String) -> Result<Self, HexError> {
        // Not the text itself in the error: it may be a key with one digit too many.
        unhex(&text).map(|k| Self { k }).map_err(|e| HexError { got: format!("{} characters", text.len()), ..e })
    }
}

fn derive(run_key: &[u8; 32], info: &str) -> [u8; 32] {
    let mut key = [0; 32];
    // 32 bytes are far below HKDF's limit of 255 blocks, the only error there is.
    let expanded = Hkdf::<Sha256>::new(None, run_key).expand(info.as_bytes(), &mut key);
    debug_assert!(expanded.is_ok());
    key
}

fn hmac(key: &[u8; 32], parts: &[&[u8]]) -> Hash {
    // HMAC fills a short key up with zeros to the block's size; doing it here leaves no length that could be wrong.
    let mut block = [0; 64];
    block[..32].copy_from_slice(key);
    let mut mac = Hmac::<Sha256>::new(&block.into());
    for part in parts {
        mac.update(part);
    }
    Hash(mac.finalize().into_bytes().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN_KEY: [u8; 32] = [7; 32];

    fn run() -> RunId {
        "support:4821".parse().unwrap()
    }

    /// Expected values computed with Python's hmac and hashlib (HKDF by RFC 5869's two HMACs).
    #[test]
    fn known_answers() {
        let payload = payload_key(&RUN_KEY);
        assert_eq!(hex(&payload), "d7ecc50191462785bbd514c19b9f45b6d25dec7f71c3f64cda8bc63c4fa851f8");
        assert_eq!(hex(&seal_key(&RUN_KEY)), "8ff83592538c29dab40b156ceea01fd8b932629a6eff7a5d87349a9014c194a2");
        let k = opening_key(&payload, &run(), 3, "args");
        assert_eq!(hex(&k), "96554e015845844fdf739188e03eaf43a917a9de4da433a033af73da0b6f5d2a");
        let value = Canonical::parse(br#"{"b": 1.50, "a": "\u20ac"}"#).unwrap();
        assert_eq!(commit(&k, &value).to_string(), "e364327fc93ca4a6085b989fae5a4ab33a005fd89e242777a1cd3ec3afac9228");
        assert_eq!(
            commit_bytes(&k, b"\xff\xfe").to_string(),
            "33c776be4ea852283a0402725d37d347a8c7bf5d9a173f3cf0c8d25eb08a9818"
        );
        assert_eq!(
            keyed(&RUN_KEY, "claim", &["run", "é", ""]).to_string(),
            "371d78faaf7e6282a6f1358c54c324ee9a9aa5ea4ddc39d02fcf36e183711c59"
        );
    }

    #[test]
    fn an_opening_opens_its_own_commitment_and_no_other() {
        let payload = payload_key(&RUN_KEY);
        let [yes, no] = ["true", "false"].map(|text| Canonical::parse(text.as_bytes()).unwrap());
        let opening = Opening::new(&payload, &run(), 3, "args");
        let commitment = commit(&opening.k, &yes);
        assert!(opening.opens(commitment, &yes));
        assert!(!opening.opens(commitment, &no));
        assert!(!opening.opens_bytes(commitment, b"true"));
        assert!(opening.opens_bytes(commit_bytes(&opening.k, b"\xff"), b"\xff"));
        for other in [
            Opening::new(&payload, &run(), 4, "args"),
            Opening::new(&payload, &run(), 3, "result"),
            Opening::new(&payload, &"support:482".parse().unwrap(), 13, "args"),
        ] {
            assert!(!other.opens(commitment, &yes));
        }
    }

    #[test]
    fn parts_are_kept_apart() {
        let under = |domain, parts: &[&str]| keyed(&RUN_KEY, domain, parts);
        assert_ne!(under("d", &["ab", "c"]), under("d", &["a", "bc"]));
        assert_ne!(under("d", &["a"]), under("d", &["a", ""]));
        assert_ne!(under("d", &["a"]), under("da", &[]));
        assert_ne!(under("d", &["a"]), keyed(&[8; 32], "d", &["a"]));
    }

    #[test]
    fn an_opening_travels_as_hex_and_hides_in_logs() {
        let opening = Opening { k: [0xab; 32] };
        let json = serde_json::to_string(&opening).unwrap();
        assert_eq!(json, format!("\"{}\"", "ab".repeat(32)));
        assert_eq!(serde_json::from_str::<Opening>(&json).unwrap(), opening);
        assert_eq!(format!("{opening:?}"), "Opening(..)");
        let error = serde_json::from_str::<Opening>(r#""secret""#).unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
    }
}
