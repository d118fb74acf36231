//! Events to journal records and back: drafting the line, sealing the private half. Must not decide anything.
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use reversi_proto::canonical::CanonicalError;
use reversi_proto::commit;
use reversi_proto::event::{DecodeError, Event, Meta};
use reversi_proto::hash::hex;
use reversi_proto::ids::{Actor, LedgerId, RunId, StreamId};
use reversi_proto::ledger::{Draft, RecordError};
use reversi_proto::time::Timestamp;
use reversi_proto::wake::Wake;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::ids::{IdSource, Mint as _};
use crate::journal::{Journal, NewRecord, StoredRecord};

const NONCE_BYTES: usize = 24;

/// Why a record can't be written or read.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// The line would be too long.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The body has no canonical form.
    #[error("the body of a record has no canonical form")]
    Canonical(#[from] CanonicalError),
    /// The private half can't be sealed.
    #[error("the private half of a record can't be sealed")]
    Seal,
    /// The line is not a record.
    #[error("record {seq} is not a ledger line")]
    Line {
        /// Where.
        seq: u64,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// The private half was sealed with another key, or damaged.
    #[error("the private half of record {seq} can't be opened: wrong key or damaged")]
    Open {
        /// Where.
        seq: u64,
    },
    /// The record is not an event.
    #[error("record {seq} is not a known event")]
    Event {
        /// Where.
        seq: u64,
        /// Why.
        #[source]
        source: DecodeError,
    },
}

/// Keys derived from a run's key.
#[derive(Clone)]
pub(crate) struct RunKeys {
    pub(crate) payload: [u8; 32],
    seal: [u8; 32],
}

impl RunKeys {
    pub(crate) fn of(run_key: &[u8; 32]) -> Self {
        Self { payload: commit::payload_key(run_key), seal: commit::seal_key(run_key) }
    }
}

/// Where an event's record joins: the chain of a run, or that of no run.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) ledger: LedgerId,
    pub(crate) run: Option<(&'a RunId, u64)>,
    pub(crate) seal: &'a [u8; 32],
}

impl<'a> Place<'a> {
    pub(crate) fn of_run(ledger: LedgerId, run: &'a RunId, run_seq: u64, keys: &'a RunKeys) -> Self {
        Self { ledger, run: Some((run, run_seq)), seal: &keys.seal }
    }
}

/// An event as a record to append.
pub(crate) fn encode(
    place: Place<'_>,
    actor: &Actor,
    event: &Event,
    streams: Vec<(StreamId, Wake)>,
    ids: &dyn IdSource,
) -> Result<NewRecord, CodecError> {
    let encoded = event.encode()?;
    let salt: [u8; 16] = ids.random();
    let run = place.run.map(|(run, _)| run);
    let run_seq = place.run.map_or(0, |(_, run_seq)| run_seq);
    let draft = Draft::new(place.ledger, actor, encoded.kind, &encoded.body, (run, run_seq), salt)?;
    let private = if encoded.private.is_empty() {
        Vec::new()
    } else {
        seal(place.seal, &aad(place.ledger, run.map_or("", RunId::as_str), &hex(&salt)), &encoded.private, ids)?
    };
    Ok(NewRecord { draft, private, streams })
}

/// A record's salt is its event id: random, in the line, and so bound to the line's hash.
fn aad(ledger: LedgerId, run: &str, salt: &str) -> String {
    format!("reversi.dev/private/v1\n{ledger}\n{run}\n{salt}")
}

fn seal(key: &[u8; 32], aad: &str, plain: &[u8], ids: &dyn IdSource) -> Result<Vec<u8>, CodecError> {
    let nonce: [u8; NONCE_BYTES] = ids.random();
    let cipher = XChaCha20Poly1305::new(&(*key).into());
    let payload = Payload { msg: plain, aad: aad.as_bytes() };
    let sealed = cipher.encrypt(&XNonce::from(nonce), payload).map_err(|_| CodecError::Seal)?;
    Ok([&nonce[..], &sealed].concat())
}

fn open(key: &[u8; 32], aad: &str, sealed: &[u8]) -> Option<Vec<u8>> {
    let (nonce, sealed) = sealed.split_first_chunk::<NONCE_BYTES>()?;
    let payload = Payload { msg: sealed, aad: aad.as_bytes() };
    XChaCha20Poly1305::new(&(*key).into()).decrypt(&XNonce::from(*nonce), payload).ok()
}

/// The members of a line that a fold needs.
#[derive(Deserialize)]
struct Line<'a> {
    actor: Actor,
    #[serde(borrow)]
    body: &'a RawValue,
    run: &'a str,
    salt: &'a str,
    seq: u64,
    ts: Timestamp,
    #[serde(rename = "type")]
    kind: &'a str,
}

/// A record read back.
#[derive(Debug, Clone)]
pub(crate) struct Decoded {
    pub(crate) run: Option<RunId>,
    pub(crate) meta: Meta,
    pub(crate) event: Event,
}

/// Reads the public half of a record, for which no key is needed; the private half is the default.
pub(crate) fn decode_public(record: &StoredRecord) -> Result<Decoded, CodecError> {
    let (seq, line) = (record.seq, line_of(record)?);
    let event = Event::decode(line.kind, line.body.get(), &[]).map_err(|source| CodecError::Event { seq, source })?;
    let meta = Meta { seq: line.seq, ts: line.ts, leaf: record.leaf, actor: line.actor };
    Ok(Decoded { run: line.run.parse().ok(), meta, event })
}

fn line_of(record: &StoredRecord) -> Result<Line<'_>, CodecError> {
    serde_json::from_slice(&record.line).map_err(|source| CodecError::Line { seq: record.seq, source })
}

/// Reads a record; a run whose key was erased gives events with empty private halves.
pub(crate) fn decode(journal: &dyn Journal, record: &StoredRecord) -> Result<Decoded, CodecError> {
    let (seq, line) = (record.seq, line_of(record)?);
    let run: Option<RunId> = line.run.parse().ok();
    let key = match &run {
        None => Some(journal.ledger_keys().seal),
        Some(run) => journal.run_key(run).map(|key| commit::seal_key(&key)),
    };
    let private = match key {
        _ if record.private.is_empty() => Vec::new(),
        None => Vec::new(),
        Some(key) => {
            open(&key, &aad(journal.ledger(), line.run, line.salt), &record.private).ok_or(CodecError::Open { seq })?
        }
    };
    let event =
        Event::decode(line.kind, line.body.get(), &private).map_err(|source| CodecError::Event { seq, source })?;
    let meta = Meta { seq: line.seq, ts: line.ts, leaf: record.leaf, actor: line.actor };
    Ok(Decoded { run, meta, event })
}
