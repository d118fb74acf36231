//! What a caller of the Service can get instead of an answer: a stable code, its kind, and a sentence.
//! Must not know HTTP; an edge maps kinds to its own statuses.
use reversi_proto::approval::ApprovalReject;
use reversi_proto::run::RunReject;

use crate::host::HostError;
use crate::journal::{AppendError, JournalError};

/// What the caller can do about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Send something else.
    Malformed,
    /// Show a valid key.
    Unauthorized,
    /// Use a key with the role.
    Forbidden,
    /// Look elsewhere.
    NotFound,
    /// The state doesn't allow it.
    Conflict,
    /// Well-formed, but it can't be meant.
    Invalid,
    /// Lift the halt first.
    Locked,
    /// Try again later.
    Unavailable,
    /// Make room, then try again.
    DiskFull,
    /// A defect: look at the log.
    Internal,
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $kind:ident;)*) => {
        /// Every code that an edge can show. The text is stable.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Code { $($(#[$doc])* $name,)* }

        impl Code {
            /// All of them, for the documentation's test.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The stable text.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// What the caller can do.
            pub fn kind(self) -> Kind {
                match self { $(Self::$name => Kind::$kind,)* }
            }
        }
    };
}

codes! {
    /// The request is not what the endpoint takes.
    RequestMalformed = "request.malformed", Malformed;
    /// The arguments have no canonical form.
    ArgsNotCanonical = "args.not_canonical", Invalid;
    /// No key, or not a valid one.
    KeyInvalid = "key.invalid", Unauthorized;
    /// The key lacks the role.
    RoleMissing = "role.missing", Forbidden;
    /// Observe and advise need `allow_observe`.
    ObserveNotAllowed = "mode.not_allowed", Forbidden;
    /// No such run, or not the caller's.
    RunNotFound = "run.not_found", NotFound;
    /// No such step.
    StepNotFound = "step.not_found", NotFound;
    /// The run id is taken.
    RunExists = "run.exists", Conflict;
    /// The run's status doesn't allow it.
    RunNotActive = "run.not_active", Conflict;
    /// The step's status doesn't allow it.
    StepStatus = "step.status", Conflict;
    /// The run has an open step.
    StepOpen = "step.open", Conflict;
    /// The outcome contradicts a resolution.
    StepDisputed = "step.disputed", Conflict;
    /// A rollback is going on.
    RollbackInProgress = "rollback.in_progress", Conflict;
    /// The Idempotency-Key was used for something else.
    KeyReused = "idempotency.key_reused", Invalid;
    /// No such approval, or not the caller's.
    ApprovalNotFound = "approval.not_found", NotFound;
    /// The approval is decided, used or over.
    ApprovalClosed = "approval.closed", Conflict;
    /// The person holds none of the roles that are asked for.
    ApprovalNotEligible = "approval.not_eligible", Forbidden;
    /// Nobody decides on their own request, and no agent on any.
    ApprovalOwnRequest = "approval.own_request", Forbidden;
    /// The voter saw another request than this one.
    ApprovalFingerprint = "approval.fingerprint", Conflict;
    /// There is no vote of that person.
    ApprovalNoVote = "approval.no_vote", Conflict;
    /// One operator's yes is not enough.
    ApprovalNeedsQuorum = "approval.needs_quorum", Conflict;
    /// Breaking the glass needs a longer reason.
    ApprovalReasonTooShort = "approval.reason_too_short", Invalid;
    /// A review of an earlier emergency is overdue.
    ApprovalReviewOverdue = "approval.review_overdue", Conflict;
    /// No review is owed.
    ApprovalNoReview = "approval.no_review", Conflict;
    /// The tool has no manifest.
    ManifestMissing = "manifest.missing", Invalid;
    /// Calls like this one are halted.
    HaltActive = "halt.active", Locked;
    /// No such key.
    KeyNotFound = "key.not_found", NotFound;
    /// The key is revoked.
    KeyRevoked = "key.revoked", Conflict;
    /// Without this key nobody could make another.
    LastAdmin = "key.last_admin", Conflict;
    /// No such group.
    GroupNotFound = "group.not_found", NotFound;
    /// No such delegation, or not the caller's.
    DelegationNotFound = "delegation.not_found", NotFound;
    /// Mistakes in manifest files.
    ManifestsInvalid = "manifests.invalid", Invalid;
    /// It can't be meant.
    RequestInvalid = "request.invalid", Invalid;
    /// A limit is reached.
    LimitReached = "limit.reached", Conflict;
    /// Too many requests touch the same entity.
    Busy = "server.busy", Unavailable;
    /// The request's fate is unknown; send it again with the same Idempotency-Key.
    RequestLost = "request.lost", Unavailable;
    /// The daemon is stopping.
    Stopping = "server.stopping", Unavailable;
    /// The entity is left alone.
    Quarantined = "entity.quarantined", Unavailable;
    /// No room.
    DiskFull = "disk.full", DiskFull;
    /// A defect.
    Internal = "server.internal", Internal;
}

