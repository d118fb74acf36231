//! Everything that can stand in the ledger, in its newest version, and its way into a line and back.
//! Must not know who decides it.
pub mod v1;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::canonical::{Canonical, CanonicalError};
use crate::hash::Hash;
use crate::ids::{Actor, Seq};
use crate::time::Timestamp;
use v1::{
    ApprovalCancelled, ApprovalDenied, ApprovalEscalated, ApprovalExpired, ApprovalGlassBroken, ApprovalGranted,
    ApprovalPreApproved, ApprovalRequested, ApprovalReviewOverdue, ApprovalReviewed, ApprovalRevoked, ApprovalVoted,
    ApprovalWithdrawn, ClockStepped, DaemonStarted, DaemonStopped, Delegated, DelegationEnded, EntityQuarantined,
    EntityReleased, ErrorText, FullArguments, GroupDeleted, GroupSet, Halted, KeyCreated, KeyCreatedPrivate,
    KeyRevoked, LedgerOpened, ManifestsLoaded, ManifestsLoadedPrivate, MismatchValues, Resumed, RollbackFinished,
    RollbackStarted, RunSealed, RunStarted, StepBegun, StepBlocked, StepDisputed, StepFailed, StepResolved,
    StepSucceeded, StepUncertain, UndoAttempted, UndoDeferred, UndoFailed, UndoMismatched, UndoSucceeded,
    UndoUncertain, UndoVerified, Values,
};

/// Largest private half that is decoded, in bytes: a hostile length must not allocate more.
const PRIVATE_BYTES_MAX: usize = 64 << 20;

/// First byte of a private half: which version of [`v1`] wrote it.
const PRIVATE_VERSION: u8 = 1;

/// Where and when an event became durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meta {
    /// Position in the ledger.
    pub seq: Seq,
    /// The writer's stamp.
    pub ts: Timestamp,
    /// Leaf hash of its line.
    pub leaf: Hash,
    /// Who made it happen.
    pub actor: Actor,
}

/// Why a stored record is not an event.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// A type of a newer software, or damage.
    #[error("unknown record type {0:?}: written by a newer version? upgrade before opening this ledger")]
    UnknownType(String),
    /// The body is not of its type.
    #[error("the body of a {kind} record is not of that type")]
    Body {
        /// The record's type.
        kind: &'static str,
        /// What serde said.
        #[source]
        source: serde_json::Error,
    },
    /// The private half is not of its type.
    #[error("the private half of a {kind} record is not of that type: {detail}")]
    Private {
        /// The record's type.
        kind: &'static str,
        /// What is wrong.
        detail: String,
    },
}

/// An event as it is stored: the public body and, where there is one, the private half before sealing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// The record's `type`.
    pub kind: &'static str,
    /// The record's `body`.
    pub body: Canonical,
    /// To be sealed; empty where there is nothing private.
    pub private: Vec<u8>,
}

/// A private half: what is not public of an event.
trait PrivateHalf: Sized {
    fn encode(&self) -> Result<Vec<u8>, String>;
    fn decode(bytes: &[u8]) -> Result<Self, String>;
}

impl PrivateHalf for () {
    fn encode(&self) -> Result<Vec<u8>, String> {
        Ok(Vec::new())
    }
    fn decode(bytes: &[u8]) -> Result<Self, String> {
        if bytes.is_empty() { Ok(()) } else { Err(format!("expected nothing, got {} bytes", bytes.len())) }
    }
}

fn encode_private<T: Serialize + Default + PartialEq>(value: &T) -> Result<Vec<u8>, String> {
    if *value == T::default() {
        return Ok(Vec::new());
    }
    let mut bytes = vec![PRIVATE_VERSION];
    bincode::serde::encode_into_std_write(value, &mut bytes, bincode::config::standard()).map_err(|e| e.to_string())?;
    Ok(bytes)
}

fn decode_private<T: DeserializeOwned + Default>(bytes: &[u8]) -> Result<T, String> {
    let Some((version, rest)) = bytes.split_first() else { return Ok(T::default()) };
    if *version != PRIVATE_VERSION {
        return Err(format!("unknown version: expected {PRIVATE_VERSION}, got {version}"));
    }
    let config = bincode::config::standard().with_limit::<PRIVATE_BYTES_MAX>();
    let (value, read) = bincode::serde::decode_from_slice(rest, config).map_err(|e| e.to_string())?;
    if read == rest.len() { Ok(value) } else { Err(format!("{} trailing bytes", rest.len() - read)) }
}

