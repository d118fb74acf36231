//! What a verification is held to: the pinned key and the checkpoint. Must not verify anything.
use std::path::Path;

use reversi_actors::journal::offline::read_notes;
use reversi_proto::ledger::note::public_key_from_pem;
use reversi_proto::ledger::{SignedNote, VerifierKey};

use super::failure::Failure;

/// The bytes of the checkpoint to hold the ledger to: of many notes in the file, the one that covers most. Where a key is
/// pinned, only notes of its ledger count, if there are any.
pub(super) fn checkpoint(file: &Path, trust: Option<&str>) -> Result<Vec<u8>, Failure> {
    let bytes = std::fs::read(file).map_err(|error| Failure::io("read", file, &error))?;
    let notes = read_notes(&String::from_utf8_lossy(&bytes));
    let pinned = trust.and_then(|trust| verifier(trust, None).ok());
    let ours = |note: &&SignedNote| match (note.checkpoint(), &pinned) {
        (Ok(checkpoint), Some(key)) => key.is_for(&checkpoint),
        (Ok(_), None) => true,
        (Err(_), _) => false,
    };
    let size = |note: &&SignedNote| note.checkpoint().map_or(0, |checkpoint| checkpoint.size);
    let newest = notes.iter().filter(ours).max_by_key(size).or_else(|| notes.iter().max_by_key(size));
    // A file without a note goes to the verifier as it is, which says what is wrong with it.
    Ok(newest.map_or(bytes, |note| note.to_string().into_bytes()))
}

/// The pinned key: a verifier key, or a file that holds one or a PEM public key.
pub(super) fn verifier(trust: &str, note: Option<&[u8]>) -> Result<VerifierKey, Failure> {
    let wrong = |why: &str| Failure::Usage(format!("--trust {trust}: {why}"));
    if let Ok(key) = trust.parse() {
        return Ok(key);
    }
    let text = std::fs::read_to_string(trust).map_err(|error| {
        wrong(&format!("neither a verifier key (name+hash+key) nor a file that can be read ({error})"))
    })?;
    if text.contains("PRIVATE KEY") {
        return Err(wrong("this is a private key, which nobody but its owner may have; give the public one"));
    }
    if text.trim_start().starts_with("-----BEGIN") {
        let key = public_key_from_pem(&text).map_err(|error| wrong(&error.to_string()))?;
        // A PEM file holds no name, so the key goes by the name under which the note says it was signed.
        let note = note.and_then(|note| SignedNote::parse(note).ok());
        let names: Vec<(String, Option<u32>)> =
            note.iter().flat_map(SignedNote::signatures).map(|s| (s.name.clone(), Some(s.hash))).collect();
        for (name, hash) in names {
            match VerifierKey::new(&name, key) {
                Ok(key) if hash == Some(key.hash()) => return Ok(key),
                Ok(_) | Err(_) => {}
            }
        }
        return VerifierKey::new("unnamed", key).map_err(|error| wrong(&error.to_string()));
    }
    text.trim().parse().map_err(|error| wrong(&format!("the file holds no public key: {error}")))
}
