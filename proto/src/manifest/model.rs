//! The normalized manifest: every default filled in, every duration in milliseconds. A `Manifest` can only be made by
//! the walker, so that one that exists follows every rule of a single manifest.
use std::collections::BTreeMap;
use std::ops::Deref;

use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};
use sha2::{Digest, Sha256};

use super::diagnostic::Pos;
use super::expect::Expectations;
use super::places::Spots;
use super::reference::Reference;
use super::template::KeyTemplate;
use crate::canonical::{Canonical, CanonicalError};
use crate::hash::Hash;
use crate::ids::ToolName;

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$variant_doc])* #[serde(rename = $word)] $variant,)*
        }

        impl $name {
            /// Every word with its value, in the order of the documentation.
            pub const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$variant)),*];

            /// The word in the manifest.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

words! {
    /// What a tool does to the world.
    Effect {
        /// Changes nothing. Skipped on rollback.
        ReadOnly = "read_only",
        /// Safe to repeat, no undo needed.
        Idempotent = "idempotent",
        /// A true inverse exists.
        Reversible = "reversible",
        /// A counteraction exists but leaves residue.
        Compensable = "compensable",
        /// No safe undo. Always needs approval.
        Irreversible = "irreversible",
    }
}

impl Effect {
    /// Whether the manifest must declare a compensation; where it need not, it must not.
    pub fn has_undo(self) -> bool {
        match self {
            Self::Reversible | Self::Compensable => true,
            Self::ReadOnly | Self::Idempotent | Self::Irreversible => false,
        }
    }

    /// Whether a call may be repeated without asking.
    pub fn may_retry(self) -> bool {
        match self {
            Self::ReadOnly | Self::Idempotent => true,
            Self::Reversible | Self::Compensable | Self::Irreversible => false,
        }
    }

    /// Whether it changes anything.
    pub fn is_mutating(self) -> bool {
        match self {
            Self::ReadOnly => false,
            Self::Idempotent | Self::Reversible | Self::Compensable | Self::Irreversible => true,
        }
    }
}

words! {
    /// Where a manifest is in its life.
    Status {
        /// Calls are blocked.
        Draft = "draft",
        /// Enforced.
        Approved = "approved",
        /// Still runs and rolls back; each call is noted.
        Deprecated = "deprecated",
    }
}

words! {
    /// What an approval does at its deadline.
    OnTimeout {
        /// The call stays refused.
        Deny = "deny",
        /// The next level is asked.
        Escalate = "escalate",
    }
}

words! {
    /// What an undo promises.
    CompensationKind {
        /// Makes amends, may leave residue.
        Compensation = "compensation",
        /// Restores the exact prior state.
        Inverse = "inverse",
    }
}

words! {
    /// How far a mistake reaches.
    BlastRadius {
        /// Hardly anybody notices.
        Low = "low",
        /// Some notice.
        Medium = "medium",
        /// Many are affected.
        High = "high",
        /// The business is affected.
        Critical = "critical",
    }
}

words! {
    /// Within what an idempotency key is unique.
    IdempotencyScope {
        /// One run.
        Run = "run",
        /// One actor's runs.
        Actor = "actor",
        /// Everything.
        Global = "global",
    }
}

words! {
    /// Whether evidence of each call must be exported.
    EvidenceExport {
        /// It must.
        Required = "required",
        /// It may.
        Optional = "optional",
    }
}

/// Whether a human must approve each call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Approval {
    /// No approval by this manifest; policy may still ask for one.
    Never,
    /// Each call, by these rules.
    Always(ApprovalRules),
}

/// Who approves, how many, until when. The default is any one approver without a deadline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ApprovalRules {
    /// An approver must hold one of these roles or groups; empty: any approver.
    pub roles: Vec<String>,
    /// How many must approve.
    pub quorum: u32,
    /// When the request runs out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// What happens then.
    pub on_timeout: OnTimeout,
    /// The levels that are asked after that, in order.
    pub escalate_to: Vec<String>,
}

impl Default for ApprovalRules {
    fn default() -> Self {
        Self { roles: Vec::new(), quorum: 1, timeout_ms: None, on_timeout: OnTimeout::Deny, escalate_to: Vec::new() }
    }
}

impl Serialize for Approval {
    /// Two fields beside the others: `approval` is a word; `approval_rules` is there when a rule differs from the
    /// default, so that equal rules have one text.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (word, rules) = match self {
            Self::Never => ("never", None),
            Self::Always(rules) if *rules == ApprovalRules::default() => ("always", None),
            Self::Always(rules) => ("always", Some(rules)),
        };
        let mut fields = serializer.serialize_struct("Approval", 1 + usize::from(rules.is_some()))?;
        fields.serialize_field("approval", word)?;
        if let Some(rules) = rules {
            fields.serialize_field("approval_rules", rules)?;
        }
        fields.end()
    }
}

/// Argument of the called tool to where its value comes from.
pub type ArgumentMap = BTreeMap<String, Reference>;