/// Instead of an answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct ServiceError {
    /// Which.
    pub code: Code,
    /// A sentence somebody can act on; never holds an argument value or a secret.
    pub detail: String,
}

impl ServiceError {
    /// An error of this code.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into() }
    }

    pub(crate) fn internal(error: &(dyn std::error::Error + 'static)) -> Self {
        tracing::error!(error, "an internal error");
        Self::new(Code::Internal, "the daemon failed to handle the request; its log says why")
    }
}

/// A refusal with its code.
trait Coded: std::error::Error + 'static {
    fn code(&self) -> Code;
}

impl<R: Coded> From<HostError<R>> for ServiceError {
    fn from(error: HostError<R>) -> Self {
        let detail = error.to_string();
        let code = match &error {
            HostError::Reject(reject) => reject.code(),
            HostError::Busy => Code::Busy,
            HostError::Full => Code::DiskFull,
            HostError::TooLarge { .. } => Code::LimitReached,
            HostError::Closed => Code::Stopping,
            HostError::Lost => Code::RequestLost,
            HostError::Quarantined => Code::Quarantined,
            HostError::Codec(crate::codec::CodecError::Record(_)) => Code::RequestInvalid,
            HostError::Codec(_) | HostError::Journal(_) => return Self::internal(&error),
        };
        Self { code, detail }
    }
}

impl Coded for RunReject {
    fn code(&self) -> Code {
        match self {
            Self::Absent(_) => Code::RunNotFound,
            Self::Exists(_) => Code::RunExists,
            Self::NotActive { .. } => Code::RunNotActive,
            Self::KeyReused => Code::KeyReused,
            Self::NoStep { .. } => Code::StepNotFound,
            Self::StepStatus { .. } => Code::StepStatus,
            Self::StepOpen { .. } => Code::StepOpen,
            Self::RollbackInProgress { .. } => Code::RollbackInProgress,
            Self::NoManifest { .. } => Code::ManifestMissing,
            Self::OwnApproval { .. } => Code::ApprovalOwnRequest,
            Self::NeedsQuorum { .. } => Code::ApprovalNeedsQuorum,
            Self::Invalid(_) => Code::RequestInvalid,
            Self::TooManySteps { .. } => Code::LimitReached,
        }
    }
}

impl Coded for ApprovalReject {
    fn code(&self) -> Code {
        match self {
            Self::Absent(_) => Code::ApprovalNotFound,
            Self::Closed { .. } => Code::ApprovalClosed,
            Self::NotEligible { .. } | Self::NotRevoker { .. } => Code::ApprovalNotEligible,
            Self::OwnRequest { .. } | Self::Agent => Code::ApprovalOwnRequest,
            Self::NoVote { .. } => Code::ApprovalNoVote,
            Self::Fingerprint { .. } => Code::ApprovalFingerprint,
            Self::ReasonTooShort { .. } => Code::ApprovalReasonTooShort,
            Self::Halted { .. } => Code::HaltActive,
            Self::ReviewOverdue { .. } => Code::ApprovalReviewOverdue,
            Self::NoReview { .. } => Code::ApprovalNoReview,
        }
    }
}

impl From<JournalError> for ServiceError {
    fn from(error: JournalError) -> Self {
        Self::internal(&error)
    }
}

impl From<AppendError> for ServiceError {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::Conflict { .. } => Self::new(Code::Busy, "somebody changed the same thing at once; try again"),
            AppendError::Full => Self::new(Code::DiskFull, error.to_string()),
            AppendError::Closed => Self::new(Code::Stopping, error.to_string()),
            AppendError::Mixed | AppendError::TooLarge { .. } => Self::internal(&error),
        }
    }
}
