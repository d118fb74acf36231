//! The ledger's signing key, `keys/ledger.key` (PEM, PKCS#8 v1, mode 0600), and its public half, `keys/ledger.pub` (one
//! C2SP verifier key). The public file also keeps the name that everything is signed under, fixed at the first start.
use std::io::Write;
use std::path::Path;

use ed25519_dalek::SigningKey;
use reversi_proto::ids::LedgerId;
use reversi_proto::ledger::note::{private_key_from_pem, private_key_to_pem};
use reversi_proto::ledger::{Signer, VerifierKey};

use super::JournalError;
use super::files;

/// Random bytes from the operating system. `path` is what they are for, for the message.
pub(crate) fn random<const N: usize>(path: &Path) -> Result<[u8; N], JournalError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| JournalError::Io {
        what: "get random bytes for",
        path: path.to_owned(),
        source: std::io::Error::other(error),
    })?;
    Ok(bytes)
}

/// First start: a key (or the one that a first start cut short left), under the name `origin/ledger`.
pub(crate) fn create(dir: &Path, origin: &str, ledger: LedgerId) -> Result<Signer, JournalError> {
    std::fs::create_dir_all(dir).map_err(JournalError::io("create", dir))?;
    let path = dir.join("ledger.key");
    let key = match files::read_if_there(&path).map_err(JournalError::io("read", &path))? {
        Some(pem) => private_key_from_pem(&pem).map_err(|error| unusable(&path, &error))?,
        None => write_key(&path)?,
    };
    let signer = Signer::new(&format!("{origin}/{ledger}"), key).map_err(|error| unusable(&path, &error))?;
    write_public(dir, &signer)?;
    Ok(signer)
}

/// Later starts: the key, under the name that `ledger.pub` has kept.
pub(crate) fn open(dir: &Path, origin: &str, ledger: LedgerId) -> Result<Signer, JournalError> {
    let (path, public) = (dir.join("ledger.key"), dir.join("ledger.pub"));
    let pem = std::fs::read_to_string(&path).map_err(JournalError::io("read", &path))?;
    let key = private_key_from_pem(&pem).map_err(|error| unusable(&path, &error))?;
    let Some(text) = files::read_if_there(&public).map_err(JournalError::io("read", &public))? else {
        let signer = Signer::new(&format!("{origin}/{ledger}"), key).map_err(|error| unusable(&path, &error))?;
        tracing::warn!(verifier = %signer.verifier(), "the public half of the ledger's key was missing and is written anew");
        write_public(dir, &signer)?;
        return Ok(signer);
    };
    let kept: VerifierKey = text.trim_end().parse().map_err(|error| unusable(&public, &error))?;
    let signer = Signer::new(kept.name(), key).map_err(|error| unusable(&path, &error))?;
    if *signer.verifier() != kept {
        return Err(JournalError::SigningKey {
            path,
            what: format!("its public half is not the key in {}", public.display()),
        });
    }
    Ok(signer)
}

/// The origin that a signer's name holds, for this ledger.
pub(crate) fn origin_of(signer: &Signer, ledger: LedgerId) -> &str {
    let name = signer.verifier().name();
    name.strip_suffix(&format!("/{ledger}")).unwrap_or(name)
}

fn write_key(path: &Path) -> Result<SigningKey, JournalError> {
    let key = SigningKey::from_bytes(&random(path)?);
    let pem = private_key_to_pem(&key).map_err(|error| unusable(path, &error))?;
    files::replace(path, pem.as_bytes()).map_err(JournalError::io("write", path))?;
    Ok(key)
}

fn write_public(dir: &Path, signer: &Signer) -> Result<(), JournalError> {
    let path = dir.join("ledger.pub");
    let write = || {
        let aside = dir.join("ledger.pub.tmp");
        let mut file = std::fs::File::create(&aside)?;
        writeln!(file, "{}", signer.verifier())?;
        file.sync_all()?;
        std::fs::rename(&aside, &path)?;
        files::sync_dir(dir)
    };
    write().map_err(JournalError::io("write", &path))
}

fn unusable(path: &Path, error: &dyn std::error::Error) -> JournalError {
    JournalError::SigningKey { path: path.to_owned(), what: error.to_string() }
}