/// How a tool is undone.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Compensation {
    /// The tool that undoes.
    pub tool: ToolName,
    /// Its arguments.
    pub argument_map: ArgumentMap,
    /// What it promises.
    pub kind: CompensationKind,
    /// What it cannot take back.
    pub residue: Vec<String>,
    /// A human must approve running it.
    pub requires_approval: bool,
    /// The longest that it may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// How its effect is read back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verification: Option<Verification>,
}

/// The read-back after an undo.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verification {
    /// A read-only tool.
    pub tool: ToolName,
    /// Its arguments, from the original call and result.
    pub arguments: ArgumentMap,
    /// What it must answer.
    pub expect: Expectations,
    /// How often it is asked.
    pub retries: u32,
    /// The wait after the first mismatch, doubled each time.
    pub backoff_ms: u64,
}

/// What can go wrong, for policy and people.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Risk {
    /// Such as `pii` or `financial`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_class: Option<String>,
    /// How far a mistake reaches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blast_radius: Option<BlastRadius>,
    /// Recorded only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
}

/// How a call is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Retry {
    /// Calls in all.
    pub attempts: u32,
    /// The wait before the second.
    pub base_ms: u64,
    /// The longest wait.
    pub max_ms: u64,
}

impl Default for Retry {
    fn default() -> Self {
        Self { attempts: 3, base_ms: 200, max_ms: 5000 }
    }
}

/// Which calls are duplicates of each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Idempotency {
    /// The template of the key.
    pub key: KeyTemplate,
    /// Within what it is unique.
    pub scope: IdempotencyScope,
}

/// What is kept, exported and hidden.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Audit {
    /// How long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retention_days: Option<u32>,
    /// Whether evidence must be exported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence_export: Option<EvidenceExport>,
    /// What is cut from previews, logs, exports and screens.
    pub redaction: Vec<Reference>,
}

/// Everything that a manifest says. Reached through `Manifest`, which cannot be changed; it serializes to the
/// normalized form. A field that is added later must be left out of that form while it has its default: the texts of
/// old manifests are in journals, and their checksums are pinned by steps.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fields {
    /// Its name.
    pub tool: ToolName,
    /// For reviewers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What it does to the world.
    pub effect: Effect,
    /// What the run's scope must contain.
    pub permission: String,
    /// Whether a human must approve each call. Always for an irreversible tool.
    #[serde(flatten)]
    pub approval: Approval,
    /// The undo; there exactly when the effect has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compensation: Option<Compensation>,
    /// What must have succeeded earlier in the run.
    pub requires: Vec<ToolName>,
    /// Counted by a registry.
    pub version: u64,
    /// Where it is in its life.
    pub status: Status,
    /// What to use instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replaced_by: Option<ToolName>,
    /// Who answers for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Who is called when it misbehaves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oncall: Option<String>,
    /// What can go wrong.
    #[serde(skip_serializing_if = "is_default")]
    pub risk: Risk,
    /// The longest that the upstream may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// How calls are repeated; only for tools that may be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// Which calls are duplicates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotency: Option<Idempotency>,
    /// What is kept, exported and hidden.
    #[serde(skip_serializing_if = "is_default")]
    pub audit: Audit,
    /// Hash of the upstream's input schema when the manifest was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema_hash: Option<String>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A manifest that follows every rule of a single manifest: today's where it was loaded, those of its day where it was
/// restored from a journal. Dereferences to its fields. Two are equal when their
/// normalized texts are.
#[derive(Debug, Clone)]
pub struct Manifest {
    fields: Fields,
    canonical: Canonical,
    checksum: Hash,
    places: Places,
}

/// Whose a manifest is and where it says so.
#[derive(Debug, Clone)]
pub(crate) struct Named {
    pub(crate) tool: ToolName,
    pub(crate) path: String,
    pub(crate) pos: Pos,
}

/// Where the names of other tools stood, for the findings of a set; and all fields, for those of the lint.
#[derive(Debug, Clone, Default)]
pub(crate) struct Places {
    pub(crate) path: String,
    pub(crate) tool: Pos,
    pub(crate) compensation_tool: Pos,
    pub(crate) verification_tool: Pos,
    pub(crate) replaced_by: Pos,
    /// With what follows the item's path, where it is an object.
    pub(crate) requires: Vec<(Pos, &'static str)>,
    pub(crate) spots: Spots,
}

impl Manifest {
    /// Only the walker calls this, after it found nothing wrong.
    pub(super) fn seal(fields: Fields, places: Places) -> Result<Self, CanonicalError> {
        let canonical = Canonical::of(&fields)?;
        let checksum = Hash(Sha256::digest(canonical.as_str().as_bytes()).into());
        Ok(Self { fields, canonical, checksum, places })
    }

    /// The normalized form as canonical JSON: what is journaled.
    pub fn canonical(&self) -> Canonical {
        self.canonical.clone()
    }

    /// SHA-256 of that text: what a step pins.
    pub fn checksum(&self) -> Hash {
        self.checksum
    }

    pub(crate) fn places(&self) -> &Places {
        &self.places
    }
}

impl Deref for Manifest {
    type Target = Fields;
    fn deref(&self) -> &Fields {
        &self.fields
    }
}

impl PartialEq for Manifest {
    fn eq(&self, other: &Self) -> bool {
        self.canonical == other.canonical
    }
}

impl Eq for Manifest {}