macro_rules! private_half {
    ($($type:ty),*) => {$(
        impl PrivateHalf for $type {
            fn encode(&self) -> Result<Vec<u8>, String> {
                encode_private(self)
            }
            fn decode(bytes: &[u8]) -> Result<Self, String> {
                decode_private(bytes)
            }
        }
    )*};
}
private_half!(KeyCreatedPrivate, ManifestsLoadedPrivate, Values, ErrorText, FullArguments, MismatchValues);

macro_rules! events {
    ($($(#[$group_doc:meta])* $group:ident = $enum:ident {
        $($(#[$doc:meta])* $variant:ident($body:ty, $private:ty) = $kind:literal,)*
    })*) => {
        /// Something that happened, by whom it is of interest.
        // Events are few at a time and short-lived: a box would cost more than the width that it saves.
        #[allow(clippy::large_enum_variant)]
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Event { $($(#[$group_doc])* $group($enum),)* }

        $(
            $(#[$group_doc])*
            #[allow(clippy::large_enum_variant)]
            #[derive(Debug, Clone, PartialEq, Eq)]
            pub enum $enum { $($(#[$doc])* $variant($body, $private),)* }

            impl From<$enum> for Event {
                fn from(event: $enum) -> Self {
                    Self::$group(event)
                }
            }
        )*

        /// Every record type that this version knows.
        pub const KINDS: &[&str] = &[$($($kind,)*)*];

        impl Event {
            /// The record's `type`.
            pub fn kind(&self) -> &'static str {
                match self { $($(Self::$group($enum::$variant(_, _)) => $kind,)*)* }
            }

            /// Public body and private half.
            pub fn encode(&self) -> Result<Encoded, CanonicalError> {
                match self {$($(
                    Self::$group($enum::$variant(body, private)) => Ok(Encoded {
                        kind: $kind,
                        body: Canonical::of(body)?,
                        // Encoding plain data into a Vec fails only by a bug, which the round-trip test would show.
                        private: private.encode().unwrap_or_default(),
                    }),
                )*)*}
            }

            /// Reads an event back; an empty private half (erased, or nothing private) gives that half's default.
            pub fn decode(kind: &str, body: &str, private: &[u8]) -> Result<Self, DecodeError> {
                match kind {
                    $($($kind => {
                        let body: $body = serde_json::from_str(body)
                            .map_err(|source| DecodeError::Body { kind: $kind, source })?;
                        let private = <$private as PrivateHalf>::decode(private)
                            .map_err(|detail| DecodeError::Private { kind: $kind, detail })?;
                        Ok(Self::$group($enum::$variant(body, private)))
                    })*)*
                    unknown => Err(DecodeError::UnknownType(unknown.chars().take(80).collect())),
                }
            }
        }
    };
}

events! {
    /// The ledger's and the daemon's own life.
    System = SystemEvent {
        /// Accepted only as the first record.
        LedgerOpened(LedgerOpened, ()) = "ledger.opened",
        /// At each boot.
        DaemonStarted(DaemonStarted, ()) = "daemon.started",
        /// At each clean stop.
        DaemonStopped(DaemonStopped, ()) = "daemon.stopped",
        /// At any time.
        ClockStepped(ClockStepped, ()) = "clock.stepped",
        /// After repeated failures of an entity.
        EntityQuarantined(EntityQuarantined, ()) = "entity.quarantined",
        /// Only of a quarantined entity.
        EntityReleased(EntityReleased, ()) = "entity.released",
    }
    /// Keys and people.
    Access = AccessEvent {
        /// Only with a new key id.
        KeyCreated(KeyCreated, KeyCreatedPrivate) = "access.key_created",
        /// Only of an existing, unrevoked key.
        KeyRevoked(KeyRevoked, ()) = "access.key_revoked",
        /// At any time; replaces a group of that name.
        GroupSet(GroupSet, ()) = "access.group_set",
        /// Only of an existing group.
        GroupDeleted(GroupDeleted, ()) = "access.group_deleted",
        /// Only with a new id.
        Delegated(Delegated, ()) = "access.delegated",
        /// Only of a delegation that is not over.
        DelegationEnded(DelegationEnded, ()) = "access.delegation_ended",
    }
    /// Manifests and policy.
    Config = ConfigEvent {
        /// Whenever the set differs from the one in force.
        ManifestsLoaded(ManifestsLoaded, ManifestsLoadedPrivate) = "manifests.loaded",
    }
    /// The kill switch.
    Halt = HaltEvent {
        /// At any time; replaces the reason of the same scope.
        Halted(Halted, ()) = "halt.set",
        /// Only of a scope that is halted.
        Resumed(Resumed, ()) = "halt.lifted",
    }
    /// A run as a whole.
    Run = RunEvent {
        /// Only as a run's first record. Makes it active.
        Started(RunStarted, ()) = "run.started",
        /// Active or rolled back (fully or partly), no step open. Makes an active run sealed.
        Sealed(RunSealed, ()) = "run.sealed",
    }
    /// One call of a tool.
    Step = StepEvent {
        /// Active runs only. Makes the step `in_flight`; its claim is held.
        Begun(StepBegun, Values) = "step.begun",
        /// Active runs only. The step is `blocked` for ever.
        Blocked(StepBlocked, ()) = "step.blocked",
        /// From `in_flight` (an uncertain step is settled by a resolution). Makes it `succeeded`.
        Succeeded(StepSucceeded, Values) = "step.succeeded",
        /// From `in_flight`. Makes it `failed`; its claim is free.
        Failed(StepFailed, ErrorText) = "step.failed",
        /// From `in_flight`. Makes it `uncertain`.
        Uncertain(StepUncertain, ErrorText) = "step.uncertain",
        /// From `in_flight` or `uncertain` (target step), from `undo_uncertain` (target undo). Of a disputed step whose
        /// undo was attempted it is a note: the dispute is over, the status stays.
        Resolved(StepResolved, Values) = "step.resolved",
        /// From a resolved step whose late outcome says otherwise. Makes it `uncertain` where no undo was attempted.
        Disputed(StepDisputed, ()) = "step.disputed",
    }
    /// Who must say yes.
    Approval = ApprovalEvent {
        /// With the blocked step that asked, unless a request of the same fingerprint is open.
        Requested(ApprovalRequested, FullArguments) = "approval.requested",
        /// As the first record of a grant that nobody asked for.
        PreApproved(ApprovalPreApproved, ()) = "approval.pre_approved",
        /// Open requests, once per person.
        Voted(ApprovalVoted, ()) = "approval.voted",
        /// Open requests, with the vote that made the quorum. Makes it `approved`.
        Granted(ApprovalGranted, ()) = "approval.granted",
        /// Open and approved requests. An end.
        Denied(ApprovalDenied, ()) = "approval.denied",
        /// Open and approved requests, by a voter. Makes an approved one open again if the quorum is lost.
        Withdrawn(ApprovalWithdrawn, ()) = "approval.withdrawn",
        /// Open requests whose deadline has passed.
        Escalated(ApprovalEscalated, ()) = "approval.escalated",
        /// Open or approved requests whose deadline has passed. An end.
        Expired(ApprovalExpired, ()) = "approval.expired",
        /// Open and approved requests. An end.
        Revoked(ApprovalRevoked, ()) = "approval.revoked",
        /// Open and approved requests. An end.
        Cancelled(ApprovalCancelled, ()) = "approval.cancelled",
        /// Open requests. Makes it `approved`, and a review is owed.
        GlassBroken(ApprovalGlassBroken, ()) = "approval.break_glass",
        /// Where a review is owed.
        Reviewed(ApprovalReviewed, ()) = "approval.reviewed",
        /// Where a review is owed and its time is over.
        ReviewOverdue(ApprovalReviewOverdue, ()) = "approval.review_overdue",
    }
    /// Undoing a run.
    Rollback = RollbackEvent {
        /// Active, sealed or partly rolled back runs. Makes the run `rolling_back`.
        Started(RollbackStarted, ()) = "rollback.started",
        /// Only of a run that is rolling back. Makes it `rolled_back` or `partly_rolled_back`.
        Finished(RollbackFinished, ()) = "rollback.finished",
    }
    /// Undoing one step.
    Undo = UndoEvent {
        /// Idle, waiting or failed undos of a run that is rolling back. Opens the attempt.
        Attempted(UndoAttempted, ()) = "undo.attempted",
        /// Closes the open attempt.
        Succeeded(UndoSucceeded, ()) = "undo.succeeded",
        /// Closes the open attempt.
        Failed(UndoFailed, ErrorText) = "undo.failed",
        /// Closes the open attempt, or ends fruitless read-backs after one.
        Uncertain(UndoUncertain, ErrorText) = "undo.uncertain",
        /// Only while reading back.
        Mismatched(UndoMismatched, MismatchValues) = "undo.mismatched",
        /// Only while reading back, or with the success that could not be read back.
        Verified(UndoVerified, ()) = "undo.verified",
        /// Only while waiting for another attempt. Puts it back until its turn comes again.
        Deferred(UndoDeferred, ()) = "undo.deferred",
    }
}
