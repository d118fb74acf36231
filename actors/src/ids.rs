//! The one source of randomness and of new ids. Must not know what they are for.
use std::sync::atomic::{AtomicU64, Ordering};

use reversi_proto::hash::hex;
use reversi_proto::ids::{ApprovalId, DelegationId, KeyId, RollbackId, RunId};

/// Mints random bytes and time-ordered ids.
pub trait IdSource: Send + Sync + 'static {
    /// Fills with random bytes.
    fn fill(&self, bytes: &mut [u8]);
    /// 128 bits, time-ordered (UUID v7): random ids are slower to store.
    fn uuid(&self) -> [u8; 16];
}

/// The operating system's randomness.
#[derive(Debug, Default, Clone, Copy)]
pub struct OsIds;

impl IdSource for OsIds {
    fn fill(&self, bytes: &mut [u8]) {
        // Without randomness nothing can be sealed or signed: the supervisor restarts whoever asked.
        #[allow(clippy::expect_used)]
        getrandom::fill(bytes).expect("the operating system gives random bytes");
    }
    fn uuid(&self) -> [u8; 16] {
        // The one home of ids that read the time.
        #[allow(clippy::disallowed_methods)]
        let uuid = uuid::Uuid::now_v7();
        uuid.into_bytes()
    }
}

/// A repeatable source for tests and simulations. Never for keys that matter.
#[derive(Debug, Default)]
pub struct SeededIds(AtomicU64);

impl SeededIds {
    /// Starts at a seed.
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }
}

impl IdSource for SeededIds {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            // SplitMix64 (Steele, Lea, Flood 2014).
            let mut z = self.0.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            chunk.copy_from_slice(&(z ^ (z >> 31)).to_le_bytes()[..chunk.len()]);
        }
    }
    fn uuid(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        self.fill(&mut bytes);
        bytes
    }
}

/// Ids made of a source; the prefixes are those that `proto` reads.
pub(crate) trait Mint {
    fn random<const N: usize>(&self) -> [u8; N];
    fn number(&self) -> u64;
    fn run_id(&self) -> RunId;
    fn approval_id(&self) -> ApprovalId;
    fn rollback_id(&self) -> RollbackId;
    fn delegation_id(&self) -> DelegationId;
    fn key_id(&self) -> KeyId;
}

#[allow(clippy::expect_used)] // the texts have the form that the id types ask for; a unit test reads each
impl Mint for dyn IdSource {
    fn random<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.fill(&mut bytes);
        bytes
    }
    fn number(&self) -> u64 {
        u64::from_le_bytes(self.random())
    }
    fn run_id(&self) -> RunId {
        format!("run_{}", hex(&self.uuid())).parse().expect("a run id")
    }
    fn approval_id(&self) -> ApprovalId {
        format!("apr_{}", hex(&self.uuid())).parse().expect("an approval id")
    }
    fn rollback_id(&self) -> RollbackId {
        format!("rbk_{}", hex(&self.uuid())).parse().expect("a rollback id")
    }
    fn delegation_id(&self) -> DelegationId {
        format!("dlg_{}", hex(&self.uuid())).parse().expect("a delegation id")
    }
    fn key_id(&self) -> KeyId {
        hex(&self.random::<6>()).parse().expect("a key id")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minted_ids_are_read_back() {
        for ids in [&OsIds as &dyn IdSource, &SeededIds::new(1)] {
            assert!(ids.run_id().as_str().starts_with("run_"));
            assert!(ids.approval_id().as_str().starts_with("apr_"));
            assert!(ids.rollback_id().as_str().starts_with("rbk_"));
            assert!(ids.delegation_id().as_str().starts_with("dlg_"));
            assert_eq!(ids.key_id().as_str().len(), 12);
            assert_ne!(ids.random::<32>(), ids.random::<32>());
        }
    }
}
